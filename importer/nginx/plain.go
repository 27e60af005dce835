package nginx

import (
	"cmp"
	"slices"
	"strings"

	"millrace/importer/draft"
)

// plainRules translates the blocks for plain HTTP of the same names into rules for http,
// since a site is served over both.
func (t *site) plainRules() (rules []ruleDraft) {
	blocks := t.im.plainOf(t.server)
	for _, p := range blocks {
		rules = append(rules, t.plainBlock(p)...)
	}
	s := t.server
	if rest := t.im.plainDefault(); len(blocks) == 0 && !s.onlyPlain() && len(s.plain) == 0 && rest != nil {
		return t.plainBlock(rest) // nginx gives hosts without a block to that
	}
	if len(blocks) == 0 && !s.onlyPlain() && len(s.plain) == 0 && slices.ContainsFunc(t.im.servers, func(o *server) bool { return len(o.plain) > 0 }) {
		to := draft.Map().Set("to", draft.Text("https://{host}{uri}")).Flow()
		n := draft.Map().Set("protocol", draft.Text("http")).Set("redirect", to)
		rules = append(rules, ruleDraft{node: n, comment: "nginx served these hosts over TLS alone"})
	}
	return rules
}

// plainDefault is the block for all other hosts over plain HTTP, if it only redirects or
// refuses.
func (im *importer) plainDefault() *server {
	for _, s := range im.servers {
		if s.onlyPlain() && !s.local && s.any && s.own("return") != nil {
			return s
		}
	}
	return nil
}

// plainBlock translates one such block: its rules, then its routes as rules.
func (t *site) plainBlock(p *server) (rules []ruleDraft) {
	inner := &site{im: t.im, server: p, node: draft.Map(), routes: map[string]*draft.Node{}, comments: map[string][]string{}}
	done := inner.serverRules()
	if !done {
		inner.findLocations()
	}
	list := draft.List()
	for _, r := range inner.first {
		add(list, r)
	}
	if !done {
		inner.ordered(list)
	}
	hosts := t.narrower(p)
	list.Each(func(n *draft.Node, comment []string) {
		rules = append(rules, ruleDraft{node: t.forPlain(inner, n, hosts), comment: strings.Join(comment, " ")})
	})
	for _, key := range inner.searchOrder() {
		n := draft.Map()
		if key != "/" {
			path := key
			n.Set("path", draft.Text(path))
		}
		node := inner.routes[key]
		if ruleAlone(node) {
			for _, action := range []string{"redirect", "respond", "deny"} {
				if a := node.Get(action); a != nil {
					n.Set(action, a)
				}
			}
		} else {
			n.Set("route", draft.Text(t.moved(inner, key)))
		}
		rules = append(rules, ruleDraft{node: t.forPlain(inner, n, hosts), comment: strings.Join(inner.comments[key], " ")})
	}
	return append(t.closedPlain(inner, hosts), rules...)
}

// closedPlain are the rules that close a block for plain HTTP.
func (t *site) closedPlain(inner *site, hosts []string) (rules []ruleDraft) {
	for _, why := range inner.server.closed {
		rules = append(rules, ruleDraft{node: t.forPlain(inner, draft.Denied(403), hosts), comment: draft.RemoveThis + why})
	}
	return rules
}

// ruleAlone reports whether a route can be said by a rule: rules answer without
// asking who may.
func ruleAlone(node *draft.Node) bool {
	guarded := node.Get("access") != nil || node.Get("auth") != nil || node.Get("rate_limit") != nil
	return node.Get("redirect") != nil || node.Get("deny") != nil || node.Get("respond") != nil && !guarded
}

// narrower are the hosts of a block for plain HTTP where the site has more.
func (t *site) narrower(p *server) []string {
	if len(p.names) == 0 {
		return nil
	}
	for _, n := range t.server.names {
		if !slices.Contains(p.names, n) {
			var common []string
			for _, n := range p.names {
				if slices.Contains(t.server.names, n) {
					common = append(common, n)
				}
			}
			return common
		}
	}
	return nil
}

// forPlain makes a rule one for plain HTTP.
func (t *site) forPlain(inner *site, n *draft.Node, hosts []string) *draft.Node {
	out := draft.Map().Set("protocol", draft.Text("http"))
	if len(hosts) > 0 && n.Get("host") == nil {
		out.Set("host", draft.Texts(hosts...))
	}
	n.CopyTo(out)
	if r := n.Get("route"); r != nil {
		for _, key := range inner.order {
			if r.Plain() == key {
				out.Set("route", draft.Text(t.moved(inner, key)))
			}
		}
	}
	return out
}

// moved enters a route of a block for plain HTTP under a name, and returns it.
// A name takes no path away, so a folder is the one above.
func (t *site) moved(inner *site, key string) string {
	name := "@plain-" + strings.Trim(strings.ReplaceAll(strings.Trim(key, "/*@"), "/", "-"), "-")
	if key == "/" {
		name = "@plain"
	}
	if t.routes[name] != nil {
		return name
	}
	node := inner.routes[key].Clone()
	if root := node.Get("static").Get("root"); root != nil && strings.HasSuffix(key, "/") && key != "/" {
		if dir, is := strings.CutSuffix(root.Plain(), strings.TrimSuffix(key, "/")); is {
			node.Get("static").Set("root", draft.Text(cmp.Or(dir, "/")))
		} else {
			return t.movedFolder(node, key, name)
		}
	}
	t.order = append(t.order, name)
	t.routes[name], t.comments[name] = node, inner.comments[key]
	return name
}

// movedFolder keeps a folder that is not named like its path: its route stays a
// path, which is open over TLS as well.
func (t *site) movedFolder(node *draft.Node, key, name string) string {
	if t.routes[key] != nil {
		return name
	}
	t.order = append(t.order, key)
	t.routes[key], t.comments[key] = node, []string{"of the block for plain HTTP; open over TLS as well"}
	return key
}

// searchOrder are the keys of the routes in the order in which they are looked for.
func (t *site) searchOrder() (keys []string) {
	rank := func(key string) (int, int) {
		switch {
		case strings.Contains(key, "*"):
			return 1, -len(key)
		case strings.HasSuffix(key, "/"):
			return 2, -len(key)
		}
		return 0, 0
	}
	for _, key := range t.order {
		if !strings.HasPrefix(key, "@") {
			keys = append(keys, key)
		}
	}
	slices.SortStableFunc(keys, func(a, b string) int {
		ra, la := rank(a)
		rb, lb := rank(b)
		if ra != rb {
			return ra - rb
		}
		return la - lb
	})
	return keys
}
