package nginx

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
	"millrace/internal/route/headers"
)

// headers translates add_header and what hides fields of answers. Without "always" nginx
// leaves errors without them.
func (t *site) headers(l *location, r *plan.Route) {
	fields := t.Fields()
	good := plan.Answers{Status: []string{"2xx", "3xx"}}
	t.expires(l, r, &fields, good)
	for name, hides := range map[string]bool{"proxy_hide_header": r.Passes(), "fastcgi_hide_header": r.PHP.To != nil} {
		for _, d := range l.all(name) {
			if hides {
				fields.Put(plan.Answers{}, headers.Remove, d.Arg(0), "")
				t.im.Used(d)
			}
		}
	}
	for _, d := range l.all("add_header") {
		name, value := d.Arg(0), d.Arg(1)
		lower := strings.ToLower(name)
		switch {
		case lower == "cache-control" && (r.Static.Root != "" || fields.Has("Cache-Control")) && !strings.Contains(value, "$"), lower == "content-type":
			continue // of the files, with expires, and of the text of return
		case strings.Contains(value, "$upstream_cache_status"):
			t.im.Standard(d, "Cache-Status says what the cache did")
			continue
		case lower == "alt-svc":
			t.im.Standard(d, "tls.http3 says where HTTP/3 is spoken")
			continue
		}
		of := good
		if d.Arg(2) == "always" {
			of = plan.Answers{}
		}
		op := headers.Set
		if lower == "set-cookie" || lower == "link" || lower == "vary" {
			op = headers.Add
		}
		values, err := t.valuesOf(l, value, of)
		if err != nil {
			t.im.Leave(d, fmt.Sprintf("write it into headers (docs/routes.md): %v", err))
		}
		for _, v := range values {
			if why := fields.Put(v.of, op, name, v.text); why != "" {
				t.im.Standard(d, why)
			}
		}
		switch {
		case err != nil:
		case len(values) == 0 && value == "":
			t.im.Standard(d, "nginx adds no field without a value")
		default:
			t.im.Used(d)
		}
	}
	if !fields.Empty() {
		r.Headers = fields
	}
}

// valueOf is a value of a field, and the answers that have it.
type valueOf struct {
	of   plan.Answers
	text string
}

// valuesOf are the values that a text has as a field of answers: several where a map of
// content types says so. Of other maps it takes the value that location.mapped has; what
// that has not, it takes from the map's default, and notes that the map has a say.
func (t *site) valuesOf(l *location, text string, of plan.Answers) (values []valueOf, err error) {
	add := func(of plan.Answers, text string) error {
		text, err := t.headerText(text)
		if err == nil && text != "" {
			values = append(values, valueOf{of, text})
		}
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(t.im.maps)) {
		m := t.im.maps[name]
		if !uses(text, name) {
			continue
		}
		entries, rest := entriesOf(m)
		if isContentType(m.Arg(0)) {
			t.im.Used(m)
			err := add(of, with(text, name, rest))
			for _, e := range slices.Backward(entries) { // of rules, the last counts
				typed := of
				if typed.Type = typesOf(e.Name); typed.Type == nil {
					err = errors.Join(err, fmt.Errorf("write a rule with type for %s", e.Name))
					continue
				}
				err = errors.Join(err, add(typed, with(text, name, e.Arg(0))))
			}
			return values, err
		}
		if _, chosen := l.mapped[name]; !chosen {
			if l.mapped == nil {
				l.mapped = map[string]string{}
			}
			l.mapped[name] = rest
			l.varies = append(l.varies, name)
		}
		text = with(text, name, l.mapped[name])
	}
	return values, add(of, text)
}

// uses reports whether a text has a variable.
func uses(text, name string) bool {
	return slices.ContainsFunc(variable().FindAllStringSubmatch(text, -1), func(m []string) bool { return m[1]+m[2] == name })
}

// with puts a value in the place of a variable.
func with(text, name, value string) string {
	return variable().ReplaceAllStringFunc(text, func(v string) string {
		if strings.Trim(v, "${}") == name {
			return value
		}
		return v
	})
}

// isOption reports whether a line of a map says something of all of it.
func isOption(name string) bool {
	return name == "hostnames" || name == "volatile" || name == "include"
}

// entriesOf are the entries of a map in the order in which nginx looks at them, and the
// value for all others.
func entriesOf(m *draft.Directive) (entries []*draft.Directive, rest string) {
	for _, e := range m.Block {
		switch {
		case e.Name == "default":
			rest = e.Arg(0)
		case !isOption(e.Name):
			entries = append(entries, e)
		}
	}
	slices.SortStableFunc(entries, func(a, b *draft.Directive) int { // texts before expressions
		return strings.Count(a.Name[:min(1, len(a.Name))], "~") - strings.Count(b.Name[:min(1, len(b.Name))], "~")
	})
	return entries, rest
}

// varied gives each value that a map makes of a field a route of its own, to which a rule
// with the map's condition leads: {query: {v: ""}, route: "@files"}. The route that is there
// has the map's default.
func (t *site) varied(l *location) {
	if len(l.varies) == 0 || l.job == nil {
		return
	}
	name := l.varies[0]
	m := t.im.maps[name]
	var lost error
	if len(l.varies) > 1 {
		lost = errors.New("several maps have a say in its fields")
	}
	entries, rest := entriesOf(m)
	if bare, ok := plan.WithoutPath(l.key, l.job); lost == nil && ok && l.kind != namedLocation && len(entries) <= mostVariants {
		t.im.Used(m)
		lost = t.variants(l, bare, entries, rest)
	} else if lost == nil {
		lost = errors.New("its route cannot be repeated")
	}
	if lost != nil {
		t.im.Leave(m, fmt.Sprintf("what it says of fields of answers is %q in all answers of %s, since %v: write a rule with its condition that leads to a route with another", rest, strings.TrimSuffix(l.String(), " "), lost))
	}
}

// mostVariants bounds the routes that a map becomes.
const mostVariants = 16

// variants writes a rule and a route for each entry of a map.
func (t *site) variants(l *location, bare *plan.Route, entries []*draft.Directive, rest string) (lost error) {
	name, routes := l.varies[0], map[string]string{}
	m := t.im.maps[name]
	for _, e := range entries {
		value := e.Arg(0)
		ways, err := t.entryWays(m, e)
		if err != nil {
			lost = err
			continue
		}
		if value == rest {
			routes[value] = l.key
		}
		if routes[value] == "" {
			other := bare.Clone()
			other.Headers = plan.Fields{}
			l.mapped[name] = value
			t.headers(l, other)
			routes[value] = t.FreeName(t.name(l)+"-"+name, "files")
			t.Route(routes[value], other, e.At()+": "+e.String())
		}
		for _, w := range ways {
			c, err := l.match().And(w.Cond)
			if err != nil {
				lost = err
				continue
			}
			l.add(c, plan.To(routes[value]), e.At())
		}
	}
	l.mapped[name] = rest
	return lost
}

// String is a location's line.
func (l *location) String() string {
	if l.block == nil {
		return "the server"
	}
	return l.block.String()
}
