// Package rulefile reads the files _redirects and _headers, in which a folder of
// files says itself where its old addresses lead and which header fields its
// answers have: the formats of Netlify and Cloudflare Pages, as far as a server can
// follow them that knows neither the country nor the account of a visitor. A line
// that cannot be followed is a [Fault]; the others hold.
package rulefile

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"millrace/internal/route/match"
)

// The names of the files, which lie at the top of a folder.
const (
	RedirectsName = "_redirects"
	HeadersName   = "_headers"
)

const (
	// MaxSize is the most of a file, in bytes, that is read.
	MaxSize = 1 << 20
	// maxStatic, maxDynamic and maxLine bound _redirects: the rules without and with
	// placeholders, and the bytes of a line. They are Cloudflare's.
	maxStatic  = 2000
	maxDynamic = 100
	maxLine    = 1000
	// maxHeaderRules and maxHeaderLine bound _headers in the same way.
	maxHeaderRules = 100
	maxHeaderLine  = 2000
	// maxFields bounds the fields of one rule of _headers.
	maxFields = 100
	// maxFaults bounds the lines of a file that are reported.
	maxFaults = 20
)

// Fault is a line that does not hold.
type Fault struct {
	File string
	Line int
	Err  error
}

// Error implements error.
func (f Fault) Error() string { return fmt.Sprintf("%s:%d: %v", f.File, f.Line, f.Err) }

// faults are those of one file.
type faults struct {
	file string
	list []Fault
	more int
}

func (f *faults) add(line int, format string, values ...any) {
	if len(f.list) == maxFaults {
		f.more++
		return
	}
	f.list = append(f.list, Fault{f.file, line, fmt.Errorf(format, values...)})
}

// all are the faults, with a last one for those that were too many.
func (f *faults) all() []Fault {
	if f.more > 0 {
		last := f.list[len(f.list)-1]
		return append(f.list, Fault{f.file, last.Line, fmt.Errorf("and %d more lines like this are left out", f.more)})
	}
	return f.list
}

// Asked is what rules compare of a request.
type Asked struct {
	Path   string // decoded
	Query  string
	Host   string // in lower case, without a port
	Secure bool   // over TLS
}

// placeholder is a name that stands for a part of a path.
var placeholder = regexp.MustCompile(`:[A-Za-z][A-Za-z0-9_]*`)

// splat is the name of what a star stands for.
const splat = "splat"

// pattern is the path of a rule.
type pattern struct {
	literal string // "" for one with placeholders; without the slash at its end
	path    *match.Path
	names   []string // of the captures, in order
}

// newPattern compiles a path as the files have it: escaped, with placeholders like
// :name for one segment or a part of it, and one star for any text.
func newPattern(text string) (p pattern, err error) {
	if strings.ContainsAny(text, "?#") {
		return p, fmt.Errorf("%q: the path of a rule has neither a query nor a fragment; a parameter is a word of its own, as in id=:id", text)
	}
	if strings.Count(text, "*") > 1 {
		return p, fmt.Errorf("%q: only one star is possible", text)
	}
	if !strings.Contains(text, "*") && !placeholder.MatchString(text) {
		plain, err := url.PathUnescape(text)
		p.literal = cmp.Or(strings.TrimSuffix(plain, "/"), "/")
		return p, err //nolint:wrapcheck // names what is wrong
	}
	var b strings.Builder
	b.WriteString("^")
	literal := func(part string) error {
		plain, err := url.PathUnescape(part)
		b.WriteString(regexp.QuoteMeta(plain))
		return err //nolint:wrapcheck // as above
	}
	end := "/?$" // a slash at the end makes no difference
	before, after, starred := strings.Cut(text, "*")
	if starred && after == "" && strings.HasSuffix(before, "/") { // /blog/* is for /blog, too
		before, end = strings.TrimSuffix(before, "/"), "(?s:(?:/(.*))?)$"
	} else if starred {
		end = "$"
	} else {
		before = strings.TrimSuffix(before, "/")
	}
	if err := p.segments(&b, before, literal); err != nil {
		return p, err
	}
	if starred {
		p.names = append(p.names, splat)
		if after != "" || end == "$" {
			b.WriteString("(?s:(.*))")
		}
		if err := p.segments(&b, after, literal); err != nil {
			return p, err
		}
	}
	b.WriteString(end)
	p.path, err = match.NewExpression(b.String())
	return p, err //nolint:wrapcheck // names what is wrong
}

// segments adds text with placeholders to an expression.
func (p *pattern) segments(b *strings.Builder, text string, literal func(string) error) error {
	at := 0
	for _, found := range placeholder.FindAllStringIndex(text, -1) {
		if err := literal(text[at:found[0]]); err != nil {
			return err
		}
		name := text[found[0]+1 : found[1]]
		if slices.Contains(p.names, name) {
			return fmt.Errorf("%q has :%s twice", text, name)
		}
		if name == splat {
			return fmt.Errorf("%q: :splat is what a star stands for, and no name for a segment", text)
		}
		p.names = append(p.names, name)
		b.WriteString("([^/]+)")
		at = found[1]
	}
	return literal(text[at:])
}

// dynamic reports whether there are placeholders.
func (p *pattern) dynamic() bool { return p.path != nil }

// match reports whether the pattern is for a path, and what its names stand for.
func (p *pattern) match(path string) (values []string, ok bool) {
	if p.path == nil {
		return nil, same(p.literal, path)
	}
	captures, ok := p.path.Match(path)
	if !ok {
		return nil, false
	}
	return captures[1:], true
}

// same reports whether two paths differ in nothing but a slash at their end.
func same(literal, path string) bool { return literal == cmp.Or(strings.TrimSuffix(path, "/"), "/") }

// fill puts values for their names into a text.
func fill(text string, names, values []string, escape func(name, value string) string) string {
	if len(names) == 0 {
		return text
	}
	return placeholder.ReplaceAllStringFunc(text, func(found string) string {
		for i, name := range names {
			if name == found[1:] {
				return escape(name, values[i])
			}
		}
		return found
	})
}

// escapePath escapes a part of a path, in which slashes are those of segments.
func escapePath(value string) string {
	return strings.TrimPrefix((&url.URL{Path: value}).EscapedPath(), "./") // added before a colon
}

// address reports whether a word is a path or a URL.
func address(word string) bool {
	return strings.HasPrefix(word, "/") || strings.HasPrefix(word, "http://") || strings.HasPrefix(word, "https://")
}

// lines calls fn with each line that says something, without spaces around it.
func lines(text []byte, fn func(number int, line string)) {
	number := 0
	for line := range strings.SplitSeq(strings.TrimPrefix(string(text), "\ufeff"), "\n") {
		number++
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			fn(number, line)
		}
	}
}
