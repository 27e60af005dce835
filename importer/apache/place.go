package apache

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// findPlaces lists the parts of the site that have settings of their own: each folder
// and path with a <Directory>, a .htaccess, a <Location> or a ProxyPass.
func (t *site) findPlaces() {
	add := func(p *place) {
		if !strings.HasPrefix(p.path, "/") || slices.ContainsFunc(t.places, func(o *place) bool { return o.path == p.path }) {
			return
		}
		t.places = append(t.places, p)
	}
	for _, d := range t.proxies() {
		add(d)
	}
	add(&place{path: "/", dir: t.root()})
	for _, a := range t.aliases {
		add(&place{path: a.path, dir: a.dir, why: a.line})
	}
	for _, l := range t.dirs {
		why := l.line
		if why == nil && len(l.list) > 0 {
			why = &draft.Directive{File: l.list[0].File, Line: 1}
		}
		for _, url := range t.pathsOf(l.dir) {
			add(&place{path: url, dir: l.dir, why: why})
		}
	}
	for _, l := range t.locations {
		if strings.HasPrefix(l.url, "~") {
			continue
		}
		url := slashed(l.url)
		add(&place{path: url, dir: t.folderOf(url), why: l.line})
	}
	for url := range t.fronts {
		add(&place{path: url, dir: t.dirOf(url)})
	}
	slices.SortStableFunc(t.places, func(a, b *place) int {
		return cmp.Or(cmp.Compare(len(b.path), len(a.path)), strings.Compare(a.path, b.path))
	})
	for i, p := range t.places {
		if p.proxy == nil { // what is around it may be a proxy
			if outer := p.outer(t.places[i+1:]); outer != nil && outer.proxy != nil && p.why != nil && (lower(p.why) == "location") {
				p.proxy, p.dir = outer.proxy, ""
			}
		}
		p.layers = t.layersOf(p.path, p.dir)
	}
}

// folderOf is the folder of a path, "" where a proxy answers it.
func (t *site) folderOf(url string) string {
	for _, p := range t.places {
		if p.proxy != nil && strings.HasPrefix(url, p.path) {
			return ""
		}
	}
	return t.dirOf(url)
}

// place translates one part of the site, such as /shop/: the route that answers for it,
// with who may come in, its error pages and headers; and the rules that it needs.
func (t *site) place(p *place) {
	p.guard = t.guardOf(p.layers)
	if p.guard.why != "" {
		t.Close(p.guard.line, p.guard.why)
	}
	p.job = t.answer(p, p.layers, p.guard, p.path)
	t.placeRules(p, p.guard)
	if p.proxy != nil && p.proxy.Arg(0) == p.path && p.path != "/" {
		// The path without its slash is a folder's, with what is said of that.
		folder := strings.TrimSuffix(p.path, "/")
		if !t.guardOf(t.layersOf(folder, t.dirOf(folder))).open() {
			to, _ := plan.Redirect(p.path, 301) // a path is an address
			t.guard(plan.Cond{Path: folder}, to, p.proxy.At())
		}
	}
}

// placeRules are the rules for clients that are kept out of a place by more than a route's
// access can say.
func (t *site) placeRules(p *place, g guard) {
	i := slices.Index(t.places, p)
	for _, r := range g.rules {
		if outer := p.outer(t.places[i+1:]); outer != nil && slices.ContainsFunc(t.guardOf(outer.layers).rules, alike(r)) {
			continue // the rule for the place around it is for this, too
		}
		if p.path != "/" {
			r.If = must(plan.Cond{Path: p.path}.And(r.If))
		}
		t.guards = append(t.guards, r)
	}
}

// must is a condition of which the other is no contradiction.
func must(c plan.Cond, _ error) plan.Cond { return c }

// answer is the route of a place, or of some of its files. For these its key is a name,
// such as @admin, so that no part of the path is taken away.
func (t *site) answer(p *place, layers []layer, g guard, key string) *plan.Route {
	if g.closed {
		r := &plan.Route{Action: plan.Deny(403)}
		t.headers(layers, r)
		return r
	}
	r := t.routeOptions(p, layers, g, t.job(p, layers, key))
	t.bodySize(layers, r)
	return r
}

// job is the job of a route: a proxy, or static, with php beside it.
func (t *site) job(p *place, layers []layer, key string) *plan.Route {
	if p.proxy != nil {
		return t.proxy(p, layers)
	}
	r := &plan.Route{}
	static := &r.Static
	static.Root = p.dir
	if strings.HasPrefix(key, "@") { // a name takes nothing away
		if cut, is := strings.CutSuffix(slashed(p.dir), strings.TrimPrefix(p.path, "/")); is {
			static.Root = cmp.Or(strings.TrimSuffix(cut, "/"), "/")
		}
	}
	var scripts []string
	if d := lastIn(layers, "directoryindex"); d != nil {
		var pages []string
		for _, name := range d.Args {
			switch {
			case strings.HasSuffix(name, ".php"):
				scripts = append(scripts, name)
			case strings.ContainsAny(name, "/") || strings.EqualFold(name, "disabled"):
				t.im.Leave(d, "an index is the name of a file in its folder")
			case !slices.Contains([]string{"index.cgi", "index.pl", "index.xhtml"}, name):
				pages = append(pages, name)
			}
		}
		if !slices.Equal(pages, []string{"index.html"}) {
			static.Index = pages
		}
		t.im.Used(d)
	}
	static.Listing = t.listing(layers)
	t.types(layers, static)
	static.CleanURLs = slices.ContainsFunc(t.clean, func(u string) bool { return strings.HasPrefix(p.path, u) })
	static.CacheControl = t.expires(layers)
	if t.php != "" {
		if static.CacheControl != nil {
			for _, d := range allIn(layers, "expiresdefault") {
				t.im.Partly(d, "it is for files: what PHP answers says itself how long it holds")
			}
		}
		if d := lastIn(layers, "directoryindex"); d != nil && !strings.HasSuffix(d.Arg(0), ".php") {
			t.im.Partly(d, "beside PHP, a folder's index.php comes before its pages")
		}
		t.addPHP(p, r, scripts, key)
	} else if f, is := t.frontOf(p.path); is { // a page, or PHP of another place
		r.Try = f.try()
	}
	return r
}

// listing reports whether folders without an index are listed.
func (t *site) listing(layers []layer) (on bool) {
	for _, d := range allIn(layers, "options") {
		t.im.Used(d)
		reset := false
		for _, o := range d.Args {
			name := strings.ToLower(strings.TrimLeft(o, "+-"))
			plain := name == strings.ToLower(o)
			if plain && !reset {
				on, reset = false, true
			}
			switch name {
			case "indexes", "all":
				on = !strings.HasPrefix(o, "-")
			case "none", "followsymlinks", "symlinksifownermatch":
			case "multiviews":
				if !strings.HasPrefix(o, "-") {
					t.im.Standard(d, "names without an extension are static.clean_urls; languages are not negotiated")
				}
			case "execcgi", "includes", "includesnoexec":
				if !strings.HasPrefix(o, "-") {
					t.im.Leave(d, "no CGI is run and no page is put together in the server: serve it by an application, with proxy or php")
				}
			}
		}
	}
	return on
}

// types translates the media types of files.
func (t *site) types(layers []layer, static *plan.Static) {
	static.Types = map[string]string{}
	for _, d := range allIn(layers, "addtype") {
		if isPHPType(d.Arg(0)) {
			continue
		}
		t.im.Used(d)
		for _, ext := range d.Args[min(1, len(d.Args)):] {
			ext = "." + strings.TrimPrefix(strings.ToLower(ext), ".")
			if draft.TypeOf(ext) != d.Arg(0) && strings.Contains(d.Arg(0), "/") {
				static.Types[ext] = d.Arg(0)
			}
		}
	}
	if d := lastIn(layers, "adddefaultcharset"); d != nil {
		switch charset := strings.ToLower(d.Arg(0)); charset {
		case "utf-8", "on", "off":
			t.im.Standard(d, "content types are built in, UTF-8 for text")
		default:
			static.Charset = charset
			t.im.Used(d)
		}
	}
}

func isPHPType(name string) bool { return strings.Contains(name, "php") }

// errorPages translates ErrorDocument. The status of an answer stays as it is.
func (t *site) errorPages(layers []layer, r *plan.Route) {
	for _, d := range allIn(layers, "errordocument") {
		status, page := d.Arg(0), d.Arg(1)
		switch {
		case strings.EqualFold(page, "default"):
			r.Errors.Set(status, "")
			t.im.Used(d)
		case !regexp.MustCompile(`^[45]\d\d$`).MatchString(status):
			t.im.Leave(d, "pages are for the statuses 400 to 599")
		case !strings.HasPrefix(page, "/"):
			t.im.Leave(d, "error pages are paths of the site: put the text into a file, and redirect from a page")
		default:
			if status == "401" && strings.HasSuffix(page, ".php") {
				t.im.Leave(d, "name a page that is no script for 401")
				continue
			}
			t.im.Used(d)
			r.Errors.Set(status, page)
		}
	}
	if d := lastIn(layers, "proxyerroroverride"); len(r.Errors) > 0 && d != nil && strings.EqualFold(d.Arg(0), "on") && (r.Passes() || r.PHP.To != nil) {
		t.im.Used(d)
		r.Intercept = true
		if len(d.Args) > 1 {
			t.im.Leave(d, "the pages take the place of an application's answers of all their statuses: name only those in errors")
		}
	}
}

func (t *site) bodySize(layers []layer, r *plan.Route) {
	d := t.im.Take(lastIn(layers, "limitrequestbody"))
	if d == nil || r.PHP.To == nil && !r.Passes() {
		return
	}
	if n := d.Arg(0); n == "0" {
		r.Body = "1024GiB"
	} else if regexp.MustCompile(`^\d{1,12}$`).MatchString(n) {
		r.Body = n + "B"
	}
}

// nested are the paths below a folder that have rewrite rules of their own, so that those
// of the folder do not hold there.
func (t *site) nested(url string) (paths []string) {
	for _, l := range t.dirs {
		for _, p := range t.pathsOf(l.dir) {
			if p != url && strings.HasPrefix(p, url) && len(allIn([]layer{l}, "rewriteengine", "rewriterule")) > 0 {
				paths = append(paths, p)
			}
		}
	}
	return draft.Unique(paths)
}

// base is the last part of a path, for a name.
func base(url string) string { return strings.Trim(path.Base(url), "/.") }
