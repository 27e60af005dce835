package nginx

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// location translates a location: its rules, and the route that answers.
func (t *site) location(l *location) {
	if t.rewriteAlone(l) {
		return
	}
	if t.shadowed(l) {
		t.onlyInner(l)
		return
	}
	if t.isAsked(l) {
		return
	}
	if d := l.internal(); d != nil {
		if !t.isErrorPage(l) {
			t.internal(l)
			return
		}
		t.im.Used(d) // the page is shown with an error, which asks no rule
		l.add(l.match(), plan.Deny(404), d.At())
		l.rules[len(l.rules)-1].Outside = true
	}
	t.limitExcept(l)
	if l.block != nil {
		if answer := t.phase(l.scope, l); !answer.None() {
			t.names(l)
			for _, d := range l.list {
				if d.Name == "allow" || d.Name == "deny" {
					t.im.Standard(d, "nginx never comes to it: the location returns before")
				}
			}
			t.answers(l, answer)
			return
		}
	}
	if t.indexAlone(l) {
		return
	}
	access, closed := t.access(l)
	if closed && !t.passwordDoes(l) {
		t.answers(l, plan.Deny(403))
		return
	}
	if l.moved != nil && (!access.None() || t.keepsOut(l)) {
		t.im.Leave(l.moved, "the location answers for the path that this makes, with what it asks of clients: write a route that rewrites it (docs/routes.md)")
		l.rules = slices.DeleteFunc(l.rules, func(r rule) bool { return r.Do.Rewrite != "" })
		t.answers(l, plan.NotImplemented())
		t.leaveWhole(l)
		return
	}
	if t.insideAlias(l) {
		return
	}
	t.subrequests(l)
	r := t.job(l)
	t.names(l)
	if l.kind == namedLocation && slices.ContainsFunc(l.rules, func(r rule) bool { return r.Do.Rewrite == "" }) {
		r = nil // no rule is for a route with a name
		t.im.Leave(l.block, "rules come before named routes: what it says of addresses and methods must be said above")
	}
	switch {
	case r != nil:
		t.guard(l, r, access)
		t.routeOptions(l, r)
		t.route(l, r)
	case l.job != nil: // it is a route already
		t.guard(l, l.job, access)
	case !l.whole: // another location, maybe a more open one, must not answer instead
		t.answers(l, plan.NotImplemented())
		t.leaveWhole(l)
	}
}

// onlyInner translates a prefix that contains another of the same path: only that one
// answers.
func (t *site) onlyInner(l *location) {
	for _, d := range l.list {
		if d.Name != "location" {
			t.im.Standard(d, "nginx never comes to it: the location of the same path within this one answers")
		}
	}
}

// passes reports whether a location forwards requests: then nginx redirects /shop to its
// path /shop/.
func (l *location) passes() bool {
	return slices.ContainsFunc([]string{"proxy_pass", "grpc_pass", "fastcgi_pass", "uwsgi_pass", "scgi_pass", "memcached_pass"}, func(name string) bool { return l.own(name) != nil })
}

// names handles paths that begin like a location's and are not below its folder, such as
// /admin.old for /admin: where nginx keeps clients out of them, no other location may
// answer instead.
func (t *site) names(l *location) {
	if !l.isPrefix() || l.path == "/" || l.loose() || l.odd() || l.inExpression() {
		return
	}
	folder, is := strings.CutSuffix(l.path, "/")
	if !is {
		if t.keepsOut(l) {
			l.add(plan.Cond{Path: l.path + "**", Except: []string{l.path + "/"}}, plan.Deny(404), l.block.At()+": other names that begin like the folder")
		}
		return
	}
	o, _ := t.find(nil, folder)
	answers := strings.HasPrefix(strings.Join(l.own("return").Words(), ""), "2")
	switch {
	case o != nil && o.kind == exactLocation:
		return
	case l.passes() && (o == nil || !o.isPrefix() || o.path != folder): // nginx adds the slash by itself
	case o == nil, !t.keepsOut(o) && (!answers || o.passes()):
		return
	}
	do := plan.Deny(404)
	switch {
	case l.own("return") != nil:
	case l.passes():
		do, _ = plan.Redirect(l.path, 301) // a path is an address
	default:
		return // files: the client is sent to the folder's own path
	}
	l.apart = append(l.apart, plan.Rule{If: plan.Cond{Path: folder}, Do: do, Note: l.block.At() + ": the same path without its slash"})
}

// leaveWhole reports a location as not translated, in one line for all that is in it.
func (t *site) leaveWhole(l *location) {
	if l.block == nil {
		return
	}
	var reasons []string
	for _, d := range l.list {
		if note := t.im.Note(d); note.Outcome == draft.Untranslated {
			reasons = append(reasons, strings.TrimSuffix(d.String(), ";")+": "+note.Why)
		}
	}
	t.im.Leave(l.block, "it answers 501 until you have written it: "+cmp.Or(strings.Join(draft.Unique(reasons), "; "), "see docs/config.md for what there is"))
}

// indexAlone reports whether a location matches just a folder's index file and says
// nothing of how to answer. nginx needs it, since it looks for a location again with the
// path of the index; here the route of the folder answers.
func (t *site) indexAlone(l *location) bool {
	if l.kind != exactLocation || !strings.HasSuffix(l.path, "/") || !slices.ContainsFunc(t.locations, func(o *location) bool {
		return o.kind == prefixLocation && o.covers(l.path) && o.own("alias") == nil && o.own("proxy_pass") == nil
	}) {
		return false
	}
	for _, d := range l.list {
		if !slices.Contains([]string{"if", "rewrite", "break", "set", "access_log", "log_not_found", "error_log"}, d.Name) {
			return false
		}
	}
	t.im.Standard(l.block, "the index of the folder is the same by the folder's own route")
	return true
}

// passwordNeeded reports whether nobody comes in without a password.
func (t *site) passwordNeeded(l *location) bool {
	auth, satisfy := l.last("auth_basic"), l.last("satisfy")
	return auth != nil && auth.Arg(0) != "off" && (satisfy == nil || satisfy.Arg(0) != "any")
}

// passwordDoes reports whether a password is enough to come in (satisfy any).
func (t *site) passwordDoes(l *location) bool {
	d, auth := l.last("satisfy"), l.last("auth_basic")
	return d != nil && d.Arg(0) == "any" && auth != nil && auth.Arg(0) != "off"
}

// either makes a password needless for the addresses that are let in.
func (t *site) either(l *location, r *plan.Route) {
	d := l.last("satisfy")
	if d == nil || d.Arg(0) != "any" {
		t.im.Standard(d, "an address and a password are both required")
		return
	}
	switch {
	case r.Auth.None() || len(l.all("allow", "deny")) == 0:
		t.im.Standard(d, "there is one thing to satisfy alone")
	case r.Access.None() && t.passwordDoes(l) && len(l.all("allow")) == 0:
		t.im.Used(d)
	case r.Access.Allow == nil || r.Access.Deny != nil:
		t.im.Leave(d, "an address and a password are both required here, where nginx took either: write the addresses into auth.except")
	default:
		t.im.Used(d)
		r.Auth.Except, r.Access = r.Access.Allow, plan.Access{}
	}
}

// guard sets access, sign-in and rate limits.
func (t *site) guard(l *location, r *plan.Route, access plan.Access) {
	if !access.None() {
		r.Access = access
	}
	t.rateLimit(l, r)
}

// answers adds a location that answers with return: as a rule where it may use captures,
// else as a route.
func (t *site) answers(l *location, answer plan.Action) {
	if l.kind == regexLocation {
		comment := l.block.At()
		if slices.ContainsFunc(l.block.Words(), plan.LooksAhead) {
			comment += ": " + l.block.String() + ", without looking ahead"
		}
		l.add(l.match(), answer, comment)
		l.whole = true
		return
	}
	r := &plan.Route{Action: answer}
	t.routeOptions(l, r)
	t.route(l, r)
}

// internal is the line that keeps clients out of a location; those within it have it, too.
func (l *location) internal() *draft.Directive {
	for at := l; at != nil; at = at.outer {
		if d := at.own("internal"); d != nil {
			return d
		}
	}
	return nil
}

// internal translates a location that clients may not ask for.
func (t *site) internal(l *location) {
	d := l.internal()
	t.im.Standard(d, "what is internal has the status 404 for clients")
	if l.kind != regexLocation {
		t.im.Leave(d, "an upstream cannot send the client to internal files (X-Accel-Redirect): nobody gets them. Let the application send them")
	}
	if l.kind == regexLocation && l.own("fastcgi_pass") != nil && t.php == nil {
		t.php = l
	}
	if folder, is := strings.CutSuffix(l.path, "/"); is && folder != "" && l.passes() {
		l.apart = append(l.apart, plan.Rule{If: plan.Cond{Path: folder}, Do: plan.Deny(404), Note: l.block.At()}) // nginx leads from there to the path with a slash
	}
	t.answers(l, plan.Deny(404))
	for i := range l.rules {
		l.rules[i].Outside = true
	}
}

func (t *site) isErrorPage(l *location) bool {
	return l.kind == namedLocation || slices.ContainsFunc(t.im.all(t.server.scope, "error_page"), func(d *draft.Directive) bool {
		return strings.HasPrefix(d.Arg(len(d.Args)-1), "/") && l.covers(d.Arg(len(d.Args)-1))
	})
}

// all are the directives of a name in a block and all within it.
func (im *importer) all(s *scope, name string) (found []*draft.Directive) {
	var walk func([]*draft.Directive)
	walk = func(list []*draft.Directive) {
		for _, d := range list {
			if d.Name == name {
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
			t.Close(d, "write a rule with the methods and addresses: {method: [\"!GET\"], deny: {}}")
			continue
		}
		t.im.Used(d)
		t.im.Used(d.Block...)
		var methods []string
		for _, m := range d.Words() {
			methods = append(methods, "!"+m)
			if m == "GET" {
				methods = append(methods, "!HEAD")
			}
		}
		c := l.match()
		c.Method = methods
		l.add(c, plan.Deny(403), d.At())
	}
}

// subrequests translates auth_request.
func (t *site) subrequests(l *location) {
	t.authRequest(l)
	for _, name := range []string{"auth_jwt", "access_by_lua_block", "access_by_lua_file", "secure_link", "secure_link_md5", "js_access"} {
		d := l.last(name)
		if d != nil && d.Arg(0) != "off" {
			t.Close(d, "no other server is asked whether a client may come in: let the application decide")
		}
	}
	for at := l.scope; at != nil; at = at.parent {
		for _, d := range at.list {
			if d.Name == "access_by_lua_block" {
				t.Close(d, "no scripts run in the server: let the application decide")
			}
		}
	}
}

// job translates the directive that answers; nil if that cannot be translated.
func (t *site) job(l *location) *plan.Route {
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
		t.im.Leave(d, notAJob(name))
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

// routeOptions translates the directives that go with any job: auth_basic, error_page,
// add_header, client_max_body_size, access_log.
func (t *site) routeOptions(l *location, r *plan.Route) {
	if r.Deny == 0 && t.passwords(l, r) {
		t.im.Used(l.last("auth_basic"), l.last("auth_basic_user_file"))
	}
	t.either(l, r)
	t.errors(l, r)
	t.headers(l, r)
	t.bodySize(l, r)
	if d := l.last("access_log"); d != nil && d.Arg(0) == "off" && (l.own("access_log") != nil || t.server.own("access_log") == d) {
		t.im.Used(d)
		r.NoLog = true
	}
	if d := l.own("access_log"); d != nil && d.Arg(0) != "off" {
		t.im.Standard(d, "there is one access log for all sites; its lines have the host with format: json")
	}
}

func (t *site) passwords(l *location, r *plan.Route) bool {
	d, file := l.last("auth_basic"), l.last("auth_basic_user_file")
	if l.authURL != "" {
		r.Auth = plan.Auth{URL: l.authURL, Copy: l.copies}
		return d != nil // it is off
	}
	if d == nil {
		return false
	}
	if d.Arg(0) == "off" {
		return true
	}
	if file == nil || strings.Contains(file.Arg(0)+d.Arg(0), "$") {
		t.Close(d, "name a file of passwords in auth (see docs/routes.md)")
		return false
	}
	r.Auth = plan.Auth{Realm: d.Arg(0), File: t.im.path(file.Arg(0)), UserHeader: l.userField}
	return true
}

// bodySize translates client_max_body_size where it is not of all sites.
func (t *site) bodySize(l *location, r *plan.Route) {
	d := l.last("client_max_body_size")
	if d == nil {
		return
	}
	v, ok := size(d.Arg(0))
	switch {
	case !ok:
		t.im.Leave(d, "set body_bytes, as in 10MiB")
		return
	case strings.TrimLeft(v, "0") == "B" || strings.HasPrefix(v, "0"):
		v = "1024GiB" // 0 is no bound in nginx
	}
	t.im.Used(d)
	if slices.Contains(l.list, d) || slices.Contains(t.server.list, d) || l.outer != nil && slices.Contains(l.outer.list, d) {
		if r.Body == "" && (r.Passes() || r.PHP.To != nil || r.Try != nil || t.php != nil) {
			r.Body = v
		}
		return
	}
	t.im.body = v
}

// errors translates error_page. An application's own answers keep their bodies
// unless nginx was to look at them.
func (t *site) errors(l *location, r *plan.Route) {
	t.im.Used(l.last("proxy_intercept_errors"), l.last("fastcgi_intercept_errors"))
	fallback := t.missingLeadsTo(l)
	for _, d := range l.all("error_page") {
		if r.Try != nil && fallback != "" && d.String() == "error_page 404 = "+fallback {
			t.im.Used(d)
			continue
		}
		page, statuses := t.errorPage(d)
		for _, s := range statuses {
			if r.Try == nil || s != "404" || !strings.HasPrefix(page, "@") {
				r.Errors.Set(s, page)
			}
		}
	}
	name := "proxy_intercept_errors"
	if r.PHP.To != nil {
		name = "fastcgi_intercept_errors"
	}
	if d := l.last(name); d != nil && d.Arg(0) == "on" && r.Errors != nil {
		r.Intercept = true
	}
}

func (t *site) errorPage(d *draft.Directive) (page string, statuses []string) {
	texts := d.Words()
	if len(texts) < 2 {
		return "", nil
	}
	page, statuses = texts[len(texts)-1], texts[:len(texts)-1]
	if answer := statuses[len(statuses)-1]; strings.HasPrefix(answer, "=") {
		statuses = statuses[:len(statuses)-1]
		if slices.Contains(statuses, "401") && len(t.im.all(t.server.scope, "auth_request")) > 0 {
			t.im.Leave(d, "what the asked server answers goes to the client, whose browser follows it: let that server send the redirect to the page for signing in (docs/protection.md)")
			return "", nil
		}
		t.im.Leave(d, fmt.Sprintf("the status of an error stays as it is, %s is not sent instead: where a missing file is the application's, write try: ['{path}', '@name']", cmp.Or(strings.TrimPrefix(answer, "="), "the page's")))
	}
	if !strings.HasPrefix(page, "/") && !strings.HasPrefix(page, "@") || strings.Contains(page, "$") {
		t.im.Leave(d, "error pages are paths of the site or names of routes: redirect from a page instead")
		return "", nil
	}
	t.im.Used(d)
	if path := t.rewritten(page); path != "" {
		page = path
	}
	for _, s := range statuses {
		if n, err := strconv.Atoi(s); err != nil || n < 400 || n > 599 || n == 499 || n == 444 || n >= 494 && n <= 497 {
			t.im.Leave(d, "pages are for the statuses 400 to 599 of HTTP: "+s+" is none")
			return page, nil
		}
	}
	return page, statuses
}
