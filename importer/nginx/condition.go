package nginx

import (
	"errors"
	"fmt"
	"net/netip"
	"net/textproto"
	"regexp"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// condition translates an if: each way in which it may hold becomes a rule.
func (t *site) condition(d *draft.Directive, l *location) {
	words := ifWords(d)
	if t.fileCondition(d, l, words) {
		return
	}
	ways, err := t.ways(words)
	if err != nil {
		t.lostCondition(d, fmt.Sprintf("write it as a rule (docs/routes.md): %v", err))
		return
	}
	for _, inner := range d.Block {
		switch inner.Name {
		case "return", "rewrite", "break":
		case "set":
			t.leaveSet(d, inner)
		default:
			t.im.Leave(inner, "rules rewrite, redirect, answer or name a route: write one of them for this if")
			t.im.Leave(d, "what it does is not carried over")
		}
	}
	if t.im.Outcome(d) != draft.Untranslated {
		t.im.Used(d)
	}
	for _, way := range ways {
		if way.partly != "" && slices.ContainsFunc(d.Block, refuses) {
			t.im.Leave(d, way.partly)
		}
		t.ifBody(d, l, way)
	}
}

// leaveSet reports a set within an if: rules do not know its value.
func (t *site) leaveSet(d, set *draft.Directive) {
	do := "a rule for each way in which it holds does it"
	if strings.Contains(d.Arg(0), "$host") || strings.Contains(d.Arg(0), "$http_host") {
		do = "write a rule for each name: {host: [www.example.org], redirect: {to: 'https://example.org{uri}', status: 301}}"
	}
	t.im.Leave(set, do)
	t.im.Leave(d, do)
}

// lostCondition reports an if that cannot be translated. One that keeps clients out closes
// the site.
func (t *site) lostCondition(d *draft.Directive, do string) {
	if slices.ContainsFunc(d.Block, refuses) {
		t.Close(d, do)
		return
	}
	t.im.Leave(d, do)
}

// refuses reports whether a line turns clients away: a return with any 4xx.
// 495 to 497 are nginx's own for certificates, 444 closes the connection.
func refuses(d *draft.Directive) bool {
	return d.Name == "return" && regexp.MustCompile(`^4\d\d$`).MatchString(d.Arg(0))
}

// ifWords are the words of a condition without its parentheses.
func ifWords(d *draft.Directive) []string {
	words := slices.Clone(d.Args)
	if len(words) == 0 {
		return nil
	}
	words[0] = strings.TrimPrefix(words[0], "(")
	last := len(words) - 1
	words[last] = strings.TrimSuffix(words[last], ")")
	return slices.DeleteFunc(words, func(w string) bool { return w == "" && len(words) != 3 })
}

// way is one set of values for which a condition holds.
type way struct {
	when   plan.Cond
	groups []string
	expr   string            // an expression for the path, whose groups may be used
	values map[string]string // what variables of maps stand for
	partly string            // why it does not hold in all cases
	query  bool              // the last group may end with the query, which a path has not
}

// ifBody writes the rules of an if's block.
func (t *site) ifBody(d *draft.Directive, l *location, w way) {
	for _, inner := range d.Block {
		switch inner.Name {
		case "return":
			t.ifReturn(inner, l, w)
			return
		case "rewrite":
			t.rewrite(inner, l, w.when)
		case "break":
			t.im.Standard(inner, "rules of a site end where one answers")
		}
	}
}

func (t *site) ifReturn(d *draft.Directive, l *location, w way) {
	c, at := w.when, *l
	if w.expr != "" {
		at.kind, at.expr = regexLocation, w.expr
	} else if c.Path == "" && c.Regex == "" {
		c, _ = c.And(l.match()) // nothing else of a location is a condition
	}
	copied := *d
	copied.Args = slices.Clone(d.Args)
	for i, g := range w.groups {
		for j := range copied.Args {
			copied.Args[j] = strings.ReplaceAll(copied.Args[j], fmt.Sprintf("$%d", i), g)
		}
	}
	if last := len(copied.Args) - 1; w.query && last > 0 {
		if re, err := regexp.Compile(w.expr); err == nil && re.NumSubexp() > 0 && strings.HasSuffix(copied.Args[last], fmt.Sprintf("$%d", re.NumSubexp())) {
			copied.Args[last] += "$is_args$args"
		}
	}
	for name, v := range w.values {
		for j := range copied.Args {
			copied.Args[j] = strings.ReplaceAll(copied.Args[j], name, v)
		}
	}
	answer, err := t.returned(&copied, &at)
	switch {
	case err == nil:
		t.im.Used(d)
	case refusal(d) != nil:
		answer = refusal(d)
		t.im.Leave(d, fmt.Sprintf("it refuses with a short text instead: %v", err))
	default:
		t.im.Leave(d, fmt.Sprintf("write it as a rule: %v", err))
		return
	}
	l.add(c, answer, d.At())
}

// fileCondition translates an if on whether a file exists (-f), as try; true: it was one.
func (t *site) fileCondition(d *draft.Directive, l *location, words []string) bool {
	if len(words) != 2 || !regexp.MustCompile(`^!?-[fdex]$`).MatchString(words[0]) {
		return false
	}
	file := words[1] == "$request_filename" || words[1] == "$document_root$uri" || words[1] == "$document_root$request_uri"
	missing := words[0] == "!-e" || words[0] == "!-f"
	if !file || !missing {
		t.lostCondition(d, "whether a file is there decides with try alone. For maintenance: millrace maintenance on (docs/routes.md)")
		return true
	}
	for _, inner := range d.Block {
		switch inner.Name {
		case "rewrite":
			target, _, _ := strings.Cut(inner.Arg(1), "?")
			all, _ := everything(inner.Arg(0))
			if !all || strings.Contains(target, "$") && target != "/index.php/$1" && target != "/index.php$1" || strings.Contains(target, "://") || inner.Arg(2) == "permanent" || inner.Arg(2) == "redirect" {
				t.im.Leave(inner, "write try for the route: it leads to one path for all files that are not there")
				continue
			}
			target = strings.TrimSuffix(strings.TrimSuffix(target, "$1"), "/")
			l.fallback = "/" + strings.TrimLeft(target, "/")
			t.im.Used(d, inner)
			if strings.Contains(inner.Arg(1), "?") && l.fallback != "/index.php" {
				t.im.Leave(inner, "the query is not added: the application must read the path itself (REQUEST_URI)")
			} else if strings.Contains(inner.Arg(1), "?") {
				t.im.Standard(inner, "the front controller reads the path itself (REQUEST_URI)")
			}
		case "proxy_pass":
			key := "@upstream"
			at := &location{scope: &scope{parent: l.scope, list: d.Block}, block: d, kind: namedLocation, path: key, key: key}
			if node := t.proxy(at, inner); node != nil {
				t.routeOptions(at, node)
				t.route(at, node)
				l.fallback = key
				t.im.Used(d)
			}
		case "return":
			t.im.Used(d)
			t.im.Standard(inner, "a file that is not there has the status 404")
		case "break":
			t.im.Standard(inner, "rules of a site end where one answers")
		default:
			t.im.Leave(inner, "write try for the route, and a named route for what answers else")
			t.im.Leave(d, "what it does is not carried over")
		}
	}
	return true
}

// ways are the ways in which a condition holds.
func (t *site) ways(words []string) ([]way, error) {
	if len(words) == 0 || !strings.HasPrefix(words[0], "$") {
		return nil, errors.New("the condition is not about a variable")
	}
	name := strings.Trim(words[0], "${}")
	op, value := "", ""
	switch len(words) {
	case 1:
	case 2:
		op = words[1]
	case 3:
		op, value = words[1], words[2]
	default:
		return nil, errors.New("the condition has too many words")
	}
	if m := t.im.maps[name]; m != nil && (op == "" || op == "=" || op == "!=") {
		return t.mapWays(m, op, value)
	}
	if m := t.im.geo(name, t.server.parent); m != nil && (op == "" || op == "=" || op == "!=") {
		return t.geoWays(m, op, value)
	}
	w, err := t.simple(name, op, value)
	return w, err
}

// simple is a condition on a variable of the request.
func (t *site) simple(name, op, value string) ([]way, error) {
	switch name {
	case "scheme", "https":
		secure := value == "https" || value == "on"
		if op == "!=" {
			secure = !secure
		}
		if op != "=" && op != "!=" {
			break
		}
		return []way{{when: plan.Cond{Protocol: map[bool]string{true: "https", false: "http"}[secure]}}}, nil
	case "host", "http_host":
		return t.hostWays(op, value)
	case "request_method":
		return methodWays(op, value)
	case "remote_addr":
		if _, err := netip.ParseAddr(value); err == nil && (op == "=" || op == "!=") {
			return []way{{when: plan.Cond{Address: []string{strings.Replace(op, "=", "", 1) + value}}}}, nil
		}
	case "invalid_referer":
		if op == "" {
			return t.invalidReferer()
		}
	case "uri", "request_uri", "document_uri":
		return pathWays(op, value, name == "request_uri")
	}
	kind, field, _ := strings.Cut(name, "_")
	if !slices.Contains([]string{"http", "arg", "cookie"}, kind) || field == "" {
		return nil, fmt.Errorf("there is no condition on $%s", name)
	}
	v, err := conditionValue(op, value)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "http":
		return header(headerName(field), v), nil
	case "arg":
		return []way{{when: plan.Cond{Query: map[string]string{field: v}}}}, nil
	}
	return []way{{when: plan.Cond{Cookie: map[string]string{field: v}}}}, nil
}

// header is a condition on a field of the request.
func header(field, value string) []way {
	return []way{{when: plan.Cond{Header: map[string]string{field: value}}}}
}

// headerName is a field as its variable names it: user_agent.
func headerName(name string) string {
	return textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
}

// conditionValue is a comparison as a rule writes it: a text, or ~ and an expression.
func conditionValue(op, value string) (string, error) {
	op, not := strings.CutPrefix(op, "!")
	switch op {
	case "":
		return "~.", nil
	case "=":
		return plan.Value(value, not), nil
	case "~", "~*":
		expr, err := plan.Expression(value, op == "~*")
		return plan.Match(expr, not), err
	}
	return "", fmt.Errorf("%q is no comparison", op)
}

func methodWays(op, value string) ([]way, error) {
	methods := regexp.MustCompile(`^\^?\(?\??:?([A-Z|]+)\)?\$?$`).FindStringSubmatch(value)
	if methods == nil {
		return nil, fmt.Errorf("methods are a list, as in [GET, POST]: %q is another expression", value)
	}
	var list []string
	for m := range strings.SplitSeq(methods[1], "|") {
		if m == "" {
			return nil, errors.New("a method without a name")
		}
		if strings.HasPrefix(op, "!") {
			m = "!" + m
		}
		list = append(list, m)
	}
	return []way{{when: plan.Cond{Method: list}}}, nil
}

func pathWays(op, value string, raw bool) ([]way, error) {
	switch op {
	case "=":
		path, query, asked := strings.Cut(value, "?")
		if !strings.HasPrefix(path, "/") || strings.Contains(path, "*") {
			return nil, errors.New("write the path and the query as path and query of a rule")
		}
		c := plan.Exactly(path)
		if asked {
			var err error
			if c.Query, err = parametersOf(query); err != nil {
				return nil, err
			}
		}
		return []way{{when: c}}, nil
	case "~", "~*":
		expr, err := plan.Expression(value, op == "~*")
		if err != nil {
			return nil, err
		}
		for _, end := range []string{`(\?|$)`, `(?:\?|$)`, `(\?.*)?$`, `(?:\?.*)?$`} {
			if rest, is := strings.CutSuffix(expr, end); is {
				expr = rest + "$" // a path has no query here
			}
		}
		query := regexp.MustCompile(`\.[*+]\)?\$?$`).MatchString(expr) && raw
		if strings.Contains(expr, `\?`) || strings.Contains(expr, "=") {
			return nil, errors.New("the expression is about the query, too: write path or regex, and query")
		}
		partly := ""
		if bare := strings.TrimPrefix(expr, "(?i)"); raw && (!strings.HasPrefix(bare, "^") || regexp.MustCompile(`\.[*+]\)?[^)$]`).MatchString(bare)) {
			partly = "it looks at the path alone: what it looks for in queries passes. Write a rule with query for those"
		}
		return []way{{when: plan.Cond{Regex: expr}, expr: expr, query: query, partly: partly}}, nil
	}
	return nil, errors.New("a path is compared by = or ~: for what does not match, put a rule for what does before it")
}

// parametersOf are the conditions for a query.
func parametersOf(query string) (map[string]string, error) {
	values := map[string]string{}
	for pair := range strings.SplitSeq(query, "&") {
		name, value, ok := strings.Cut(pair, "=")
		if _, twice := values[name]; !ok || name == "" || twice || strings.ContainsAny(pair, "%+$") {
			return nil, fmt.Errorf("write the parameters of ?%s as query of a rule", query)
		}
		values[name] = plan.Value(value, false)
	}
	return values, nil
}

// hostWays are conditions on the host. Those that name hosts of the site by an
// expression are written for each.
func (t *site) hostWays(op, value string) ([]way, error) {
	switch op {
	case "=":
		return []way{{when: plan.Cond{Host: []string{strings.ToLower(value)}}}}, nil
	case "!=":
		return header("Host", `!~(?i)^`+regexp.QuoteMeta(value)+`\.?(:[0-9]+)?$`), nil
	case "~", "~*":
		expr, err := plan.Expression(value, true)
		if err != nil {
			return nil, err
		}
		re := regexp.MustCompile(expr)
		var ways []way
		for _, name := range t.Server.Names {
			if m := re.FindStringSubmatch(name); m != nil && !strings.HasPrefix(name, "*") {
				ways = append(ways, way{when: plan.Cond{Host: []string{name}}, groups: m})
			}
		}
		if len(ways) == 0 {
			return header("Host", plan.Match(expr, false)), nil
		}
		return ways, nil
	case "!~", "!~*":
		v, err := conditionValue(op, value)
		return header("Host", v), err
	}
	return nil, errors.New("hosts are compared by = or ~")
}

// holds reports whether a value of a map makes a condition true.
func holds(v, op, value string) bool {
	switch op {
	case "=":
		return v == value
	case "!=":
		return v != value
	}
	return v != "" && v != "0"
}

// mostEntries bounds the rules that one map becomes.
const mostEntries = 500

// mapWays are the entries of a map for which a condition holds.
func (t *site) mapWays(m *draft.Directive, op, value string) (ways []way, err error) {
	if len(m.Block) > mostEntries {
		return nil, fmt.Errorf("the map has more than %d entries", mostEntries)
	}
	source := strings.Trim(m.Arg(0), "${}")
	if other, ok := t.mapOthers(m, op, value); ok {
		if ways, err = t.simple(source, "!~", other); err != nil {
			return nil, err
		}
		t.im.Used(m)
		return ways, nil
	}
	for _, e := range m.Block {
		key := e.Name
		switch {
		case key == "default":
			if holds(e.Arg(0), op, value) {
				return nil, errors.New("the condition holds for all that the map does not name: write rules for what it does before it")
			}
			continue
		case key == "hostnames" || key == "volatile" || key == "include":
			continue
		case !holds(e.Arg(0), op, value):
			continue
		}
		more, err := t.entryWays(m, e)
		if err != nil {
			return nil, err
		}
		ways = append(ways, more...)
	}
	t.im.Used(m)
	if len(ways) == 0 {
		return nil, errors.New("the map has no entry for which it holds")
	}
	return ways, nil
}

// entryWays are the ways in which a map takes one of its entries.
func (t *site) entryWays(m, e *draft.Directive) ([]way, error) {
	op, text := "=", strings.TrimPrefix(e.Name, `\`)
	if expr, is := strings.CutPrefix(e.Name, "~"); is {
		op, text = "~", expr
		if expr, is = strings.CutPrefix(expr, "*"); is {
			op, text = "~*", expr
		}
	}
	ways, err := t.simple(strings.Trim(m.Arg(0), "${}"), op, text)
	for i := range ways {
		ways[i].values = map[string]string{m.Arg(1): e.Arg(0)}
	}
	return ways, err
}

// mapOthers is an expression for all entries of a map, where a condition holds for none of
// them but for every other value.
func (t *site) mapOthers(m *draft.Directive, op, value string) (string, bool) {
	var named []string
	others := false
	for _, e := range m.Block {
		key := e.Name
		switch {
		case key == "default":
			others = holds(e.Arg(0), op, value) && !strings.Contains(e.Arg(0), "$")
		case key == "hostnames" || key == "volatile" || key == "include" || holds(e.Arg(0), op, value):
			return "", false
		case strings.HasPrefix(key, "~*"):
			named = append(named, "(?i:"+key[2:]+")")
		case strings.HasPrefix(key, "~"):
			named = append(named, "(?:"+key[1:]+")")
		default: // strings are compared without their case
			named = append(named, "(?i:^"+regexp.QuoteMeta(strings.TrimPrefix(key, `\`))+"$)")
		}
	}
	return strings.Join(named, "|"), others && len(named) > 0
}

// geo is the block that sets a variable by the client's address.
func (im *importer) geo(name string, http *scope) *draft.Directive {
	for _, d := range http.each("geo") {
		if d.Arg(len(d.Args)-1) == "$"+name && (len(d.Args) == 1 || d.Arg(0) == "$remote_addr") {
			return d
		}
	}
	return nil
}

// geoWays are the networks for which a condition holds.
func (t *site) geoWays(m *draft.Directive, op, value string) ([]way, error) {
	var yes, no []string
	rest := ""
	for _, e := range m.Block {
		switch {
		case e.Name == "default":
			rest = e.Arg(0)
		case holds(e.Arg(0), op, value):
			yes = append(yes, e.Name)
		default:
			no = append(no, "!"+e.Name)
		}
		if _, err := netip.ParsePrefix(e.Name); err != nil && e.Name != "default" {
			if _, err := netip.ParseAddr(e.Name); err != nil {
				return nil, fmt.Errorf("%q is no network", e.Name)
			}
		}
	}
	list := yes
	if holds(rest, op, value) {
		list = no
		if len(yes) > 0 && len(no) > 0 {
			return nil, errors.New("networks within others have another answer: write rules for them in turn")
		}
	}
	if len(list) == 0 {
		return nil, errors.New("it holds for no network")
	}
	t.im.Used(m)
	return []way{{when: plan.Cond{Address: list}}}, nil
}
