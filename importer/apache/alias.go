package apache

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"millrace/importer/draft"
)

// redirect translates a line of mod_alias.
func (t *site) redirect(c *context, d *draft.Directive) []ruleDraft {
	args := slices.Clone(d.Args)
	status := map[string]int{"redirectpermanent": 301}[lower(d)]
	if lower(d) == "redirect" || lower(d) == "redirectmatch" {
		first := strings.ToLower(d.Arg(0))
		named := map[string]int{"permanent": 301, "temp": 302, "seeother": 303, "gone": 410}[first]
		if n, err := strconv.Atoi(first); err == nil {
			named = n
		}
		if named != 0 {
			status, args = named, args[1:]
		}
	}
	status = cmp.Or(status, 302)
	n := draft.Map()
	to := ""
	if len(args) > 1 {
		to = args[1]
	}
	if len(args) == 0 {
		t.im.Leave(d, "write it as a rule with redirect")
		return nil
	}
	var err error
	if lower(d) == "redirectmatch" {
		to, err = t.redirectMatch(n, args[0], to)
	} else {
		to = t.redirectPrefix(n, args[0], to, status)
	}
	if err == nil && t.shadowed(c, n) {
		t.im.Standard(d, "Apache never comes to it: ProxyPass answers before")
		return nil
	}
	if err == nil {
		if status >= 300 && status < 400 && to != "" {
			err = t.redirectTo(n, to, status)
		} else {
			err = answer(n, status)
		}
	}
	if err != nil {
		if status >= 400 {
			t.close(d, "write it as a rule: "+err.Error())
			return nil
		}
		t.im.Leave(d, "write it as a rule: "+err.Error())
		return nil
	}
	t.im.Used(d)
	return []ruleDraft{{n, d.At()}}
}

// shadowed reports whether a proxy answers for the paths of a host's rule.
func (t *site) shadowed(c *context, n *draft.Node) bool {
	if c.perDir {
		return false
	}
	at := n.Get("path").Plain()
	if at == "" {
		at = strings.TrimSuffix(strings.TrimPrefix(n.Get("regex").Plain(), "^"), "(/.*)?$")
	}
	return slices.ContainsFunc(t.proxies(), func(p *place) bool {
		return p.proxy.Arg(len(p.proxy.Args)-1) != "!" && strings.HasPrefix(at, p.path) && !strings.HasPrefix(p.path, "/.")
	})
}

func (t *site) redirectMatch(n *draft.Node, text, to string) (string, error) {
	expr, err := expression(text, false)
	if err != nil {
		return "", err
	}
	pattern{expr: expr}.set(n)
	if n.Len() == 0 {
		n.Set("regex", draft.Verbatim(expr))
	}
	c := &context{}
	return c.substitution(strings.ReplaceAll(to, "%", `\%`), pattern{expr: expr, groups: regexp.MustCompile(expr).NumSubexp()}, way{})
}

// redirectPrefix redirects a path and all below it: the rest of the path is appended to
// the target.
func (t *site) redirectPrefix(n *draft.Node, url, to string, status int) string {
	if status >= 400 || to == "" {
		if strings.HasSuffix(url, "/") || strings.Contains(path.Base(url), ".") {
			n.Set("path", draft.Text(url))
		} else {
			n.Set("path", draft.Text(url+"/"))
		}
		return to
	}
	to = strings.NewReplacer("{", "%7B", "}", "%7D").Replace(to)
	switch {
	case strings.HasSuffix(url, "/"):
		if url != "/" { // the path without the slash is another one
			n.Set("regex", draft.Verbatim("^"+regexp.QuoteMeta(url)+"(.*)$"))
			return to + "{1}"
		}
		if cut, is := strings.CutSuffix(to, "/"); is {
			return cut + "{path}"
		}
		n.Set("path", draft.Text(url))
		return to + "{1}"
	case strings.Contains(path.Base(url), "."):
		n.Set("path", draft.Text(url))
		return to
	}
	n.Set("regex", draft.Verbatim("^"+regexp.QuoteMeta(url)+"(/.*)?$"))
	return to + "{1}"
}

// serverRules translates the rewrites and redirects of the host itself, which come before
// those of folders.
func (t *site) serverRules() {
	t.findFronts()
	list := t.host.list
	if t.host.line == nil {
		list = t.lines()
	}
	c := &context{base: "/"}
	t.first = append(t.first, t.rules(c, list)...)
	for _, l := range t.locations {
		for _, d := range l.list {
			if lower(d) == "redirect" && len(d.Args) <= 2 && !strings.HasPrefix(l.url, "~") {
				moved := &draft.Directive{Name: d.Name, Args: append([]string{"302", l.url}, d.Args...), File: d.File, Line: d.Line}
				if len(d.Args) == 2 {
					moved.Args = []string{d.Arg(0), l.url, d.Arg(1)}
				}
				t.first = append(t.first, t.redirect(c, moved)...)
				t.im.Used(d)
			}
		}
	}
}

// plainRules are what the hosts for plain HTTP of the same names do: a site is
// served over both, so their redirects become rules for http.
func (t *site) plainRules() {
	var rules []ruleDraft
	blocks := t.im.plainOf(t.host)
	for _, o := range blocks {
		c := &context{base: "/"}
		inner := &site{im: t.im, host: o, node: draft.Map(), names: t.names, named: t.named, fronts: map[string]front{}}
		all := false
		for _, r := range inner.rules(c, o.list) {
			if r.node.Get("protocol").Plain() == "https" {
				continue
			}
			n := draft.Map().Set("protocol", draft.Text("http"))
			r.node.CopyTo(n)
			rules = append(rules, ruleDraft{n, r.comment})
			all = all || n.Get("path") == nil && n.Get("regex") == nil && n.Get("except") == nil && n.Get("header") == nil && n.Get("rewrite") == nil && (n.Get("host") == nil || len(o.names) < 2)
		}
		t.closed = append(t.closed, inner.closed...)
		for _, d := range o.list {
			if t.im.Outcome(d) != 0 {
				continue
			}
			if all {
				t.im.Whole(d, draft.Defaulted, "plain HTTP is sent to HTTPS before it")
			}
		}
		if all || sameLines(o.list, t.host.list) {
			continue
		}
		t.im.Leave(o.line, "a site is one over both: what it served over plain HTTP alone is sent to HTTPS. Write rules with protocol: http for what is to stay")
		rules = append(rules, toHTTPS(o.line.At()+": a site is one over both"))
	}
	if len(t.host.secure) > 0 && len(blocks) == 0 && len(t.host.plain) == 0 && slices.ContainsFunc(t.im.hosts, func(o *host) bool { return len(o.plain) > 0 }) {
		rules = append(rules, toHTTPS("Apache served these hosts over TLS alone"))
	}
	t.first = append(rules, t.first...)
}

func toHTTPS(why string) ruleDraft {
	return ruleDraft{draft.Map().Set("protocol", draft.Text("http")).Set("redirect", draft.Map().Set("to", draft.Text("https://{host}{uri}")).Flow()), why}
}

// sameLines reports whether two hosts are the same but for TLS.
func sameLines(a, b []*draft.Directive) bool {
	text := func(list []*draft.Directive) string {
		var out strings.Builder
		var walk func([]*draft.Directive)
		walk = func(list []*draft.Directive) {
			for _, d := range list {
				if name := lower(d); strings.HasPrefix(name, "ssl") || name == "customlog" || name == "errorlog" || name == "serveralias" || name == "include" {
					continue
				}
				out.WriteString(d.String() + "\n")
				walk(d.Block)
			}
		}
		walk(list)
		return out.String()
	}
	return text(a) == text(b)
}
