package nginx

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// site is a server block that is being translated.
type site struct {
	*plan.Site
	im     *importer
	server *server

	first     []rule      // of the server block itself
	last      []plan.Rule // behind all others
	locations []*location
	fallback  string    // what answers for files that are not there, of an if
	php       *location // the expression that hands PHP to php-fpm
}

// rule is one rule of a location or of the server block.
type rule struct {
	plan.Rule
	line *draft.Directive // of a rewrite
	late bool             // a rewrite behind which nginx goes on with the location
	then bool             // it is for the path that the rule before it has made
}

// location is one location block, or the server block itself for paths without one.
type location struct {
	*scope
	block *draft.Directive // nil: the server block
	kind  locationKind
	path  string // of exact and prefix
	expr  string // of expressions, as RE2
	not   string // an expression for paths that it is not for
	wider bool   // the expression is for more paths than in nginx
	key   string // of its route
	outer *location

	rules []rule      // before its route
	apart []plan.Rule // before all: for paths that are none of its own
	job   *plan.Route // what answers; nil: nothing, all that is said is in rules
	whole bool        // its last rule answers all that it is for

	moved    *draft.Directive // a rewrite to a path that this location answers for
	first    bool             // a rule leads to its route
	fallback string           // what answers for files that are not there, of an if

	mapped map[string]string // the values that variables of maps have in its fields
	varies []string          // the maps that have a say in them

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

// site translates a server block.
func (im *importer) site(s *server, to *plan.Site) {
	t := &site{Site: to, im: im, server: s}
	t.onlyNamed()
	done := t.serverRules()
	if !done {
		t.findLocations()
	}
	for _, r := range t.first {
		t.Add(r.Rule)
	}
	if !done {
		t.ordered()
	}
	t.Add(t.last...)
	t.withLineFeeds()
	t.withoutHeaders()
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
	for _, l := range t.locations {
		t.varied(l)
	}
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
		if l.wider {
			t.im.Partly(d, "it is closed for more paths than in nginx: what the expression looks for before and behind is left out")
		}
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
		positive, except, _ := plan.Excepting(pattern)
		expr, err := plan.Expression(positive, modifier == "~*")
		if err == nil && except != "" {
			l.not, err = plan.Expression(except, modifier == "~*")
		}
		if err != nil && l.closesAll() {
			expr, err = plan.Expression(plan.Wider(pattern), modifier == "~*")
			l.not, l.wider = "", true
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
		t.Close(l.block, fmt.Sprintf("write this location as a rule without looking ahead or behind: %v", err))
		return
	}
	t.im.Leave(l.block, fmt.Sprintf("write this location as rules: %v", err))
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
		if l.kind == namedLocation {
			l.key = l.path
			t.FreeName(l.path, "named") // nobody else's any more
		}
	}
	taken := map[string]bool{}
	for _, l := range t.locations {
		switch {
		case l.kind == namedLocation, l.kind == regexLocation: // it is named when there is a route
			continue
		case l.kind == exactLocation && (strings.HasSuffix(l.path, "/") || l.odd()): // a key like that is for a folder: a rule leads to a name
			l.key = t.FreeName(l.path, "root")
		case l.kind == exactLocation:
			l.key = l.path
		case l.odd() || l.inExpression():
			l.key, l.first = t.FreeName(l.path, "root"), true
		default:
			l.key = l.path
			if l.loose() {
				l.key += "**"
			} else if !strings.HasSuffix(l.path, "/") {
				l.key += "/"
			}
			// Stars go before slashes, so a rule leads to what is longer.
			l.first = slices.ContainsFunc(open, func(p string) bool { return strings.HasPrefix(l.path, p) && len(l.path) > len(p) })
		}
		if taken[l.key] {
			l.key = t.FreeName(l.path, "root")
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

// closesAll reports whether a location lets nobody in.
func (l *location) closesAll() bool {
	d := l.own("return")
	return l.own("internal") != nil || l.deniesAll() || d != nil && refuses(d)
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
		return "php"
	case l.own("proxy_pass") != nil:
		return "app"
	}
	return "files"
}

// match is the condition that a path is one of a location's.
func (l *location) match() plan.Cond {
	switch {
	case l.kind == regexLocation && l.not != "":
		return plan.Cond{Regex: l.expr, Except: []string{"~" + l.not}}
	case l.kind == regexLocation:
		return plan.Cond{Regex: l.expr}
	case l.kind == exactLocation:
		return plan.Exactly(l.path)
	case l.path == "/":
		return plan.Cond{}
	case l.odd():
		return plan.Cond{Regex: "^" + regexp.QuoteMeta(l.path)}
	case l.loose() || !strings.HasSuffix(l.path, "/"):
		return plan.Cond{Path: l.path + "**"}
	}
	return plan.Cond{Path: l.path}
}

// add appends a rule to a location's.
func (l *location) add(c plan.Cond, do plan.Action, note string) {
	l.rules = append(l.rules, rule{Rule: plan.Rule{If: c, Do: do, Note: note}})
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

// withoutHeaders reports header fields of the server block that the answers of rules lack:
// those have only the fields of the whole site.
func (t *site) withoutHeaders() {
	t.Hoist()
	if !slices.ContainsFunc(t.Rules, func(r plan.Rule) bool { return r.Do.Answers() }) {
		return
	}
	for _, d := range t.server.all("add_header") {
		if !t.Headers.Has(d.Arg(0)) {
			t.im.Partly(d, "it is in the answers of routes; those of rules (refusals, redirects) have the headers of the site alone: write it into headers of the site if they must have it")
		}
	}
}

// route adds the route of a location.
func (t *site) route(l *location, r *plan.Route, notes ...string) {
	l.job = r
	if l.key == "" {
		l.key = t.FreeName(t.name(l), "files")
	}
	if l.block != nil {
		notes = append([]string{l.block.At() + ": " + l.block.String()}, notes...)
	}
	t.Route(l.key, r, notes...)
}
