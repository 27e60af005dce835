package nginx

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"millrace/importer/draft"
)

// site is a server block that is being translated.
type site struct {
	im     *importer
	server *server
	node   *draft.Node

	first     []ruleDraft // of the server block itself
	locations []*location
	routes    map[string]*draft.Node
	order     []string
	comments  map[string][]string
	fallback  string    // what answers for files that are not there, of an if
	php       *location // the expression that hands PHP to php-fpm
}

// ruleDraft is a rule, with the comment above it.
type ruleDraft struct {
	node    *draft.Node
	comment string
	late    bool // a rewrite behind which nginx goes on with the location
}

// location is one location block, or the server block itself for paths without one.
type location struct {
	*scope
	block *draft.Directive // nil: the server block
	kind  locationKind
	path  string // of exact and prefix
	expr  string // of expressions, as RE2
	not   string // an expression for paths that it is not for
	key   string // of its route
	outer *location

	rules []ruleDraft // before its route
	apart []ruleDraft // before all: for paths that are none of its own
	node  *draft.Node // what answers; nil: nothing, all that is said is in rules
	whole bool        // its last rule answers all that it is for

	moved    *draft.Directive // a rewrite to a path that this location answers for
	first    bool             // a rule leads to its route
	fallback string           // what answers for files that are not there, of an if

	php       *location // the expression within it that runs scripts, where it has an alias
	authURL   string    // the server that is asked whether a client may come in
	copies    []string  // fields of its answer for the upstream
	userField string    // the field that tells the upstream who has signed in
}

type locationKind int

const (
	prefixLocation locationKind = iota
	caretLocation               // ^~
	exactLocation
	regexLocation
	namedLocation
)

// site translates a server block into node.
func (im *importer) site(s *server, node *draft.Node) {
	t := &site{im: im, server: s, node: node, routes: map[string]*draft.Node{}, comments: map[string][]string{}}
	done := t.serverRules()
	if !done {
		t.findLocations()
	}
	t.write(done)
}

// findLocations translates the locations of the server block.
func (t *site) findLocations() {
	t.collect(t.server.scope, nil)
	t.root()
	t.prune()
	t.keys()
	for _, l := range t.locations {
		t.location(l)
	}
	t.mergePHP()
	t.aliasPHP()
	t.guardedPHP()
}

// collect lists the locations of a block, those within others included.
func (t *site) collect(sc *scope, outer *location) {
	for _, d := range sc.list {
		if d.Name != "location" || !d.Opens {
			continue
		}
		l := &location{scope: &scope{parent: sc, list: d.Block}, block: d, outer: outer}
		if !t.kind(l) {
			continue
		}
		t.im.Used(d)
		t.collect(l.scope, l)
		t.locations = append(t.locations, l)
	}
}

// kind reads which paths a location matches.
func (t *site) kind(l *location) bool {
	d := l.block
	modifier, pattern := "", d.Arg(0)
	if len(d.Args) > 1 {
		modifier, pattern = d.Arg(0), d.Arg(1)
	} else {
		for _, m := range []string{"=", "^~", "~*", "~"} { // nginx takes them without a space
			if rest, ok := strings.CutPrefix(pattern, m); ok {
				modifier, pattern = m, rest
				break
			}
		}
	}
	switch modifier {
	case "~", "~*":
		l.kind = regexLocation
		positive, except, _ := excepting(pattern)
		expr, err := expression(positive, modifier == "~*")
		if err == nil && except != "" {
			l.not, err = expression(except, modifier == "~*")
		}
		if err != nil {
			t.withoutExpression(l, pattern, err)
			return false
		}
		l.expr = expr
		return true
	case "=":
		l.kind = exactLocation
	case "^~":
		l.kind = caretLocation
	}
	if strings.HasPrefix(pattern, "@") {
		l.kind, l.path = namedLocation, pattern
		return true
	}
	l.path = pattern
	if !strings.HasPrefix(pattern, "/") {
		t.im.unreachable(d) // no path is like that
		return false
	}
	return true
}

// withoutExpression is for a location whose expression RE2 does not know.
func (t *site) withoutExpression(l *location, pattern string, err error) {
	if t.keepsOut(l) {
		t.close(l.block, fmt.Sprintf("write this location as a rule without looking ahead or behind: %v. The site answers 403 until its first rule is removed", err))
		return
	}
	t.im.Leave(l.block, fmt.Sprintf("write this location as rules: %v", err))
}

// close lets nobody in until somebody has looked at a line that kept clients out.
func (t *site) close(d *draft.Directive, do string) {
	t.im.Leave(d, do)
	t.server.closed = draft.AppendNew(t.server.closed, d.At()+": "+d.String())
}

// root adds a location for / where a server block with files has none.
func (t *site) root() {
	for _, l := range t.locations {
		if l.path == "/" && l.isPrefix() && l.outer == nil {
			return
		}
	}
	if t.server.last("root") == nil && t.server.own("try_files") == nil {
		return
	}
	t.locations = append(t.locations, &location{scope: &scope{parent: t.server.scope}, path: "/"})
}

// keys gives each location the key of its route. Prefixes without a slash at
// the end, which cover more than a folder, are written with stars.
func (t *site) keys() {
	var open []string
	for _, l := range t.locations {
		if l.loose() {
			open = append(open, l.path)
		}
	}
	taken := map[string]bool{}
	for _, l := range t.locations {
		switch l.kind {
		case exactLocation, namedLocation:
			l.key = l.path
			if strings.HasSuffix(l.path, "/") || l.odd() { // a key like that is for a folder: a rule leads to a name
				l.key = "@" + cmp.Or(strings.ReplaceAll(strings.Trim(l.path, "/"), "/", "-"), "root")
			}
		case regexLocation:
			continue // named when there is a route
		case prefixLocation, caretLocation:
			l.key = l.path
			// Stars go before slashes, so a rule leads to what is longer.
			l.first = slices.ContainsFunc(open, func(p string) bool { return strings.HasPrefix(l.path, p) && len(l.path) > len(p) })
			switch {
			case l.odd() || l.inExpression():
				l.key, l.first = "@"+cmp.Or(strings.Trim(regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(l.path, "-"), "-"), "root"), true
			case l.loose():
				l.key = l.path + "**"
			case !strings.HasSuffix(l.path, "/"):
				l.key = l.path + "/"
			}
		}
		for base, n := l.key, 2; taken[l.key]; n++ {
			l.key = fmt.Sprintf("%s%d", base, n)
			if !strings.HasPrefix(base, "@") {
				l.key = "@" + strings.Trim(base, "/*") + fmt.Sprint(n)
			}
		}
		taken[l.key] = true
	}
}

// loose reports whether a prefix has no slash at its end: /api also covers /apix.
func (l *location) loose() bool {
	if !l.isPrefix() || strings.HasSuffix(l.path, "/") {
		return false
	}
	return l.own("alias") == nil && !changesPath(l.own("proxy_pass")) || l.internal() != nil || l.own("return") != nil || l.deniesAll()
}

// deniesAll reports whether the first line about addresses keeps everybody out, and no
// password lets anybody in.
func (l *location) deniesAll() bool {
	list, satisfy := l.all("allow", "deny"), l.last("satisfy")
	return len(list) > 0 && list[0].Name == "deny" && list[0].Arg(0) == "all" && (satisfy == nil || satisfy.Arg(0) != "any")
}

// odd reports whether a path cannot be the key of a route.
func (l *location) odd() bool { return strings.ContainsAny(l.path, "*?#") }

// inExpression reports whether a location is within one with an expression: its route is
// reached by a rule alone.
func (l *location) inExpression() bool {
	for at := l.outer; at != nil; at = at.outer {
		if at.kind == regexLocation {
			return true
		}
	}
	return false
}

// changesPath reports whether a proxy_pass puts a path in the place of the location's.
func changesPath(d *draft.Directive) bool {
	if d == nil {
		return false
	}
	_, rest, _ := strings.Cut(d.Arg(0), "://")
	return strings.Contains(rest, "/") && !strings.HasPrefix(rest, "unix:") || strings.Count(rest, ":") > 1
}

// name is the name of a route that an expression leads to.
func (t *site) name(l *location) string {
	switch {
	case l.own("fastcgi_pass") != nil:
		return "@php"
	case l.own("proxy_pass") != nil:
		return "@app"
	}
	return "@files"
}

// match are the keys of a rule that is for a location.
func (l *location) match() *draft.Node {
	n := draft.Map()
	switch {
	case l.kind == regexLocation:
		n.Set("regex", draft.Verbatim(l.expr))
		if l.not != "" {
			exceptAlso(n, l.not)
		}
	case l.kind == exactLocation:
		exactly(n, l.path)
	case l.path == "/":
	case l.odd():
		n.Set("regex", draft.Verbatim("^"+regexp.QuoteMeta(l.path)))
	case l.loose() || !strings.HasSuffix(l.path, "/"):
		n.Set("path", draft.Text(l.path+"**"))
	default:
		n.Set("path", draft.Text(l.path))
	}
	return n
}

// exactly restricts a rule to one path: one that ends in a slash would also match what is
// below it.
func exactly(n *draft.Node, path string) *draft.Node {
	if strings.HasSuffix(path, "/") || strings.ContainsAny(path, "*?#") {
		return n.Set("regex", draft.Verbatim("^"+regexp.QuoteMeta(path)+"$"))
	}
	return n.Set("path", draft.Text(path))
}

// covers reports whether nginx may choose a location for a path.
func (l *location) covers(path string) bool {
	for at := l.outer; at != nil; at = at.outer {
		if !at.matches(path) {
			return false
		}
	}
	return l.matches(path)
}

// matches reports whether a location matches a path, whatever block it is in.
func (l *location) matches(path string) bool {
	switch l.kind {
	case regexLocation:
		return matches(l.expr, path) && (l.not == "" || !matches(l.not, path))
	case exactLocation:
		return l.path == path
	case namedLocation:
		return false
	}
	return strings.HasPrefix(path, l.path)
}

// matches reports whether an expression matches a path.
func matches(expr, path string) bool {
	re, err := regexp.Compile(expr)
	return err == nil && re.MatchString(path)
}

// write puts rules and routes in the order in which nginx would look.
func (t *site) write(done bool) {
	rules := draft.Closed(t.server.closed)
	for _, r := range append(t.plainRules(), t.first...) {
		add(rules, r)
	}
	if !done {
		t.ordered(rules)
	}
	rules = t.withLineFeeds(rules)
	if rules.Len() > 0 {
		t.node.Set("rules", rules)
	}
	t.hoist()
	t.withoutHeaders(rules)
	routes := draft.Map()
	sorted := slices.SortedFunc(maps.Keys(t.routes), func(a, b string) int { return slices.Index(t.order, a) - slices.Index(t.order, b) })
	for _, key := range sorted {
		routes.Set(key, t.routes[key], t.comments[key]...)
	}
	if routes.Len() == 0 {
		routes.Set("/", draft.Map().Set("deny", draft.Map().Set("status", draft.Number(404)).Flow()).Flow(), "nothing else is left to answer")
	}
	t.node.Set("routes", routes)
}

// withoutHeaders reports header fields of the server block that the answers of rules lack:
// those have only the fields of the whole site.
func (t *site) withoutHeaders(rules *draft.Node) {
	everywhere := ""
	if headers := t.node.Get("headers"); headers != nil {
		everywhere = headers.String()
	}
	answers := false
	rules.Each(func(n *draft.Node, _ []string) {
		answers = answers || n.Get("deny") != nil || n.Get("respond") != nil || n.Get("redirect") != nil
	})
	if !answers {
		return
	}
	for _, d := range t.server.all("add_header") {
		if strings.Contains(everywhere, d.Arg(0)+":") {
			continue
		}
		t.im.Partly(d, "it is in the answers of routes; those of rules (refusals, redirects) have the headers of the site alone: write it into headers of the site if they must have it")
	}
}

func add(rules *draft.Node, r ruleDraft) {
	if r.comment == "" {
		rules.Add(r.node.Flow())
		return
	}
	rules.Add(r.node.Flow(), r.comment)
}

// route adds the route of a location.
func (t *site) route(l *location, node *draft.Node, comment ...string) {
	l.node = node
	if l.key == "" {
		base := t.name(l)
		l.key = base
		for n := 2; t.routes[l.key] != nil; n++ {
			l.key = fmt.Sprintf("%s%d", base, n)
		}
	}
	if _, ok := t.routes[l.key]; !ok {
		t.order = append(t.order, l.key)
	}
	t.routes[l.key] = node
	if l.block != nil {
		comment = append([]string{l.block.At() + ": " + l.block.String()}, comment...)
	}
	t.comments[l.key] = comment
}

// hoist writes what all routes have in common once, at the site.
func (t *site) hoist() {
	for _, key := range []string{"errors", "auth", "access", "rate_limit", "headers"} {
		var common *draft.Node
		for i, name := range t.order {
			v := t.routes[name].Get(key)
			if v == nil || i > 0 && v.String() != common.String() {
				common = nil
				break
			}
			common = v
		}
		if common == nil || len(t.order) < 2 {
			continue
		}
		for _, name := range t.order {
			t.routes[name].Remove(key)
		}
		t.node.Set(key, common)
	}
	t.hoistFields()
}

// hoistFields writes header fields that all routes set at the site, where routes have
// others of their own: so they are in the answers of rules as well.
func (t *site) hoistFields() {
	var sets []*draft.Node
	for _, name := range t.order {
		sets = append(sets, t.routes[name].Get("headers").Get("set"))
	}
	if len(sets) < 2 || slices.Contains(sets, nil) {
		return
	}
	common := draft.Common(sets...)
	if common == nil {
		return
	}
	for _, name := range t.order {
		headers := t.routes[name].Get("headers")
		if headers.Get("set").Len() == 0 {
			headers.Remove("set")
		}
		if headers.Len() == 0 {
			t.routes[name].Remove("headers")
		}
	}
	t.node.Set("headers", draft.Map().Set("set", common))
}
