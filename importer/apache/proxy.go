package apache

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
	"millrace/internal/route/headers"
)

// proxies are the places that ProxyPass names, in the host and in its <Location>s.
func (t *site) proxies() (places []*place) {
	add := func(d *draft.Directive, at, to string) {
		if strings.Contains(to, "fcgi:") || at == "" || !strings.HasPrefix(at, "/") {
			return
		}
		p := &place{path: slashed(at), proxy: d, why: d}
		for _, o := range places {
			if strings.HasPrefix(p.path, o.path) {
				return // Apache takes the first
			}
		}
		if to == "!" {
			t.im.Used(d)
			p.proxy, p.dir = nil, t.dirOf(p.path)
		}
		places = append(places, p)
	}
	for _, d := range t.lines() {
		if lower(d) == "proxypass" && len(d.Args) >= 2 {
			add(d, d.Arg(0), d.Arg(1))
		}
	}
	for _, l := range t.locations {
		for _, d := range l.list {
			if lower(d) == "proxypass" && len(d.Args) > 0 && !strings.HasPrefix(l.url, "~") {
				add(d, l.url, d.Arg(0))
			}
		}
	}
	for _, l := range append([]layer{{list: t.lines()}}, t.dirs...) {
		for i, d := range l.list {
			if at, to, ok := proxyRule(d); ok && (i == 0 || lower(l.list[i-1]) != "rewritecond") {
				if l.dir != "" {
					base, _ := t.pathOf(l.dir)
					at = base + strings.TrimPrefix(at, "/")
				}
				p := &draft.Directive{Name: d.Name, Args: []string{at, to}, File: d.File, Line: d.Line}
				before := len(places)
				add(p, at, to)
				if len(places) > before {
					places[before].why = d
				}
			}
		}
	}
	return places
}

// proxyRule reads a RewriteRule that does what ProxyPass does.
func proxyRule(d *draft.Directive) (at, to string, ok bool) {
	if lower(d) != "rewriterule" || !slices.ContainsFunc(flagsOf(d.Arg(2)), func(f ruleFlag) bool { return f.name == "P" || f.name == "PROXY" }) {
		return "", "", false
	}
	m := regexp.MustCompile(`^\^?/?\??([A-Za-z0-9/_-]*?)/?\(\.[*+]\)\$?$`).FindStringSubmatch(d.Arg(0))
	to, is := strings.CutSuffix(d.Arg(1), "$1")
	if m == nil || !is || !strings.HasPrefix(to, "http") || strings.ContainsAny(to, "%$") {
		return "", "", false
	}
	at = "/" + m[1]
	if !strings.HasSuffix(at, "/") {
		at += "/"
	}
	return at, slashed(to), true
}

// proxy translates ProxyPass and the directives that belong to it.
func (t *site) proxy(p *place, layers []layer) *plan.Route {
	d := p.proxy
	at, to := p.path, d.Arg(0)
	switch {
	case len(d.Args) >= 2 && strings.HasPrefix(d.Arg(0), "/"):
		at, to = d.Arg(0), d.Arg(1)
	default:
		for _, l := range t.locations {
			if slices.Contains(l.list, d) {
				at = l.url
			}
		}
	}
	t.im.Used(d, p.why)
	for _, o := range d.Args {
		name, _, has := strings.Cut(o, "=")
		if has && !strings.Contains(name, ":") {
			t.im.Standard(d, "connections, retries and timeouts have keys of their own (proxy in docs/config.md)")
		}
	}
	keys := &plan.Proxy{}
	rest, ok := t.target(d, to, keys)
	if !ok {
		return &plan.Route{Action: plan.NotImplemented()}
	}
	own := strings.TrimSuffix(at, "/")
	if own != strings.TrimSuffix(rest, "/") {
		if own != "" {
			keys.StripPrefix = own + "/"
		}
		if trimmed := strings.TrimSuffix(rest, "/"); trimmed != "" {
			keys.Below(trimmed)
		}
	}
	return t.proxyRoute(keys, at, layers)
}

// proxyRoute is the route of a proxy, with what lines say of all that is passed on.
func (t *site) proxyRoute(keys *plan.Proxy, at string, layers []layer) *plan.Route {
	if t.im.on(lastIn(layers, "proxypreservehost")) {
		keys.Host = "client"
	}
	if d := lastIn(layers, "proxytimeout"); d != nil && regexp.MustCompile(`^\d{1,6}$`).MatchString(d.Arg(0)) {
		t.im.Used(d)
		keys.HeaderTimeout = d.Arg(0) + "s"
	}
	keys.Fields = t.requestHeaders(layers)
	if !t.reversed(at, layers) {
		keys.Redirects = "keep"
	}
	return &plan.Route{Proxy: *keys}
}

// isProxyPass reports whether a rule does what ProxyPass does: then it is a place.
func (t *site) isProxyPass(r *rule) bool {
	if _, _, ok := proxyRule(r.line); !ok || len(r.conds) > 0 {
		return false
	}
	t.im.Used(r.line)
	return true
}

// passOn leads to a route for a rule that passes requests on under its conditions ([P]).
func (t *site) passOn(c *context, r *rule, p pattern, groups map[int]string) (plan.Action, error) {
	scheme, rest, ok := strings.Cut(r.target, "://")
	host, path, _ := strings.Cut(rest, "/")
	if !ok || strings.ContainsAny(host, "$%{") && !strings.HasSuffix(host, "%{REQUEST_URI}") {
		return plan.Action{}, fmt.Errorf("the address of another server has no variables: %s", r.target)
	}
	if before, is := strings.CutSuffix(host, "%{REQUEST_URI}"); is {
		host, path = before, "%{REQUEST_URI}"
	}
	if slices.ContainsFunc(slices.Concat(t.locations, t.dirs), func(l layer) bool { return keepsOut(l.list) && !t.guardOf([]layer{l}).open() }) {
		return plan.Action{}, errors.New("sections that keep clients out hold for what it passes on, too")
	}
	keys := &plan.Proxy{}
	if _, ok := t.target(r.line, scheme+"://"+host+"/", keys); !ok {
		return plan.Action{}, errors.New("its server is not known")
	}
	path, query, _ := strings.Cut(path, "?")
	to, err := c.substitution("/"+path, p, groups)
	if err == nil && query != "" && query != "%{QUERY_STRING}" {
		err = errors.New("the query for another server is the client's")
	}
	if err != nil {
		return plan.Action{}, err
	}
	to = strings.NewReplacer("//{path}", "{path}", "/{path}", "{path}").Replace(to)
	if before, is := strings.CutSuffix(to, "{path}"); is && before != "" { // a prefix is one of the address
		to = "{path}"
		keys.Below(before)
	}
	switch {
	case to == "{path}", to == "/{1}" && (p.expr == "^/(.*)$" || p.expr == "^(.*)$"):
	case strings.Contains(to, "{path}"):
		return plan.Action{}, fmt.Errorf("write proxy.rewrite: %s", r.target)
	default:
		keys.Rewrites(plan.Whole(p.expr), to)
	}
	layers := t.layersOf("/", "")
	passed := t.proxyRoute(keys, "/", layers)
	t.headers(layers, passed)
	return plan.To(t.Named(passed, "app", "app", r.line.At()+": "+r.line.String())), nil
}

// passesMissing translates a rule that passes on what is no file: try leads to its route.
func (t *site) passesMissing(c *context, r *rule, files []*fileTest) error {
	other := func(f *fileTest) bool { return !f.not || f.other || f.suffix != "" }
	switch {
	case !r.proxy || len(files) == 0:
		return errConditions
	case !r.p.all || r.p.not || r.p.except != "" || slices.ContainsFunc(files, other) || slices.ContainsFunc(r.conds, func(cond *condition) bool { return cond.file == nil && !cond.skip }):
		return errors.New("whether a file is there decides with try alone, for all paths")
	}
	do, err := t.passOn(c, r, r.p, nil)
	if err != nil {
		return err
	}
	t.fronts[cmp.Or(c.url, "/")] = front{do.Route, !slices.ContainsFunc(files, func(f *fileTest) bool { return f.kind == 'd' }), nil, false}
	t.markRule(r, draft.Translated, "")
	return nil
}

// reversed reports whether Apache changes what an upstream behind a path says of its own
// addresses: it does so where ProxyPassReverse says so, and nowhere else.
func (t *site) reversed(at string, layers []layer) bool {
	for _, d := range allIn(layers, "proxypassreverse", "proxypassreversecookiepath") {
		if len(d.Args) == 1 || lower(d) == "proxypassreversecookiepath" || strings.HasPrefix(slashed(at), slashed(d.Arg(0))) {
			return true
		}
	}
	return false
}

// target splits the target of a ProxyPass into servers and path.
func (t *site) target(d *draft.Directive, to string, keys *plan.Proxy) (rest string, ok bool) {
	if socket, is := strings.CutPrefix(to, "unix:"); is {
		socket, inner, _ := strings.Cut(socket, "|")
		u, err := url.Parse(inner)
		if err != nil {
			t.im.Leave(d, "write the route with proxy: unix:/path")
			return "", false
		}
		keys.To = []string{"unix:" + socket}
		return u.Path, true
	}
	u, err := url.Parse(to)
	if err != nil || u.Host == "" {
		t.im.Leave(d, "write the route with proxy, and the address of the other server")
		return "", false
	}
	switch u.Scheme {
	case "balancer":
		return t.balancer(d, u, keys)
	case "ws", "wss":
		u.Scheme = map[string]string{"ws": "http", "wss": "https"}[u.Scheme]
	case "http", "https", "h2c":
	case "h2":
		u.Scheme = "https"
	default:
		t.im.Leave(d, "other servers speak HTTP here: let the application do so, and write proxy: http://host:port")
		return "", false
	}
	keys.To = []string{u.Scheme + "://" + u.Host}
	return u.Path, true
}

// balancer are the members of a group.
func (t *site) balancer(d *draft.Directive, u *url.URL, keys *plan.Proxy) (rest string, ok bool) {
	for _, g := range t.lines() {
		if lower(g) != "proxy" || strings.TrimSuffix(g.Arg(0), "/") != "balancer://"+u.Host {
			continue
		}
		t.im.Used(g)
		for _, m := range t.im.flat(g.Block) {
			switch lower(m) {
			case "balancermember":
				t.im.Used(m)
				member, err := url.Parse(m.Arg(0))
				if err != nil || member.Host == "" {
					t.im.Leave(m, "write it into proxy.to, as in http://host:port")
					continue
				}
				if strings.Contains(strings.ToLower(strings.Join(m.Args[1:], " ")), "status=+h") {
					t.im.Leave(m, "servers have no second rank: this one is left out. Servers that fail are not asked anyway")
					continue
				}
				if slices.ContainsFunc(m.Args[1:], func(a string) bool { return strings.HasPrefix(a, "loadfactor=") && a != "loadfactor=1" }) {
					t.im.Leave(m, "servers have no weights: balance: two_choices (the default) gives the faster ones more")
				}
				scheme := map[string]string{"ws": "http", "wss": "https"}[member.Scheme]
				scheme = cmp.Or(scheme, member.Scheme)
				keys.To = draft.AppendNew(keys.To, scheme+"://"+member.Host)
			case "proxyset":
				t.im.Used(m)
				for _, a := range m.Args {
					switch strings.ToLower(a) {
					case "lbmethod=bybusyness":
						keys.Balance = "least_connections"
					case "lbmethod=byrequests", "lbmethod=bytraffic":
					default:
						t.im.Leave(m, a+" has no counterpart: see proxy in docs/config.md")
					}
				}
			}
		}
	}
	if len(keys.To) == 0 {
		t.im.Leave(d, "the members of "+u.Host+" are not to be found: write them into proxy.to")
		return "", false
	}
	if len(keys.To) < 2 {
		keys.Balance = ""
	}
	return u.Path, true
}

// requestHeaders translates RequestHeader.
func (t *site) requestHeaders(layers []layer) plan.Fields {
	fields := plan.Fields{Requests: true}
	for _, d := range allIn(layers, "requestheader") {
		name, value, op := d.Arg(1), d.Arg(2), headers.Set
		switch kind := strings.ToLower(d.Arg(0)); {
		case strings.HasPrefix(strings.ToLower(name), "x-forwarded-"):
			t.im.Standard(d, "the X-Forwarded fields go unasked")
			continue
		case kind == "unset":
			op = headers.Remove
		case kind == "set" && len(d.Args) == 3 && !strings.Contains(value, "%"):
			value = strings.ReplaceAll(value, "{", "{{")
		case kind == "set" && strings.Contains(value, "REMOTE_ADDR"):
			value = "{client_ip}"
		default:
			t.im.Leave(d, "write it into proxy.request_headers")
			continue
		}
		if why := fields.Put(plan.Answers{}, op, name, value); why != "" {
			t.im.Standard(d, why)
			continue
		}
		t.im.Used(d)
	}
	return fields
}
