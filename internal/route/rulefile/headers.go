package rulefile

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"millrace/internal/route/headers"
	"millrace/internal/wire/field"
)

// Headers are the rules of a _headers file. A nil one has none.
type Headers struct {
	rules []headerRule
	shut  []shut
}

// shut is what asked for a password below a path that does not hold: nobody gets what
// that could have been for.
type shut struct {
	line   int
	prefix string
}

// headerRule are the fields for the answers to some paths.
type headerRule struct {
	line   int
	path   pattern
	fields []fieldLine
	remove []string
	closed bool // it asked for a password that is none
}

type fieldLine struct{ name, value string }

// ParseHeaders reads a file.
func ParseHeaders(text []byte) (*Headers, []Fault) {
	h, wrong := new(Headers), faults{file: HeadersName}
	var rule *headerRule // nil: lines with fields belong to a path that does not hold
	begun := false
	var path shut // the last one
	lines(text, func(number int, line string) {
		switch {
		case begun && asksForPassword(line):
			if rule != nil {
				rule.closed = true
			} else if !slices.Contains(h.shut, path) {
				h.close(path)
			}
			wrong.add(number, "%w", errPassword)
		case len(line) > maxHeaderLine && !address(line):
			wrong.add(number, "the line has %d bytes: at most %d", len(line), maxHeaderLine)
		case address(line):
			begun, rule, path = true, nil, shut{number, literalBegin(line)}
			switch p, err := newPattern(line[:min(len(line), maxHeaderLine)]); {
			case len(line) > maxHeaderLine:
				wrong.add(number, "the line has %d bytes: at most %d", len(line), maxHeaderLine)
			case line[0] != '/':
				wrong.add(number, "a rule for one host: give the host a site of its own in the config, with headers")
			case err != nil:
				wrong.add(number, "%w", err)
			case len(h.rules) == maxHeaderRules:
				wrong.add(number, "there are more than %d rules: write them as headers of routes in the config", maxHeaderRules)
			default:
				h.rules = append(h.rules, headerRule{line: number, path: p})
				rule = &h.rules[len(h.rules)-1]
			}
		case !begun:
			wrong.add(number, "no path stands before it: write one like /* above the fields")
		case rule != nil:
			if err := rule.field(line); err != nil {
				wrong.add(number, "%w", err)
			}
		}
	})
	return h, wrong.all()
}

// close has nobody get what a path begins with; of too many paths, nothing at all.
func (h *Headers) close(path shut) {
	if len(h.shut) == maxHeaderRules {
		h.shut, path.prefix = nil, "/"
	}
	h.shut = append(h.shut, path)
}

// asksForPassword reports whether a line is Netlify's way to ask for one.
func asksForPassword(line string) bool {
	name, _, _ := strings.Cut(line, ":")
	return strings.EqualFold(strings.TrimSpace(name), "Basic-Auth")
}

// literalBegin is what all paths begin with that a path of a rule, or a URL, could be
// for, whatever the rest of it says.
func literalBegin(word string) string {
	if word[0] != '/' {
		_, word, _ = strings.Cut(word, "://")
		_, path, _ := strings.Cut(word, "/")
		word = "/" + path
	}
	if i := strings.IndexAny(word, "*:?#% \t"); i >= 0 {
		word = word[:i]
	}
	return word
}

// errPassword says what becomes of Netlify's way to ask for a password.
var errPassword = errors.New("Basic-Auth is not followed here, and nobody gets these paths: write auth for the route or site into the config, and remove this line")

// field reads a line with one.
func (r *headerRule) field(line string) error {
	if rest, remove := strings.CutPrefix(line, "!"); remove {
		name := textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(rest))
		if !field.Token(name) {
			return fmt.Errorf("%q is not the name of a field", strings.TrimSpace(rest))
		}
		if why := headers.MayAnswer(name, headers.Remove); why != "" {
			return fmt.Errorf("%s stays: %s", name, why)
		}
		r.remove = append(r.remove, name)
		return nil
	}
	name, value, ok := strings.Cut(line, ":")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	if !ok || !field.Token(name) {
		return fmt.Errorf("%q is not a field: write one like Cache-Control: no-cache", line)
	}
	name = textproto.CanonicalMIMEHeaderKey(name)
	op := headers.Set
	if name == "Vary" {
		op = headers.Add
	}
	switch why := headers.MayAnswer(name, op); {
	case why != "":
		return fmt.Errorf("%s cannot be set: %s", name, why)
	case name == "Set-Cookie":
		return errors.New("Set-Cookie would give all visitors the same cookie: let a route of the config do it")
	case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }):
		return fmt.Errorf("the value of %s has a character that no header may have", name)
	case len(r.fields) == maxFields:
		return fmt.Errorf("more than %d fields for one path", maxFields)
	}
	r.fields = append(r.fields, fieldLine{name, value})
	return nil
}

// ofContent are fields that are about the content of a file.
func ofContent(name string) bool {
	return strings.HasPrefix(name, "Content-") && name != "Content-Security-Policy" && name != "Content-Security-Policy-Report-Only" ||
		slices.Contains([]string{"Cache-Control", "Cdn-Cache-Control", "Expires", "Etag", "Last-Modified"}, name)
}

// Closed reports whether nobody may have what is at a path, and the rule's line.
func (h *Headers) Closed(path string) (line int, closed bool) {
	if h == nil {
		return 0, false
	}
	for i := range h.rules {
		if r := &h.rules[i]; r.closed {
			if _, ok := r.path.match(path); ok {
				return r.line, true
			}
		}
	}
	for _, s := range h.shut {
		if strings.HasPrefix(path, s.prefix) || path+"/" == s.prefix {
			return s.line, true
		}
	}
	return 0, false
}

// Lines are those of the paths that cover one.
func (h *Headers) Lines(path string) (numbers []int) {
	if h == nil {
		return nil
	}
	for i := range h.rules {
		if _, ok := h.rules[i].path.match(path); ok {
			numbers = append(numbers, h.rules[i].line)
		}
	}
	return numbers
}

// Apply changes the header of the answer to a path, which must be its own. Rules
// hold in their order; what several say of one field stands there behind one
// another. file: the answer is the file that the path stands for. Others, as a page
// for what is not found, get no fields about content and its lifetime.
func (h *Headers) Apply(to http.Header, path string, file bool) {
	if h == nil {
		return
	}
	var said map[string]bool
	for i := range h.rules {
		r := &h.rules[i]
		values, ok := r.path.match(path)
		if !ok {
			continue
		}
		for _, name := range r.remove {
			if file || !ofContent(name) {
				delete(to, name)
				delete(said, name)
			}
		}
		for _, f := range r.fields {
			if !file && ofContent(f.name) {
				continue
			}
			value := fill(f.value, r.path.names, values, func(_, value string) string { return escapePath(value) })
			switch {
			case f.name == "Vary":
				to[f.name] = append(slices.Clone(to[f.name]), value)
			case said[f.name]:
				to[f.name] = []string{to[f.name][0] + ", " + value}
			default:
				to[f.name] = []string{value}
			}
			if said == nil {
				said = map[string]bool{}
			}
			said[f.name] = true
		}
	}
}
