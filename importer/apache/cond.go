package apache

import (
	"fmt"
	"net/textproto"
	"regexp"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// fileTest is a condition on whether a file exists, such as -f.
type fileTest struct {
	not    bool
	kind   byte   // f, d, s or l
	suffix string // behind the path: .html
	other  bool   // another file than the one that was asked for
}

// condition is one RewriteCond.
type condition struct {
	line *draft.Directive
	or   bool
	file *fileTest
	ways []plan.Way // where one of them holds, so does the condition; it never does where there is none
	err  error
	skip bool // it always holds here
	who  bool // it looks at the client, and so may keep somebody out
}

// condition parses one.
func (t *site) condition(d *draft.Directive) *condition {
	c := &condition{line: d}
	test, value := d.Arg(0), d.Arg(1)
	ignoreCase := false
	for _, f := range flagsOf(d.Arg(2)) {
		switch strings.ToUpper(f.name) {
		case "NC", "NOCASE":
			ignoreCase = true
		case "OR", "ORNEXT":
			c.or = true
		}
	}
	name := strings.TrimSuffix(strings.TrimPrefix(test, "%{"), "}")
	upper := strings.ToUpper(name)
	c.who = !slices.Contains([]string{"HTTP_HOST", "SERVER_NAME", "HTTPS", "SERVER_PORT", "REQUEST_SCHEME", "REQUEST_URI", "THE_REQUEST", "REQUEST_FILENAME", "SCRIPT_FILENAME", "HTTP:X-FORWARDED-PROTO", "ENV:REDIRECT_STATUS", "ENV:HTTPS"}, upper) && !strings.Contains(test, "DOCUMENT_ROOT")
	if bare := strings.TrimPrefix(value, "!"); regexp.MustCompile(`^-[fdslFUhL]$`).MatchString(bare) {
		c.file = &fileTest{not: bare != value, kind: bare[1]}
		c.who = false
		rest := strings.NewReplacer("%{DOCUMENT_ROOT}%{REQUEST_URI}", "", "%{DOCUMENT_ROOT}/%{REQUEST_URI}", "", "%{DOCUMENT_ROOT}/%{REQUEST_FILENAME}", "", "%{DOCUMENT_ROOT}%{REQUEST_FILENAME}", "", "%{DOCUMENT_ROOT}/$1", "", "%{REQUEST_FILENAME}", "", "%{SCRIPT_FILENAME}", "", "%{DOCUMENT_ROOT}%{SCRIPT_NAME}", "", `\`, "").Replace(test)
		c.file.suffix = rest
		c.file.other = rest == test || strings.ContainsAny(rest, "%$/")
		return c
	}
	if !strings.HasPrefix(test, "%{") || strings.Count(test, "%") != 1 || !strings.HasSuffix(test, "}") {
		if test == "$1" || test == "$0" { // the path, as the rule has it
			upper = "$PATH"
		} else {
			c.err = fmt.Errorf("there is no condition on %s", test)
			return c
		}
	}
	c.compare(t, upper, value, ignoreCase)
	return c
}

// compare sets the ways in which a variable compares to a value.
func (c *condition) compare(t *site, name, value string, ignoreCase bool) {
	m, err := matcher(value, ignoreCase)
	if err != nil {
		c.err = err
		return
	}
	one := func(o plan.Cond, err error) { c.ways, c.err = []plan.Way{{Cond: o}}, err }
	switch name {
	case "HTTPS", "ENV:HTTPS", "SERVER_PORT", "SERVER_PORT_SECURE", "REQUEST_SCHEME":
		values := map[string][2]string{"HTTPS": {"on", "off"}, "ENV:HTTPS": {"on", ""}, "SERVER_PORT": {"443", "80"}, "SERVER_PORT_SECURE": {"1", "0"}, "REQUEST_SCHEME": {"https", "http"}}[name]
		c.ways = m.Protocol(values[0], values[1])
		c.skip = len(c.ways) == 1 && c.ways[0].Everything()
	case "HTTP_HOST", "SERVER_NAME":
		c.ways = t.Hosts(m)
	case "REQUEST_URI", "$PATH":
		if name == "$PATH" && m.Expr != "" {
			m.Expr = below(m.Expr, "/")
		}
		c.ways = pathWays(m)
	case "THE_REQUEST":
		expr, err := ofRequestLine(m.Expr)
		if err != nil || m.Not {
			c.err = fmt.Errorf("write the path of the request line as path or regex: %s", value)
			return
		}
		c.ways = pathWays(plan.Comparison{Expr: expr})
	case "REQUEST_METHOD":
		one(m.Methods())
	case "REMOTE_ADDR":
		one(m.Addresses())
	case "QUERY_STRING":
		c.query(m)
	case "ENV:REDIRECT_STATUS":
		c.skip = m.Holds("")
	case "HTTP_COOKIE":
		one(plan.Header("Cookie", m.Value()), nil)
	default:
		field, ok := headerOf(name)
		if !ok {
			c.err = fmt.Errorf("there is no condition on %%{%s}", name)
			return
		}
		one(plan.Header(field, m.Value()), nil)
	}
}

// headerOf is the request field that a variable stands for.
func headerOf(name string) (string, bool) {
	if field, is := strings.CutPrefix(name, "HTTP:"); is {
		return textproto.CanonicalMIMEHeaderKey(field), true
	}
	field, is := strings.CutPrefix(name, "HTTP_")
	return textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(field, "_", "-")), is
}

// matcher is the comparison of a RewriteCond.
func matcher(value string, ignoreCase bool) (m plan.Comparison, err error) {
	value, m.Not = strings.CutPrefix(value, "!")
	switch {
	case strings.HasPrefix(value, "="):
		m.Text = strings.Trim(value[1:], `"`)
		if ignoreCase {
			m.Expr = "(?i)" + m.Expression()
		}
		return m, nil
	case strings.HasPrefix(value, "<"), strings.HasPrefix(value, ">"), strings.HasPrefix(value, "-"), strings.HasPrefix(value, "expr"):
		return m, fmt.Errorf("%q is no comparison that rules have", value)
	}
	if m.Expr, err = expression(value, ignoreCase); m.Expr == "" || m.Expr == "(?i)" {
		m.Expr = ".*"
	}
	return m, err
}

// pathWays are the ways for the path, whose groups the rule takes over as its own.
func pathWays(m plan.Comparison) []plan.Way {
	w := plan.Way{Cond: m.Paths()}
	if w.Regex == "" {
		return []plan.Way{w}
	}
	w.Groups = map[int]string{}
	for i := range regexp.MustCompile(w.Regex).NumSubexp() + 1 {
		w.Groups[i] = fmt.Sprintf("{%d}", i)
	}
	return []plan.Way{w}
}

// ofRequestLine is the part of an expression for the line of a request that is
// about its path.
func ofRequestLine(expr string) (string, error) {
	fold := strings.HasPrefix(expr, "(?i)")
	expr = strings.TrimPrefix(expr, "(?i)")
	m := regexp.MustCompile(`^\^?(?:\[A-Z\](?:\{\d+,?\d*\}|\+)|\(?(?:\?:)?GET(?:\|HEAD|\|POST)*\)?|\.\*|\\S\+)?(?: |\\s\+?)/?[+*]?(.*)$`).FindStringSubmatch(expr)
	if m == nil {
		return "", errConditions
	}
	path := m[1]
	ends := false
	for _, tail := range []string{`(\?.*)? HTTP`, `(?:\?.*)? HTTP`, `(\?[^ ]*)? HTTP`, `[? ]`, `[?\s]`, `[\s?]`, `[\s?&]`, `[ ?]`, ` HTTP/`, ` HTTP`, `\sHTTP/`, `\sHTTP`, ` `, `\s`, `\?`} {
		if cut, is := strings.CutSuffix(path, tail); is {
			path, ends = cut, true
			break
		}
	}
	if strings.Contains(path, `\?`) || strings.Contains(path, `\s`) || strings.Contains(path, " ") {
		return "", errConditions
	}
	path = "^/" + path
	if ends {
		path += "$"
	}
	return expression(path, fold)
}

// query reads expressions for a query as ones for its parameters.
func (c *condition) query(m plan.Comparison) {
	c.who = true
	expr := strings.TrimPrefix(m.Expression(), "(?i)")
	if expr == "^$" || expr == "." || expr == ".+" {
		c.err = fmt.Errorf("whether there is a query is no condition: name a parameter of it")
		return
	}
	parts := regexp.MustCompile(`^(?:\^|\(\^\|&\)|\(\?:\^\|&\)|&|\\b)?([A-Za-z0-9_.\[\]-]+)=(.*?)(\$|\(&\|\$\)|\(\?:&\|\$\)|\(\$\|&\)|&)?$`).FindStringSubmatch(expr)
	if parts == nil || strings.ContainsAny(parts[1], ".[") || strings.Contains(parts[2], "&") && !strings.Contains(parts[2], "[^&]") {
		c.err = fmt.Errorf("write the parameters of the query that are meant: %s", c.line.Arg(1))
		return
	}
	name, value := parts[1], strings.NewReplacer("([^&]*)", "(.*)", "([^&]+)", "(.+)", "[^&]*", ".*", "[^&]+", ".+").Replace(parts[2])
	groups := map[int]string{}
	first := 1
	if strings.HasPrefix(expr, "(^|&)") {
		first = 2
		groups[1] = ""
	}
	if regexp.MustCompile(`^\([^()]*\)$`).MatchString(value) {
		groups[first] = "{query." + name + "}"
	}
	if value != "" || parts[3] != "" {
		value = "~^" + value
		if parts[3] != "" {
			value += "$"
		}
	} else {
		value = "*"
	}
	if bare, ok := plan.Literal(strings.TrimPrefix(value, "~")); ok && !strings.ContainsAny(bare, "*!~") {
		value = bare
	}
	if m.Not {
		value = "!" + value
	}
	c.ways = []plan.Way{{Cond: plan.Cond{Query: map[string]string{name: value}}, Groups: groups}}
}

// or joins ways that differ in one header alone: their expressions become one.
func or(ways []plan.Way) (out []plan.Way) {
	for _, w := range ways {
		joined := false
		if i := len(out) - 1; i >= 0 {
			out[i], joined = joinedHeaders(out[i], w)
		}
		if !joined {
			out = append(out, w)
		}
	}
	return out
}

func joinedHeaders(a, b plan.Way) (plan.Way, bool) {
	bare := func(w plan.Way) bool {
		rest := w.Cond
		rest.Header = nil
		return rest.Everything() && len(w.Header) == 1 && len(w.Groups) == 0
	}
	if !bare(a) || !bare(b) {
		return a, false
	}
	const longest = 900
	for name, v := range a.Header {
		w, ok := b.Header[name]
		fold := strings.HasPrefix(v, "~(?i)")
		if !ok || !strings.HasPrefix(v, "~") || !strings.HasPrefix(w, "~") || fold != strings.HasPrefix(w, "~(?i)") || len(v)+len(w) > longest {
			return a, false
		}
		a.Cond = plan.Header(name, v+"|"+strings.TrimPrefix(w[1:], "(?i)")) // the flag in front is for both
	}
	return a, true
}
