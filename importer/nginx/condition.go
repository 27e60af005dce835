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
	if len(ways) == 0 {
		t.im.Whole(d, draft.Defaulted, "its condition never holds here")
		return
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

// way is one of the ways in which a condition holds.
type way struct {
	plan.Way
	expr   string            // an expression for the path, whose groups may be used
	values map[string]string // what variables of maps stand for
	partly string            // why it does not hold in all cases
	query  bool              // the last group may end with the query, which a path has not
}

// one is a way that is a condition and nothing else.
func one(c plan.Cond, err error) ([]way, error) { return []way{{Way: plan.Way{Cond: c}}}, err }

// ifBody writes the rules of an if's block.
func (t *site) ifBody(d *draft.Directive, l *location, w way) {
	for _, inner := range d.Block {
		switch inner.Name {
		case "return":
			t.ifReturn(inner, l, w)
			return
		case "rewrite":
			t.rewrite(inner, l, w.Cond)
		case "break":
			t.im.Standard(inner, "rules of a site end where one answers")
		}
	}
}

func (t *site) ifReturn(d *draft.Directive, l *location, w way) {
	c, at := w.Cond, *l
	if w.expr != "" {
		at.kind, at.expr = regexLocation, w.expr
	} else if c.Path == "" && c.Regex == "" {
		c, _ = c.And(l.match()) // nothing else of a location is a condition
	}
	copied := *d
	copied.Args = slices.Clone(d.Args)
	for i, g := range w.Groups {
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
	case !refusal(d).None():
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
			if r := t.proxy(at, inner); r != nil {
				t.routeOptions(at, r)
				t.route(at, r)
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
	return t.simple(name, op, value)
}

// simple is a condition on a variable of the request.
func (t *site) simple(name, op, value string) ([]way, error) {
	c, err := comparison(op, value)
	if err != nil {
		return nil, err
	}
	several := func(list []plan.Way) (ways []way, err error) {
		for _, w := range list {
			ways = append(ways, way{Way: w})
		}
		return ways, nil
	}
	switch name {
	case "scheme":
		return several(c.Protocol("https", "http"))
	case "https":
		return several(c.Protocol("on", ""))
	case "host", "http_host":
		return several(t.Hosts(c))
	case "request_method":
		return one(c.Methods())
	case "remote_addr":
		return one(c.Addresses())
	case "invalid_referer":
		return t.invalidReferer()
	case "uri", "request_uri", "document_uri":
		return pathWays(c, name == "request_uri")
	}
	switch kind, field, _ := strings.Cut(name, "_"); {
	case field == "":
	case kind == "http":
		return one(plan.Header(headerName(field), c.Value()), nil)
	case kind == "arg":
		return one(plan.Cond{Query: map[string]string{field: c.Value()}}, nil)
	case kind == "cookie":
		return one(plan.Cond{Cookie: map[string]string{field: c.Value()}}, nil)
	}
	return nil, fmt.Errorf("there is no condition on $%s", name)
}

// headerName is a field as its variable names it: user_agent.
func headerName(name string) string {
	return textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
}

// comparison reads the second and third word of a condition.
func comparison(op, value string) (c plan.Comparison, err error) {
	op, c.Not = strings.CutPrefix(op, "!")
	switch op {
	case "":
		c.Expr = "."
	case "=":
		c.Text = value
	case "~", "~*":
		c.Expr, err = plan.Expression(value, op == "~*")
	default:
		err = fmt.Errorf("%q is no comparison", op)
	}
	return c, err
}

// pathWays are the ways for the path, or for the path and the query (raw).
func pathWays(c plan.Comparison, raw bool) ([]way, error) {
	if c.Expr == "" {
		path, query, asked := strings.Cut(c.Text, "?")
		if !strings.HasPrefix(path, "/") || strings.Contains(path, "*") || asked && c.Not {
			return nil, errors.New("write the path and the query as path and query of a rule")
		}
		if !asked {
			return one(c.Paths(), nil)
		}
		of := plan.Exactly(path)
		var err error
		of.Query, err = parametersOf(query)
		return one(of, err)
	}
	for _, end := range []string{`(\?|$)`, `(?:\?|$)`, `(\?.*)?$`, `(?:\?.*)?$`} {
		if rest, is := strings.CutSuffix(c.Expr, end); is {
			c.Expr = rest + "$" // a path has no query here
		}
	}
	if strings.Contains(c.Expr, `\?`) || strings.Contains(c.Expr, "=") {
		return nil, errors.New("the expression is about the query, too: write path or regex, and query")
	}
	w := way{Way: plan.Way{Cond: c.Paths()}}
	if bare := strings.TrimPrefix(c.Expr, "(?i)"); raw && (!strings.HasPrefix(bare, "^") || regexp.MustCompile(`\.[*+]\)?[^)$]`).MatchString(bare)) {
		w.partly = "it looks at the path alone: what it looks for in queries passes. Write a rule with query for those"
	}
	if !c.Not {
		w.expr, w.query = c.Expr, raw && regexp.MustCompile(`\.[*+]\)?\$?$`).MatchString(c.Expr)
	}
	return []way{w}, nil
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

// mapWays are the ways in which a condition on the value of a map holds: for some of its
// entries, or for what none of them is for.
func (t *site) mapWays(m *draft.Directive, op, value string) (ways []way, err error) {
	entries, rest := entriesOf(m)
	yes := slices.DeleteFunc(slices.Clone(entries), func(e *draft.Directive) bool { return !holds(e.Arg(0), op, value) })
	special := slices.ContainsFunc(m.Block, func(e *draft.Directive) bool { return isOption(e.Name) })
	switch others := holds(rest, op, value); {
	case len(m.Block) > mostEntries:
		return nil, fmt.Errorf("the map has more than %d entries", mostEntries)
	case others && (len(yes) > 0 || len(entries) == 0 || special || strings.Contains(rest, "$")):
		return nil, errors.New("the condition holds for all that the map does not name: write rules for what it does before it")
	case others:
		var named []string
		for _, e := range entries {
			switch kind, text := keyOf(e); kind {
			case "=": // without regard to case
				named = append(named, "(?i:^"+regexp.QuoteMeta(text)+"$)")
			case "~*":
				named = append(named, "(?i:"+text+")")
			default:
				named = append(named, "(?:"+text+")")
			}
		}
		ways, err = t.simple(strings.Trim(m.Arg(0), "${}"), "!~", strings.Join(named, "|"))
	case len(yes) == 0:
		return nil, errors.New("the map has no entry for which it holds")
	}
	for _, e := range yes {
		more, err := t.entryWays(m, e)
		if err != nil {
			return nil, err
		}
		ways = append(ways, more...)
	}
	t.im.Used(m)
	return ways, err
}

// keyOf is how an entry of a map compares, and with what.
func keyOf(e *draft.Directive) (op, text string) {
	if expr, is := strings.CutPrefix(e.Name, "~*"); is {
		return "~*", expr
	}
	if expr, is := strings.CutPrefix(e.Name, "~"); is {
		return "~", expr
	}
	return "=", strings.TrimPrefix(e.Name, `\`)
}

// entryWays are the ways in which a map takes one of its entries.
func (t *site) entryWays(m, e *draft.Directive) ([]way, error) {
	op, text := keyOf(e)
	ways, err := t.simple(strings.Trim(m.Arg(0), "${}"), op, text)
	for i := range ways {
		ways[i].values = map[string]string{m.Arg(1): e.Arg(0)}
	}
	return ways, err
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
	return one(plan.Cond{Address: list}, nil)
}
