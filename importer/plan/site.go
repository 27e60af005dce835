package plan

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/internal/route/headers"
)

// Rule is a condition, and what happens where it holds.
type Rule struct {
	If   Cond
	Do   Action
	Note string // above it

	Outside bool // what the server itself leads to its paths comes in
}

// Node is the rule as it is written.
func (r Rule) Node() *draft.Node { return written(r.Do).On(r.If.Node()).Flow() }

// Site is a server on its way: rules in the order in which the original decides, and the
// routes for what they leave.
type Site struct {
	*Config
	Shared // what holds for the whole site
	Server *Server
	Rules  []Rule
	Alone  bool // what the only route says of errors and fields holds for the whole site

	closed []string // why nobody is let in until somebody has looked
	order  []string // of routes
	routes map[string]*Route
	notes  map[string][]string
	names  map[string]bool
}

// NewSite returns the empty site of a server.
func NewSite(c *Config, s *Server) *Site {
	return &Site{Config: c, Server: s, closed: slices.Clone(s.Closed), routes: map[string]*Route{}, notes: map[string][]string{}, names: map[string]bool{}}
}

// Close lets nobody in until somebody has looked at a line that may have kept clients out
// and cannot be translated; do says what is to be done.
func (t *Site) Close(d *draft.Directive, do string) {
	t.Leave(d, do+". The site answers 403 until its first rule is removed")
	t.closed = draft.AppendNew(t.closed, d.At()+": "+d.String())
}

// Add appends a rule.
func (t *Site) Add(r ...Rule) { t.Rules = append(t.Rules, r...) }

// Route enters a route, instead of one with the same key.
func (t *Site) Route(key string, r *Route, notes ...string) {
	if strings.HasPrefix(key, "@") {
		r.withoutPrefix()
	}
	if t.routes[key] == nil {
		t.order = append(t.order, key)
	}
	t.routes[key], t.notes[key], t.names[key] = r, notes, true
}

// Routed is the route of a key, nil if there is none.
func (t *Site) Routed(key string) *Route { return t.routes[key] }

// Named is the name of a route that is reached by rules alone: of one that is there, if it is
// equal, or of a new one after a text, or after its kind.
func (t *Site) Named(r *Route, text, kind, note string) string {
	r.withoutPrefix()
	for _, key := range t.order {
		if strings.HasPrefix(key, "@") && t.routes[key].Equal(r) {
			return key
		}
	}
	name := t.FreeName(text, kind)
	t.Route(name, r, note)
	return name
}

// FreeName is a name for a route that no other has: "@" and letters of a text, or kind
// where it has none.
func (t *Site) FreeName(text, kind string) string {
	base := "@" + cmp.Or(strings.Trim(regexp.MustCompile(`[^A-Za-z0-9._-]+`).ReplaceAllString(text, "-"), "-."), kind)
	name := base
	for n := 2; t.names[name]; n++ {
		name = fmt.Sprint(base, n)
	}
	t.names[name] = true
	return name
}

// write writes rules and routes.
func (t *Site) write(node *draft.Node) {
	t.Hoist()
	rules := Closed(t.closed)
	for _, r := range t.Rules {
		if r.Note == "" {
			rules.Add(r.Node())
		} else {
			rules.Add(r.Node(), r.Note)
		}
	}
	node.Fill("rules", rules)
	written(t.Shared).CopyTo(node)
	if len(t.order) == 0 {
		t.Route("/", &Route{Action: Deny(404)}, "nothing else is left to answer")
	}
	slices.SortStableFunc(t.order, func(a, b string) int { // names behind paths
		return strings.Count(b[:1], "/") - strings.Count(a[:1], "/")
	})
	routes := draft.Map()
	for _, key := range t.order {
		route := written(*t.routes[key])
		if !t.routes[key].None() {
			route.Flow()
		}
		routes.Set(key, route, t.notes[key]...)
	}
	node.Set("routes", routes)
}

// RemoveThis stands above a rule that closes a site.
const RemoveThis = "REMOVE THIS RULE when you have looked at: "

// Closed are rules that let nobody in until somebody has looked at what may have kept
// clients out.
func Closed(reasons []string) *draft.Node {
	rules := draft.List()
	for _, why := range reasons {
		rules.Add(Rule{Do: Deny(403)}.Node(), RemoveThis+why)
	}
	return rules
}

// Hoist writes what all routes have in common once, at the site.
func (t *Site) Hoist() {
	if len(t.order) == 0 {
		return
	}
	first := t.routes[t.order[0]]
	all := func(has func(*Route) bool) bool {
		return !slices.ContainsFunc(t.order, func(key string) bool { return !has(t.routes[key]) })
	}
	for i, own := range t.Shared.fields() {
		alone := t.Alone && (own.Type() == reflect.TypeFor[Pages]() || own.Type() == reflect.TypeFor[Fields]())
		common := first.Shared.fields()[i].Interface()
		if own.IsZero() && (len(t.order) > 1 || alone) && all(func(r *Route) bool { return reflect.DeepEqual(r.Shared.fields()[i].Interface(), common) }) {
			own.Set(reflect.ValueOf(common))
			for _, key := range t.order {
				t.routes[key].Shared.fields()[i].SetZero()
			}
		}
	}
	if len(t.order) > 1 {
		t.hoistFields(all)
	}
}

// hoistFields writes header fields that all routes set for every answer at the site, where
// routes have others of their own: so they are in the answers of rules as well.
func (t *Site) hoistFields(all func(has func(*Route) bool) bool) {
	var common Fields
	for _, rule := range t.routes[t.order[0]].Headers.list {
		if rule.op == headers.Set && len(rule.of.Status)+len(rule.of.Type) == 0 && !t.Headers.Has(rule.name) && all(func(r *Route) bool { return slices.ContainsFunc(r.Headers.list, rule.equal) }) {
			common.add(rule)
		}
	}
	for _, key := range t.order {
		t.routes[key].Headers = t.routes[key].Headers.without(common)
	}
	t.Headers.Join(common)
}

// overPlain are the rules for plain HTTP that a server becomes whose names one for TLS
// has, since a site is served over both: its rules, then its routes.
func (t *Site) overPlain(p *Server) (rules []Rule) {
	inner := NewSite(t.Config, p)
	p.Read(inner)
	inner.closeEnds()
	if inner.same(t) {
		return nil
	}
	hosts := t.narrower(p)
	add := func(r Rule) {
		r.If.Protocol = "http"
		if len(hosts) > 0 && r.If.Host == nil {
			r.If.Host = hosts
		}
		if r.Do.Route != "" {
			r.Do = To(t.moved(inner, r.Do.Route))
		}
		rules = append(rules, r)
	}
	for _, why := range inner.closed {
		add(Rule{Do: Deny(403), Note: RemoveThis + why})
	}
	for _, r := range inner.Rules {
		if r.If.Protocol != "https" {
			add(r)
		}
	}
	for _, key := range inner.searched() {
		r := Rule{Do: To(key), Note: strings.Join(inner.notes[key], " ")}
		if key != "/" {
			r.If.Path = key
		}
		if route := inner.routes[key]; !route.None() && (route.Respond == Response{} || !route.Guarded()) {
			r.Do = route.Action // rules answer without asking who may
		}
		add(r)
	}
	return rules
}

// same reports whether two sites answer alike.
func (t *Site) same(o *Site) bool {
	text := func(t *Site) string {
		var b strings.Builder
		for _, r := range t.Rules {
			b.WriteString(r.Node().String())
		}
		for _, key := range t.order {
			b.WriteString(key + t.routes[key].String())
		}
		return b.String() + written(t.Shared).String()
	}
	return len(t.closed)+len(o.closed) == 0 && text(t) == text(o)
}

// narrower are the hosts of a server for plain HTTP where the site has more.
func (t *Site) narrower(p *Server) []string {
	other := func(n string) bool { return !slices.Contains(p.Names, n) }
	if len(p.Names) == 0 || !slices.ContainsFunc(t.Server.Names, other) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(p.Names), func(n string) bool { return !slices.Contains(t.Server.Names, n) })
}

// moved enters a route of a server for plain HTTP under a name, and returns it.
// A name takes no path away, so a folder is the one above.
func (t *Site) moved(inner *Site, key string) string {
	if inner.routes[key] == nil {
		return key
	}
	name := "@plain"
	if key != "/" {
		name += "-" + strings.Trim(strings.ReplaceAll(strings.Trim(key, "/*@"), "/", "-"), "-")
	}
	if t.routes[name] != nil {
		return name
	}
	route, ok := WithoutPath(key, inner.routes[key])
	switch {
	case ok:
	case t.routes[key] == nil: // a folder that is not named like its path keeps that
		t.Route(key, route, "of the block for plain HTTP")
		t.Rules = append([]Rule{{If: Cond{Protocol: "https", Path: key}, Do: Deny(404), Note: "it is for plain HTTP alone"}}, t.Rules...)
		return key
	default:
		route = &Route{Action: NotImplemented()}
	}
	route.fill(&inner.Shared)
	t.Route(name, route, inner.notes[key]...)
	return name
}

// rank is when the path is compared with a key: paths first, then patterns, then folders.
func rank(key string) int {
	switch {
	case strings.Contains(key, "*"):
		return 1
	case strings.HasSuffix(key, "/"):
		return 2
	}
	return 0
}

// Before reports whether the path is compared with a key before another.
func Before(key, other string) bool {
	if rank(key) != rank(other) {
		return rank(key) < rank(other)
	}
	return len(key) > len(other)
}

// searched are the keys of routes in the order in which the path is compared with them.
func (t *Site) searched() []string {
	keys := slices.DeleteFunc(slices.Clone(t.order), func(k string) bool { return strings.HasPrefix(k, "@") })
	slices.SortStableFunc(keys, func(a, b string) int {
		switch {
		case rank(a)+rank(b) == 0:
			return 0
		case Before(a, b):
			return -1
		case Before(b, a):
			return 1
		}
		return 0
	})
	return keys
}
