package apache

import (
	"fmt"
	"net/netip"
	"net/textproto"
	"regexp"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// way is one set of values for which the conditions of a RewriteRule hold. Conditions
// with [OR] have several.
type way struct {
	plan.Cond
	groups map[int]string // what %1 stands for
}

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
	ways []way // where one of them holds, so does the condition; it never does where there is none
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
	one := func(o plan.Cond) { c.ways = append(c.ways, way{Cond: o}) }
	switch name {
	case "HTTPS", "ENV:HTTPS", "SERVER_PORT", "SERVER_PORT_SECURE", "REQUEST_SCHEME":
		values := map[string][2]string{"HTTPS": {"on", "off"}, "ENV:HTTPS": {"on", ""}, "SERVER_PORT": {"443", "80"}, "SERVER_PORT_SECURE": {"1", "0"}, "REQUEST_SCHEME": {"https", "http"}}[name]
		switch s, p := m.matches(values[0]), m.matches(values[1]); {
		case s && p:
			c.skip = true
		case s:
			one(plan.Cond{Protocol: "https"})
		case p:
			one(plan.Cond{Protocol: "http"})
		}
	case "HTTP_HOST", "SERVER_NAME":
		c.ways = t.hostWays(m)
	case "REQUEST_URI", "$PATH":
		if name == "$PATH" && m.expr != "" {
			m.expr = below(m.expr, "/")
		}
		c.ways = pathWays(m)
	case "THE_REQUEST":
		expr, err := ofRequestLine(m.expr)
		if err != nil || m.not {
			c.err = fmt.Errorf("write the path of the request line as path or regex: %s", value)
			return
		}
		c.ways = pathWays(match{expr: expr})
	case "REQUEST_METHOD":
		c.methods(m, value)
	case "REMOTE_ADDR":
		c.addresses(m)
	case "QUERY_STRING":
		c.query(m)
	case "ENV:REDIRECT_STATUS":
		c.skip = m.matches("")
	case "HTTP_COOKIE":
		one(header("Cookie", m.value()))
	default:
		field, ok := headerOf(name)
		if !ok {
			c.err = fmt.Errorf("there is no condition on %%{%s}", name)
			return
		}
		one(header(field, m.value()))
	}
}

// header is a condition on a field of the request.
func header(field, value string) plan.Cond {
	return plan.Cond{Header: map[string]string{field: value}}
}

// headerOf is the request field that a variable stands for.
func headerOf(name string) (string, bool) {
	if field, is := strings.CutPrefix(name, "HTTP:"); is {
		return textproto.CanonicalMIMEHeaderKey(field), true
	}
	field, is := strings.CutPrefix(name, "HTTP_")
	return textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(field, "_", "-")), is
}

// match is a comparison: by an expression, or with a text.
type match struct {
	not  bool
	expr string // "": exact
	text string
	fold bool
}

func matcher(value string, ignoreCase bool) (m match, err error) {
	value, m.not = strings.CutPrefix(value, "!")
	m.fold = ignoreCase
	switch {
	case strings.HasPrefix(value, "="):
		m.text = strings.Trim(value[1:], `"`)
		if ignoreCase {
			m.expr = "(?i)^" + regexp.QuoteMeta(m.text) + "$"
		}
		return m, nil
	case strings.HasPrefix(value, "<"), strings.HasPrefix(value, ">"), strings.HasPrefix(value, "-"), strings.HasPrefix(value, "expr"):
		return m, fmt.Errorf("%q is no comparison that rules have", value)
	}
	if m.expr, err = expression(value, ignoreCase); err != nil {
		return m, err
	}
	if m.expr == "" || m.expr == "(?i)" {
		m.expr = ".*"
	}
	return m, nil
}

func (m match) matches(text string) bool {
	if m.expr == "" {
		return (text == m.text) != m.not
	}
	return regexp.MustCompile(m.expr).MatchString(text) != m.not
}

// anchored is the comparison as an expression.
func (m match) anchored() string {
	if m.expr == "" {
		return "^" + regexp.QuoteMeta(m.text) + "$"
	}
	return m.expr
}

// value is the comparison as a rule writes it: a text, or ~ and an expression.
func (m match) value() string {
	if m.expr == "" {
		return plan.Value(m.text, m.not)
	}
	if text, ok := literal(m.expr); ok && !m.fold && !strings.ContainsAny(text, "*!~") {
		return plan.Value(text, m.not)
	}
	return plan.Match(m.expr, m.not)
}

// hostWays are conditions on the host. Where the names of the site are known, each
// that an expression matches is written.
func (t *site) hostWays(m match) (ways []way) {
	names := slices.DeleteFunc(slices.Clone(t.Server.Names), func(n string) bool { return strings.HasPrefix(n, "*") })
	expr := strings.TrimPrefix(m.anchored(), "(?i)")
	if !m.not && (m.expr == "" || len(names) > 0) {
		re := regexp.MustCompile("(?i)" + expr)
		for _, name := range names {
			if g := re.FindStringSubmatch(name); g != nil {
				groups := map[int]string{}
				for i, v := range g {
					groups[i] = v
				}
				ways = append(ways, way{Cond: plan.Cond{Host: []string{name}}, groups: groups})
			}
		}
		if len(ways) > 0 {
			return merged(ways, re)
		}
		if len(names) > 0 && len(names) == len(t.Server.Names) && !t.Server.Any {
			return nil // none of the site's names is like it
		}
	}
	if body, is := strings.CutSuffix(expr, "$"); is && !strings.HasSuffix(body, `\`) {
		expr = body + `\.?(?::\d+)?$`
	}
	return []way{{Cond: header("Host", plan.Match("(?i)"+expr, m.not))}}
}

// merged are ways that differ in the host alone as one, where no groups differ.
func merged(ways []way, re *regexp.Regexp) []way {
	if re.NumSubexp() > 0 {
		return ways
	}
	all := ways[0]
	for _, w := range ways[1:] {
		all.Host = append(all.Host, w.Host...)
	}
	return []way{all}
}

func pathWays(m match) []way {
	expr := m.anchored()
	if m.not {
		return []way{{Cond: plan.Cond{Except: []string{"~" + expr}}}}
	}
	groups := map[int]string{} // the rule takes them over as its own
	for i := range regexp.MustCompile(expr).NumSubexp() + 1 {
		groups[i] = fmt.Sprintf("{%d}", i)
	}
	return []way{{Cond: plan.Cond{Regex: expr}, groups: groups}}
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

func (c *condition) methods(m match, value string) {
	text := strings.TrimPrefix(value, "!")
	list := regexp.MustCompile(`^\^?\(?(?:\?:)?([A-Za-z|]+)\)?\$?$`).FindStringSubmatch(strings.TrimPrefix(text, "="))
	if list == nil {
		c.err = fmt.Errorf("methods are a list, as in [GET, POST]: %s is another expression", value)
		return
	}
	var methods []string
	for name := range strings.SplitSeq(list[1], "|") {
		if name == "" {
			c.err = fmt.Errorf("methods are a list, as in [GET, POST]: %s has an empty one", value)
			return
		}
		if m.not {
			name = "!" + name
		}
		methods = append(methods, strings.ToUpper(name))
	}
	c.ways = []way{{Cond: plan.Cond{Method: methods}}}
}

// addresses reads expressions for addresses as the networks that they mean.
func (c *condition) addresses(m match) {
	text := m.text
	if m.expr != "" {
		if l, ok := literal(m.expr); ok {
			text = l
		} else if part, is := strings.CutPrefix(m.expr, "^"); is {
			text = strings.ReplaceAll(part, `\.`, ".")
			if !strings.HasSuffix(text, ".") {
				text = "" // 10.1 would also be 10.10
			}
		}
	}
	net, err := network(text)
	if _, bad := netip.ParseAddr(text); err != nil || bad != nil && !strings.HasSuffix(text, ".") && !strings.Contains(text, "/") {
		c.err = fmt.Errorf("write address with the networks that are meant")
		return
	}
	if m.not {
		net = "!" + net
	}
	c.ways = []way{{Cond: plan.Cond{Address: []string{net}}}}
}

// query reads expressions for a query as ones for its parameters.
func (c *condition) query(m match) {
	c.who = true
	expr := strings.TrimPrefix(m.anchored(), "(?i)")
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
	if bare, ok := literal(strings.TrimPrefix(value, "~")); ok && !strings.ContainsAny(bare, "*!~") {
		value = bare
	}
	if m.not {
		value = "!" + value
	}
	c.ways = []way{{Cond: plan.Cond{Query: map[string]string{name: value}}, groups: groups}}
}

// or joins ways that differ in one header alone: their expressions become one.
func or(ways []way) (out []way) {
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

func joinedHeaders(a, b way) (way, bool) {
	bare := func(w way) bool {
		rest := w.Cond
		rest.Header = nil
		return rest.Everything() && len(w.Header) == 1 && len(w.groups) == 0
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
		a.Cond = header(name, v+"|"+strings.TrimPrefix(w[1:], "(?i)")) // the flag in front is for both
	}
	return a, true
}
