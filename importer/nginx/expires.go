package nginx

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
	"millrace/internal/route/headers"
)

// cacheControl translates expires, and a Cache-Control that is added, for files.
func (t *site) cacheControl(l *location) []plan.Lifetime {
	d := l.last("expires")
	if d != nil && strings.HasPrefix(d.Arg(0), "$") {
		d = nil // rules for types say it
	}
	if value := t.lifetime(l, d); value != "" {
		return []plan.Lifetime{{Match: "*", Value: value}}
	}
	return nil
}

// expires translates expires for what another server answers, and for all answers where a
// map of content types says how long they hold.
func (t *site) expires(l *location, r *plan.Route, fields *plan.Fields, of plan.Answers) {
	d := l.last("expires")
	if d == nil {
		return
	}
	name, mapped := strings.CutPrefix(d.Arg(0), "$")
	if !mapped {
		if r.Passes() {
			if value := t.lifetime(l, d); value != "" {
				fields.Put(of, headers.Set, "Cache-Control", value)
			}
		}
		return
	}
	m := t.im.maps[name]
	if m == nil || !isContentType(m.Arg(0)) {
		t.im.Leave(d, "write the ages into headers, with when and type, or into static.cache_control by the files' names")
		return
	}
	t.im.Used(d, m)
	entries, rest := entriesOf(m)
	put := func(of plan.Answers, age string) {
		one := &draft.Directive{Name: "expires", Args: []string{age}, File: m.File, Line: m.Line}
		if value := t.lifetime(l, one); age != "" && age != "off" && value != "" {
			fields.Put(of, headers.Set, "Cache-Control", value)
		}
		if t.im.Outcome(one) == draft.Untranslated {
			t.im.Leave(m, t.im.Note(one).Why)
		}
	}
	put(of, rest)
	for _, e := range slices.Backward(entries) { // of rules, the last counts
		typed := of
		if typed.Type = typesOf(e.Name); typed.Type == nil {
			t.im.Leave(m, fmt.Sprintf("write a line with type into headers.when for %s", e.Name))
			continue
		}
		put(typed, e.Arg(0))
	}
}

// isContentType reports whether a map looks at the type of an answer.
func isContentType(source string) bool {
	return slices.Contains([]string{"$sent_http_content_type", "$upstream_http_content_type"}, source)
}

// typesOf are the types that a key of a map stands for, as rules have them; nil if they
// cannot say it. ~image/ is image/*.
func typesOf(key string) []string {
	name, expr := strings.CutPrefix(key, "~")
	name = strings.TrimPrefix(name, "*")
	if expr {
		name = strings.NewReplacer(`\/`, "/", `\.`, ".", `\+`, "+").Replace(strings.TrimPrefix(name, "^"))
	}
	m := regexp.MustCompile(`^([a-z]+)(/[a-z0-9.+-]*)?$`).FindStringSubmatch(strings.TrimSuffix(strings.ToLower(name), "$"))
	switch {
	case m == nil || !expr && (m[2] == "" || m[2] == "/"):
		return nil
	case m[2] == "" || m[2] == "/":
		return []string{m[1] + "/*"}
	}
	types := []string{m[1] + m[2]}
	for _, ext := range draft.Extensions(types[0]) { // the name that it has here
		types = draft.AppendNew(types, draft.TypeOf(ext))
	}
	return types
}

// lifetime is the Cache-Control that an expires, which may be nil, and add_header make
// together.
func (t *site) lifetime(l *location, d *draft.Directive) string {
	var parts []string
	if d != nil {
		value, err := age(d)
		if err != nil {
			t.im.Leave(d, err.Error())
		} else {
			t.im.Used(d)
		}
		if value != "" {
			parts = append(parts, value)
		}
	}
	for _, d := range l.all("add_header") {
		if strings.EqualFold(d.Arg(0), "Cache-Control") && !strings.Contains(d.Arg(1), "$") {
			t.im.Used(d)
			for p := range strings.SplitSeq(d.Arg(1), ",") {
				parts = append(parts, strings.TrimSpace(p))
			}
		}
	}
	return strings.Join(draft.Unique(parts), ", ")
}

// age is the Cache-Control of an expires.
func age(d *draft.Directive) (string, error) {
	switch v := d.Arg(0); {
	case v == "off", v == "":
		return "", nil
	case v == "max":
		return "max-age=315360000", nil
	case v == "epoch", strings.HasPrefix(v, "-"):
		return "no-cache", nil
	default:
		age, ok := elapsed(strings.TrimPrefix(v, "+"))
		if !ok {
			return "", fmt.Errorf("write a value for Cache-Control into static.cache_control: %s is no fixed age", strings.Join(d.Words(), " "))
		}
		return "max-age=" + strconv.Itoa(int(age.Seconds())), nil
	}
}
