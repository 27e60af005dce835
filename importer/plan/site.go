package plan

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"millrace/importer/draft"
)

// Rule is a condition, and what happens where it holds: a redirect, a refusal, another
// answer, another path, or a route.
type Rule struct {
	If   Cond
	Do   *draft.Node // {redirect: …}
	Note string      // above it
}

// Is reports whether the rule's action is of a kind: deny, redirect, respond, rewrite, route.
func (r Rule) Is(kind string) bool { return r.Do.Get(kind) != nil }

// Node is the rule as it is written.
func (r Rule) Node() *draft.Node { return r.Do.On(r.If.Node()).Flow() }

// Site is a server on its way: rules in the order in which the original decides, and the
// routes for what they leave.
type Site struct {
	*Config
	Server *Server
	Rules  []Rule
	Keys   *draft.Node // what holds for the whole site
	Alone  bool        // what the only route says of errors and fields holds for the whole site

	closed []string // why nobody is let in until somebody has looked
	order  []string // of routes
	routes map[string]*draft.Node
	notes  map[string][]string
	names  map[string]bool
}

// NewSite returns the empty site of a server.
func NewSite(c *Config, s *Server) *Site {
	return &Site{Config: c, Server: s, Keys: draft.Map(), closed: slices.Clone(s.Closed), routes: map[string]*draft.Node{}, notes: map[string][]string{}, names: map[string]bool{}}
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
func (t *Site) Route(key string, node *draft.Node, notes ...string) {
	if strings.HasPrefix(key, "@") {
		withoutPrefix(node)
	}
	if t.routes[key] == nil {
		t.order = append(t.order, key)
	}
	t.routes[key], t.notes[key], t.names[key] = node, notes, true
}

// withoutPrefix takes the beginning of paths away by an expression in a route that has a
// name instead of a path.
func withoutPrefix(node *draft.Node) {
	for _, job := range []string{"proxy", "cache"} {
		o := node.Get(job)
		prefix := o.Get("strip_prefix").Plain()
		if prefix == "" {
			continue
		}
		o.Remove("strip_prefix")
		if o.Get("rewrite") == nil {
			list := draft.List().Flow()
			list.Add(draft.Map().Set("path", draft.Verbatim(regexp.QuoteMeta(prefix)+"(.*)")).Set("to", draft.Text("/{1}")).Flow())
			o.Set("rewrite", list)
		}
	}
}

// Routed is the route of a key, nil if there is none.
func (t *Site) Routed(key string) *draft.Node { return t.routes[key] }

// NameOf is the name of an equal route that has one, "" if there is none.
func (t *Site) NameOf(node *draft.Node) string {
	for _, key := range t.order {
		if strings.HasPrefix(key, "@") && t.routes[key].String() == node.String() {
			return key
		}
	}
	return ""
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
	rules := draft.Closed(t.closed)
	for _, r := range t.Rules {
		if r.Note == "" {
			rules.Add(r.Node())
		} else {
			rules.Add(r.Node(), r.Note)
		}
	}
	node.Fill("rules", rules)
	t.Keys.CopyTo(node)
	if len(t.order) == 0 {
		t.Route("/", draft.Denied(404), "nothing else is left to answer")
	}
	slices.SortStableFunc(t.order, func(a, b string) int { // names behind paths
		return strings.Count(b[:1], "/") - strings.Count(a[:1], "/")
	})
	routes := draft.Map()
	for _, key := range t.order {
		routes.Set(key, t.routes[key], t.notes[key]...)
	}
	node.Set("routes", routes)
}

// Hoist writes what all routes have in common once, at the site.
func (t *Site) Hoist() {
	nodes := make([]*draft.Node, 0, len(t.order))
	for _, key := range t.order {
		nodes = append(nodes, t.routes[key])
	}
	for _, key := range []string{"errors", "auth", "access", "rate_limit", "headers"} {
		if len(nodes) == 0 || len(nodes) < 2 && (!t.Alone || key != "errors" && key != "headers") || t.Keys.Get(key) != nil {
			continue
		}
		common := nodes[0].Get(key)
		if common == nil || slices.ContainsFunc(nodes, func(n *draft.Node) bool { return n.Get(key) == nil || n.Get(key).String() != common.String() }) {
			continue
		}
		for _, n := range nodes {
			n.Remove(key)
		}
		t.Keys.Set(key, common)
	}
	t.hoistFields(nodes)
	t.hoistTLS(nodes)
}

// hoistTLS writes fields that all routes have over TLS alone at the site: so they are in
// the answers of rules as well.
func (t *Site) hoistTLS(nodes []*draft.Node) {
	over := func(n *draft.Node) (found string, rule *draft.Node) {
		n.Get("headers").Get("when").Each(func(rule1 *draft.Node, _ []string) {
			if strings.Join(rule1.Keys(), " ") == "protocol set" {
				found, rule = rule1.String(), rule1
			}
		})
		return found, rule
	}
	if len(nodes) < 2 {
		return
	}
	text, rule := over(nodes[0])
	if rule == nil || slices.ContainsFunc(nodes, func(n *draft.Node) bool { other, _ := over(n); return other != text }) {
		return
	}
	for _, n := range nodes {
		headers, rest := n.Get("headers"), draft.List().Flow()
		headers.Get("when").Each(func(r *draft.Node, _ []string) {
			if r.String() != text {
				rest.Add(r)
			}
		})
		headers.Remove("when")
		if headers.Fill("when", rest).Len() == 0 {
			n.Remove("headers")
		}
	}
	site := t.Keys.Child("headers")
	if site.Get("when") == nil {
		site.Set("when", draft.List().Flow())
	}
	site.Get("when").Add(rule)
}

// hoistFields writes header fields that all routes set at the site, where routes have
// others of their own: so they are in the answers of rules as well.
func (t *Site) hoistFields(nodes []*draft.Node) {
	var sets []*draft.Node
	for _, n := range nodes {
		sets = append(sets, n.Get("headers").Get("set"))
	}
	if len(sets) < 2 || slices.Contains(sets, nil) || t.Keys.Get("headers") != nil {
		return
	}
	common := draft.Common(sets...)
	if common == nil {
		return
	}
	for _, n := range nodes {
		headers := n.Get("headers")
		if headers.Get("set").Len() == 0 {
			headers.Remove("set")
		}
		if headers.Len() == 0 {
			n.Remove("headers")
		}
	}
	t.Keys.Set("headers", draft.Map().Set("set", common))
}

// overPlain are the rules for plain HTTP that a server becomes whose names one for TLS
// has, since a site is served over both: its rules, then its routes.
func (t *Site) overPlain(p *Server) (rules []Rule) {
	inner := NewSite(t.Config, p)
	p.Read(inner)
	if inner.same(t) {
		return nil
	}
	hosts := t.narrower(p)
	add := func(r Rule) {
		r.If.Protocol = "http"
		if len(hosts) > 0 && r.If.Host == nil {
			r.If.Host = hosts
		}
		if key := r.Do.Get("route"); key != nil {
			r.Do = To(t.moved(inner, key.Plain()))
		}
		rules = append(rules, r)
	}
	for _, why := range inner.closed {
		add(Rule{Do: draft.Denied(403), Note: draft.RemoveThis + why})
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
		if node := inner.routes[key]; ruleAlone(node) {
			r.Do = draft.Map()
			for _, action := range []string{"redirect", "respond", "deny"} {
				if a := node.Get(action); a != nil {
					r.Do.Set(action, a)
				}
			}
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
		return b.String() + t.Keys.String()
	}
	return len(t.closed)+len(o.closed) == 0 && text(t) == text(o)
}

// To leads to a route.
func To(key string) *draft.Node { return draft.Map().Set("route", draft.Text(key)) }

// ruleAlone reports whether a route can be said by a rule: rules answer without asking
// who may.
func ruleAlone(node *draft.Node) bool {
	guarded := node.Get("access") != nil || node.Get("auth") != nil || node.Get("rate_limit") != nil
	return node.Get("redirect") != nil || node.Get("deny") != nil || node.Get("respond") != nil && !guarded
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
	node, ok := WithoutPath(key, inner.routes[key])
	switch {
	case ok:
	case t.routes[key] == nil: // a folder that is not named like its path keeps that
		t.Route(key, node, "of the block for plain HTTP")
		t.Rules = append([]Rule{{If: Cond{Protocol: "https", Path: key}, Do: draft.Denied(404), Note: "it is for plain HTTP alone"}}, t.Rules...)
		return key
	default:
		node = draft.NotImplemented()
	}
	for _, shared := range []string{"errors", "auth", "access", "rate_limit", "headers"} {
		if v := inner.Keys.Get(shared); v != nil && node.Get(shared) == nil {
			node.Set(shared, v)
		}
	}
	t.Route(name, node, inner.notes[key]...)
	return name
}

// WithoutPath is a route for use under a name, which takes no path away: its folder is the
// one above. Where the folder is not named like the path, it stays as it is, and is none.
func WithoutPath(key string, node *draft.Node) (named *draft.Node, ok bool) {
	named = node.Clone()
	root := named.Get("static").Get("root")
	if root == nil || !strings.HasSuffix(key, "/") || key == "/" {
		return named, true
	}
	dir, is := strings.CutSuffix(root.Plain(), strings.TrimSuffix(key, "/"))
	if is && named.Get("php") == nil {
		named.Get("static").Set("root", draft.Text(cmp.Or(dir, "/")))
	}
	return named, is && named.Get("php") == nil
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
