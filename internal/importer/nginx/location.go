package nginx

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/importer/draft"
	"millrace/internal/importer/nginxconf"
)

// location translates what answers a location, and the rules before it.
func (t *site) location(l *location) {
	if t.rewriteAlone(l) {
		return
	}
	if l.block != nil {
		if answer := t.phase(l.scope, l); answer != nil {
			for _, d := range l.list {
				if d.Name.Text == "allow" || d.Name.Text == "deny" {
					t.im.standard(d, "nginx never comes to it: the location returns before")
				}
			}
			t.answers(l, answer)
			return
		}
	}
	if t.isAsked(l) {
		return
	}
	if d := l.own("internal"); d != nil {
		if !t.isErrorPage(l) {
			t.internal(l)
			return
		}
		t.im.standard(d, "pages for errors can also be asked for by their own path")
	}
	if t.indexAlone(l) {
		return
	}
	access, closed := t.access(l)
	if closed && !t.passwordDoes(l) {
		t.answers(l, denied(403))
		return
	}
	if t.insideAlias(l) {
		return
	}
	t.limitExcept(l)
	t.subrequests(l)
	node := t.job(l)
	switch {
	case node != nil:
		t.guard(l, node, access)
		t.around(l, node)
		t.route(l, node)
	case l.node != nil: // it is a route already
		t.guard(l, l.node, access)
	case !l.whole: // another location, maybe a more open one, must not answer instead
		t.answers(l, lost())
		t.leaveWhole(l)
	}
}

// leaveWhole lists a location as one line: what is in it went with it.
func (t *site) leaveWhole(l *location) {
	if l.block == nil {
		return
	}
	var reasons []string
	for _, d := range l.list {
		if note := t.im.fates[d]; note.Fate == draft.Left {
			reasons = append(reasons, strings.TrimSuffix(d.String(), ";")+": "+note.Why)
		}
	}
	t.im.leave(l.block, "it answers 501 until you have written it: "+cmp.Or(strings.Join(unique(reasons), "; "), "see docs/config.md for what there is"))
}

// indexAlone reports whether a location is for the index of a folder and says nothing
// of how that is answered: nginx looks for a location anew with the index's own path,
// and here the folder's route has it.
func (t *site) indexAlone(l *location) bool {
	if l.kind != exactLocation || !strings.HasSuffix(l.path, "/") || !slices.ContainsFunc(t.locations, func(o *location) bool {
		return o.kind == prefixLocation && o.covers(l.path) && o.own("alias") == nil && o.own("proxy_pass") == nil
	}) {
		return false
	}
	for _, d := range l.list {
		if !slices.Contains([]string{"if", "rewrite", "break", "set", "access_log", "log_not_found", "error_log"}, d.Name.Text) {
			return false
		}
	}
	t.im.standard(l.block, "the index of the folder is the same by the folder's own route")
	return true
}

// passwordNeeded reports whether nobody comes in without a password.
func (t *site) passwordNeeded(l *location) bool {
	auth, satisfy := l.last("auth_basic"), l.last("satisfy")
	return auth != nil && auth.Arg(0) != "off" && (satisfy == nil || satisfy.Arg(0) != "any")
}

// passwordDoes reports whether a password alone lets clients in.
func (t *site) passwordDoes(l *location) bool {
	d, auth := l.last("satisfy"), l.last("auth_basic")
	return d != nil && d.Arg(0) == "any" && auth != nil && auth.Arg(0) != "off"
}

// either makes a password needless for the addresses that are let in.
func (t *site) either(l *location, node *draft.Node) {
	d := l.last("satisfy")
	if d == nil || d.Arg(0) != "any" {
		t.im.standard(d, "an address and a password are both required")
		return
	}
	auth, access := node.Get("auth"), node.Get("access")
	switch {
	case auth == nil || len(l.all("allow", "deny")) == 0:
		t.im.standard(d, "there is one thing to satisfy alone")
	case access == nil && t.passwordDoes(l) && len(l.all("allow")) == 0:
		t.im.used(d)
	case access == nil || access.Get("allow") == nil || access.Get("deny") != nil:
		t.im.leave(d, "an address and a password are both required here, where nginx took either: write the addresses into auth.except")
	default:
		t.im.used(d)
		auth.Set("except", access.Get("allow"))
		node.Remove("access")
	}
}

// guard enters who may ask, and how often.
func (t *site) guard(l *location, node, access *draft.Node) {
	if access != nil {
		node.Set("access", access)
	}
	t.rateLimit(l, node)
}

// answers enters a location that answers by itself: as a rule where captures
// may be used, else as a route.
func (t *site) answers(l *location, answer *draft.Node) {
	if l.kind == regexLocation {
		n := l.match()
		answer.CopyTo(n)
		comment := l.block.At()
		if slices.ContainsFunc(l.block.Texts(), func(s string) bool { return strings.Contains(s, ahead) }) {
			comment += ": " + l.block.String() + ", without looking ahead"
		}
		l.rules = append(l.rules, ruleDraft{n, comment})
		l.whole = true
		return
	}
	t.around(l, answer)
	t.route(l, answer)
}

// internal is for a location that no client may ask for.
func (t *site) internal(l *location) {
	d := l.own("internal")
	t.im.standard(d, "what is internal has the status 404 for clients")
	if l.kind != regexLocation {
		t.im.leave(d, "an upstream cannot send the client to internal files (X-Accel-Redirect): nobody gets them. Let the application send them")
	}
	if l.kind == regexLocation && l.own("fastcgi_pass") != nil && t.php == nil {
		t.php = l
	}
	t.answers(l, denied(404))
}

func denied(status int) *draft.Node {
	deny := draft.Map().Flow()
	if status != 403 {
		deny.Set("status", draft.Number(status))
	}
	return draft.Map().Set("deny", deny).Flow()
}

func (t *site) isErrorPage(l *location) bool {
	return l.kind == namedLocation || slices.ContainsFunc(t.im.all(t.server.scope, "error_page"), func(d *nginxconf.Directive) bool {
		return strings.HasPrefix(d.Arg(len(d.Args)-1), "/") && l.covers(d.Arg(len(d.Args)-1))
	})
}

// all are the directives of a name in a block and all within it.
func (im *importer) all(s *scope, name string) (found []*nginxconf.Directive) {
	var walk func([]*nginxconf.Directive)
	walk = func(list []*nginxconf.Directive) {
		for _, d := range list {
			if d.Name.Text == name {
				found = append(found, d)
			}
			walk(d.Block)
		}
	}
	walk(s.list)
	return append(found, s.parent.each(name)...)
}

// limitExcept translates methods that only some may use.
func (t *site) limitExcept(l *location) {
	for _, d := range l.each("limit_except") {
		inner := &scope{list: d.Block}
		if len(inner.each("deny")) != 1 || len(inner.each("allow")) > 0 {
			t.close(d, "write a rule with the methods and addresses: {method: [\"!GET\"], deny: {}}. The site answers 403 until its first rule is removed")
			continue
		}
		t.im.used(d)
		t.im.used(d.Block...)
		var methods []string
		for _, m := range d.Texts() {
			methods = append(methods, "!"+m)
			if m == "GET" {
				methods = append(methods, "!HEAD")
			}
		}
		n := l.match().Set("method", draft.Texts(methods...))
		denied(403).CopyTo(n)
		l.rules = append(l.rules, ruleDraft{n, d.At()})
	}
}

// subrequests are questions to others whether a client may come in.
func (t *site) subrequests(l *location) {
	t.authRequest(l)
	for _, name := range []string{"auth_jwt", "access_by_lua_block", "access_by_lua_file", "secure_link", "secure_link_md5", "js_access"} {
		d := l.last(name)
		if d != nil && d.Arg(0) != "off" {
			t.close(d, "no other server is asked whether a client may come in: let the application decide. The site answers 403 until its first rule is removed")
		}
	}
	for at := l.scope; at != nil; at = at.parent {
		for _, d := range at.list {
			if d.Name.Text == "access_by_lua_block" {
				t.close(d, "no scripts run in the server: let the application decide. The site answers 403 until its first rule is removed")
			}
		}
	}
}

// job translates what answers, nil for what cannot be.
func (t *site) job(l *location) *draft.Node {
	for _, name := range []string{"uwsgi_pass", "scgi_pass", "memcached_pass", "content_by_lua_block", "content_by_lua_file", "js_content", "perl", "empty_gif", "stub_status"} {
		d := l.own(name)
		if d == nil {
			for _, b := range l.each(name) {
				d = b
			}
		}
		if d == nil {
			continue
		}
		t.im.leave(d, notAJob(name))
		return nil
	}
	switch {
	case l.own("proxy_pass") != nil:
		return t.proxy(l, l.own("proxy_pass"))
	case l.own("grpc_pass") != nil:
		return t.proxy(l, l.own("grpc_pass"))
	case l.own("fastcgi_pass") != nil:
		return t.fastcgi(l)
	}
	return t.static(l)
}

// lost answers for a location that was not carried over.
func lost() *draft.Node {
	return draft.Map().Set("respond", draft.Map().Set("status", draft.Number(501)).Set("text", draft.Text("not carried over")).Flow()).Flow()
}

func notAJob(name string) string {
	switch name {
	case "uwsgi_pass", "scgi_pass":
		return "let the application speak HTTP (uwsgi: http-socket, or gunicorn) and write proxy: http://host:port"
	case "stub_status":
		return "metrics are on the admin listener: see docs/monitoring.md"
	case "memcached_pass":
		return "answers from memory are a cache route: see docs/cache.md"
	}
	return "put it into the application, and pass the path on with proxy"
}

// static translates a location that serves files.
func (t *site) static(l *location) *draft.Node {
	node := draft.Map()
	static := draft.Map()
	root, ok := t.folder(l)
	if !ok {
		return nil
	}
	static.Set("root", draft.Text(root))
	if d := l.last("index"); d != nil {
		t.im.used(d)
		if names := withoutPHP(d.Texts()); len(names) > 0 && !slices.Equal(names, []string{"index.html"}) {
			static.Set("index", draft.Texts(names...))
		}
	}
	if value, ok := t.cacheControl(l); ok {
		static.Set("cache_control", value)
	}
	if d := l.last("gzip"); d != nil && d.Arg(0) == "off" {
		t.im.used(d)
		static.Set("no_compress", draft.Number(true))
	}
	if d := l.last("autoindex"); d != nil && d.Arg(0) == "on" {
		t.im.used(d)
		static.Set("listing", draft.Number(true))
	}
	for _, d := range l.each("types") {
		t.im.leave(d, "content types go by the files' names: rename the files, or put Content-Disposition into the links (download)")
	}
	node.Set("static", static.Flow())
	t.try(l, node)
	return node
}

// withoutPHP is an index without scripts, which php looks for itself.
func withoutPHP(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		return strings.HasSuffix(n, ".php") || strings.ContainsAny(n, "$/") || n == ""
	})
}

// folder is the root of a location as its route has it: a route that ends in a
// slash takes its path away.
func (t *site) folder(l *location) (string, bool) {
	if d := l.last("alias"); d != nil && (l.own("alias") != nil || l.outer != nil) {
		t.im.used(d)
		switch {
		case strings.Contains(d.Arg(0), "$") || l.kind == regexLocation || l.kind == namedLocation:
			t.im.leave(d, "an alias with captures: write a rule that rewrites the path, and a static route")
			return "", false
		case l.kind == exactLocation:
			if strings.HasSuffix(d.Arg(0), l.path) {
				return strings.TrimSuffix(d.Arg(0), l.path), true
			}
			respond := draft.Map().Set("file", draft.Text(t.im.root(d.Arg(0)))).Flow()
			t.answers(l, draft.Map().Set("respond", respond).Flow())
			return "", false
		}
		if !strings.HasSuffix(l.path, "/") {
			t.im.standard(l.block, "the path covers the folder, not other names that begin like it")
		}
		return t.im.root(d.Arg(0)), true
	}
	d := l.last("root")
	root := t.im.root("html")
	if d != nil {
		text, err := template(d.Arg(0), nil, t.server.values)
		if err != nil {
			t.im.leave(d, "a folder's name has no variables: write a site for each")
			return "", false
		}
		t.im.used(d)
		root = t.im.root(text)
	}
	if strings.HasSuffix(l.key, "/") && l.key != "/" {
		inner := path.Join(root, l.key)
		if t.im.options.IsDir(inner) || !t.im.options.IsDir(root) {
			return inner, true
		}
		// The folder is not there (yet): a name takes nothing away from the path.
		l.key, l.first = "@"+strings.ReplaceAll(strings.Trim(l.path, "/"), "/", "-"), true
	}
	return root, true
}

func (im *importer) root(dir string) string {
	if !path.IsAbs(dir) {
		dir = path.Join(im.options.Prefix, dir)
	}
	return path.Clean(dir)
}

// try translates try_files, or an if that does the same.
func (t *site) try(l *location, node *draft.Node) {
	d := l.own("try_files")
	if l.block == nil {
		d = t.server.own("try_files")
	}
	if d == nil {
		fallback := cmp.Or(l.fallback, t.missingLeadsTo(l))
		if fallback == "" && l.path == "/" {
			fallback = t.fallback
		}
		if fallback != "" {
			node.Set("try", draft.Texts("{path}", "{path}/", fallback))
		}
		return
	}
	t.im.used(d)
	list, err := t.tries(d)
	if err != nil {
		t.im.leave(d, err.Error())
		return
	}
	if slices.Equal(list, []string{"{path}", "{path}/", "=404"}) {
		return // that is what static does
	}
	node.Set("try", draft.Texts(list...))
}

func (t *site) tries(d *nginxconf.Directive) (list []string, err error) {
	for i, text := range d.Texts() {
		last := i == len(d.Args)-1
		if last {
			if status, is := strings.CutPrefix(text, "="); is {
				if !slices.Contains([]string{"403", "404", "410"}, status) {
					return nil, fmt.Errorf("try ends with =403, =404 or =410: use a route that answers %s", status)
				}
				return append(list, text), nil
			}
			if script := t.rewritten(text); script != "" {
				text = script
			}
			if strings.HasPrefix(text, "@") {
				return append(list, text), nil
			}
			if script, is := strings.CutSuffix(text, ".php$request_uri"); is {
				text = script + ".php$uri" // the query stays as it is
			}
			for _, query := range []string{"$is_args$args", "?$args", "?$query_string", "$is_args$query_string", "?$is_args$args"} {
				text = strings.TrimSuffix(text, query) // the query stays as it is
			}
		}
		text = strings.ReplaceAll(text, "$document_root", "")
		out, err := template(text, map[string]string{"uri": "{path}", "document_uri": "{path}", "host": "{host}"}, t.server.values)
		if err != nil || strings.Contains(out, "?") && !last {
			return nil, fmt.Errorf("write try with {path} and paths of the site: %s cannot be", text)
		}
		if before, query, has := strings.Cut(out, "?"); has {
			if before != "/index.php" {
				return nil, fmt.Errorf("try has no query: write a rule that rewrites to %s?%s", before, query)
			}
			t.im.leave(d, fmt.Sprintf("the query %q is not added: applications with a front controller read the path itself (REQUEST_URI)", query))
			out = before
		}
		if !strings.HasPrefix(out, "/") && !strings.HasPrefix(out, "{path}") {
			out = "/" + out
		}
		list = append(list, out)
	}
	return list, nil
}

// around translates what holds for whatever answers.
func (t *site) around(l *location, node *draft.Node) {
	if node.Get("deny") == nil && t.passwords(l, node) {
		t.im.used(l.last("auth_basic"), l.last("auth_basic_user_file"))
	}
	t.either(l, node)
	if errors := t.errors(l, node); errors.Len() > 0 {
		node.Set("errors", errors.Flow())
	}
	t.headers(l, node)
	t.bodySize(l, node)
	if d := l.last("access_log"); d != nil && d.Arg(0) == "off" && (l.own("access_log") != nil || t.server.own("access_log") == d) {
		t.im.used(d)
		node.Set("no_log", draft.Number(true))
	}
	if d := l.own("access_log"); d != nil && d.Arg(0) != "off" {
		t.im.standard(d, "there is one access log for all sites; its lines have the host with format: json")
	}
}

func (t *site) passwords(l *location, node *draft.Node) bool {
	d, file := l.last("auth_basic"), l.last("auth_basic_user_file")
	if l.authURL != "" {
		l.asks(node)
		return d != nil // it is off
	}
	if d == nil {
		return false
	}
	if d.Arg(0) == "off" {
		return true
	}
	if file == nil || strings.Contains(file.Arg(0)+d.Arg(0), "$") {
		t.close(d, "name a file of passwords in auth (see docs/routes.md). The site answers 403 until its first rule is removed")
		return false
	}
	auth := draft.Map().Set("realm", draft.Text(d.Arg(0))).Set("file", draft.Text(t.im.path(file.Arg(0))))
	if l.userField != "" {
		auth.Set("user_header", draft.Text(l.userField))
	}
	node.Set("auth", auth.Flow())
	return true
}

// bodySize translates client_max_body_size where it is not of all sites.
func (t *site) bodySize(l *location, node *draft.Node) {
	d := l.last("client_max_body_size")
	if d == nil {
		return
	}
	v, ok := size(d.Arg(0))
	switch {
	case !ok:
		t.im.leave(d, "set body_bytes, as in 10MiB")
		return
	case strings.TrimLeft(v, "0") == "B" || strings.HasPrefix(v, "0"):
		v = "1024GiB" // 0 is no bound in nginx
	}
	t.im.used(d)
	if slices.Contains(l.list, d) || slices.Contains(t.server.list, d) || l.outer != nil && slices.Contains(l.outer.list, d) {
		if node.Get("body_bytes") != nil {
			return
		}
		if slices.ContainsFunc([]string{"proxy", "cache", "php", "try"}, func(k string) bool { return node.Get(k) != nil }) || t.php != nil {
			node.Set("body_bytes", draft.Number(v))
		}
		return
	}
	t.im.body = v
}

// errors translates error_page. An upstream's own answers keep their bodies
// unless nginx was to look at them.
func (t *site) errors(l *location, node *draft.Node) *draft.Node {
	pages := draft.Map()
	passes := node.Get("proxy") != nil || node.Get("cache") != nil || t.triesUpstream(l)
	intercepts := l.last("proxy_intercept_errors")
	t.im.used(intercepts, l.last("fastcgi_intercept_errors"))
	fallback := t.missingLeadsTo(l)
	for _, d := range l.all("error_page") {
		if node.Get("try") != nil && fallback != "" && d.String() == "error_page 404 = "+fallback {
			t.im.used(d)
			continue
		}
		page, statuses := t.errorPage(d)
		if page == "" {
			continue
		}
		for _, s := range statuses {
			own := slices.Contains([]string{"502", "503", "504", "413"}, s)
			if passes && !own && (intercepts == nil || intercepts.Arg(0) != "on") {
				continue
			}
			if node.Get("try") != nil && s == "404" && strings.HasPrefix(page, "@") {
				continue
			}
			pages.Set(s, draft.Text(page))
		}
	}
	return pages
}

func (t *site) errorPage(d *nginxconf.Directive) (page string, statuses []string) {
	texts := d.Texts()
	if len(texts) < 2 {
		return "", nil
	}
	page, statuses = texts[len(texts)-1], texts[:len(texts)-1]
	if answer := statuses[len(statuses)-1]; strings.HasPrefix(answer, "=") {
		statuses = statuses[:len(statuses)-1]
		if slices.Contains(statuses, "401") && len(t.im.all(t.server.scope, "auth_request")) > 0 {
			t.im.leave(d, "what the asked server answers goes to the client, whose browser follows it: let that server send the redirect to the page for signing in (docs/protection.md)")
			return "", nil
		}
		t.im.leave(d, fmt.Sprintf("the status of an error stays as it is, %s is not sent instead: where a missing file is the application's, write try: ['{path}', '@name']", cmp.Or(strings.TrimPrefix(answer, "="), "the page's")))
	}
	if !strings.HasPrefix(page, "/") && !strings.HasPrefix(page, "@") || strings.Contains(page, "$") {
		t.im.leave(d, "error pages are paths of the site or names of routes: redirect from a page instead")
		return "", nil
	}
	t.im.used(d)
	if path := t.rewritten(page); path != "" {
		page = path
	}
	for _, s := range statuses {
		if n, err := strconv.Atoi(s); err != nil || n < 400 || n > 599 || n == 499 || n == 444 || n >= 494 && n <= 497 {
			t.im.leave(d, "pages are for the statuses 400 to 599 of HTTP: "+s+" is none")
			return page, nil
		}
	}
	return page, statuses
}
