package engine

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"millrace/images"
	"millrace/internal/access/signin"
	"millrace/internal/config"
	"millrace/internal/plugin"
	"millrace/internal/route/match"
	"millrace/internal/route/site"
	"millrace/internal/server/guard"
	"millrace/internal/wire/netset"
	"millrace/static"
)

// answers follows the request into the route, or the rule, that answers it.
func (e *explainer) answers(r *http.Request) error {
	f := e.found
	if f.Private {
		e.cold = fmt.Sprintf("rule %d looks at %s, which the lane does not compare", f.PrivateBy, says(e.site.Rules[f.PrivateBy-1]))
	}
	if rc, ok := e.site.Routes[f.Route.Pattern]; ok && (f.Rule == 0 || e.site.Rules[f.Rule-1].Route != "") {
		e.Rule = f.Rule
		return e.enter(r, f.Route, rc)
	}
	e.Rule = f.Rule
	o := e.site.Rules[f.Rule-1]
	of, err := match.NewPath("")
	if o.Regex != "" {
		of, err = match.NewExpression(o.Regex)
	} else if o.Path != "" {
		of, err = match.NewPath(o.Path)
	}
	if err != nil {
		return err //nolint:wrapcheck // never: it was compiled before
	}
	h, job, err := o.Answer(of, e.scope)
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	if ok, err := e.admitted(r, config.Route{}); !ok || err != nil {
		return err
	}
	e.Job = job
	e.byItself(r, h, "rule "+strconv.Itoa(f.Rule))
	return nil
}

// says lists what a rule looks at in a request beside the path.
func says(o guard.Rule) string {
	var list []string
	for _, c := range []struct {
		name string
		has  bool
	}{{"the query", len(o.Query) > 0}, {"the address", len(o.Address) > 0}, {"a header", len(o.Header) > 0}, {"a cookie", len(o.Cookie) > 0}} {
		if c.has {
			list = append(list, c.name)
		}
	}
	if len(list) == 0 {
		return "more than the path"
	}
	return strings.Join(list, " and ")
}

// enter follows the request into a route: sign-in and try, before its job.
func (e *explainer) enter(r *http.Request, route *site.Route, rc config.Route) error {
	e.Route, e.route = route.Pattern, rc
	e.addStep("route", "%s: %s", route.Pattern, whyRoute(route.Pattern, r.URL.Path, e.found.Rule))
	if ok, err := e.admitted(r, rc); !ok || err != nil {
		return err
	}
	if o := signInOf(e.site, rc); o != nil {
		if !e.signIn(r, *o) {
			if rc.Cache != nil {
				e.caveat(o.Presume(r), rc)
			}
			return nil
		}
		if !e.excepted(r, *o) {
			r = o.Presume(r)
		}
	}
	for _, o := range pluginsOf(e.site, rc) {
		e.addStep("plugin", "%s sees the request, which it may change or answer, and the answer", o.Name())
		e.cold = cmp.Or(e.cold, "its plugins see every request")
	}
	if rc.BodyBytes > 0 {
		e.addStep("body", "up to %s", rc.BodyBytes)
	}
	if len(rc.Try) > 0 {
		return e.try(r, route, rc)
	}
	return e.job(r, route, rc)
}

// signIn adds a step for sign-in, and reports whether the request may pass.
func (e *explainer) signIn(r *http.Request, o signin.Options) bool {
	e.cold = "behind " + o.Kind() + " nothing is kept"
	if e.excepted(r, o) {
		e.addStep("auth", "%s is not asked for %s (auth.except)", visitorOf(e.client(r)), o.Kind())
		return true
	}
	if _, _, ok := r.BasicAuth(); !ok && o.JWT == nil && o.URL == "" && o.Signed == nil {
		e.addStep("auth", "a password is needed, and the request has none")
		e.ended(http.StatusUnauthorized, "the question for a password")
		return false
	}
	e.addStep("auth", "%s is needed; that is not checked here", o.Kind())
	return true
}

// excepted reports whether the client is let in without being asked.
func (e *explainer) excepted(r *http.Request, o signin.Options) bool {
	except, err := netset.Parse(o.Except)
	return err == nil && len(o.Except) > 0 && except.Has(e.client(r))
}

func whyRoute(pattern, path string, rule int) string {
	switch {
	case site.IsName(pattern) || rule > 0:
		return "it is named"
	case pattern == path:
		return "it is exactly the path"
	case match.IsGlob(pattern):
		return "the path is like it, and no exact path is"
	}
	return "the longest one that the path begins with"
}

// try adds a step for the first of the paths of try that exists.
func (e *explainer) try(r *http.Request, route *site.Route, rc config.Route) error {
	c, err := newCandidates(rc.Try, route.Pattern, e.scope)
	if err != nil {
		return err
	}
	if rc.Static == nil {
		return e.job(r, route, rc)
	}
	files, err := e.folder(*rc.Static)
	if err != nil {
		return err
	}
	defer func() { _ = files.Close() }() // nothing was written
	i, path, query, ok := c.find(r, files.Has)
	if !ok {
		e.ended(http.StatusNotFound, "Nothing is here: what the request says would lead out of the path that try names")
		return nil
	}
	for _, missing := range rc.Try[:i] {
		e.addStep("try", "%s is not there", missing)
	}
	if i > 0 || path != r.URL.Path {
		e.cold = cmp.Or(e.cold, "an answer of try holds only while the paths before it are not there")
	}
	next := site.WithPath(r, path, query)
	if i < len(rc.Try)-1 {
		e.addStep("try", "%s is there: %s", rc.Try[i], path)
		return e.job(next, route, rc)
	}
	if c.status != 0 {
		e.addStep("try", "%s is what is left", c.last)
		e.ended(c.status, "%d, as try says", c.status)
		return nil
	}
	e.addStep("try", "%s is what is left", c.last)
	to := c.end(e.on, next.URL)
	if e.tries++; e.tries > maxTries {
		e.ended(http.StatusLoopDetected, "try leads in circles")
		return nil
	}
	switch {
	case to == nil:
		e.ended(http.StatusNotFound, "Nothing is here.")
	case to == route && path == r.URL.Path:
		return e.job(r, route, rc)
	default:
		e.found.Rule = 0
		return e.enter(next, to, e.site.Routes[to.Pattern])
	}
	return nil
}

// job adds a step for what the route's job does with the request.
func (e *explainer) job(r *http.Request, route *site.Route, rc config.Route) error {
	switch {
	case rc.Proxy != nil && !rc.Proxy.Stays(r.URL):
		e.beside("proxy", rc.Proxy.To)
	case rc.Cache != nil && !rc.Cache.Stays(r.URL):
		e.beside("cache", rc.Cache.To)
	case rc.PHP != nil:
		e.Job, e.To = "php", rc.PHP.To
		e.addStep("job", "php: a script of %s, run by %s, or a file that is none", rc.Static.Root, strings.Join(rc.PHP.To, ", "))
		e.cold = cmp.Or(e.cold, "what a script answers is not kept")
		e.ended(0, "php-fpm at %s, or a file of %s", strings.Join(rc.PHP.To, ", "), rc.Static.Root)
	case rc.Static != nil:
		if err := e.static(r, route, *rc.Static, rc.Images != nil); err != nil || rc.Images == nil {
			return err
		}
		e.asksOfImage(r, *rc.Images)
	case rc.Images != nil:
		e.Job = "images"
		e.addStep("job", "images, with originals of another host")
		e.ended(0, "the best variant that there is of the image")
		e.asksOfImage(r, *rc.Images)
	case rc.Cache != nil:
		e.Job, e.To = "cache", rc.Cache.To
		e.addStep("job", "cache, in front of %s", strings.Join(e.To, ", "))
		if n := rc.Cache.Dictionaries.Of(r.URL.Path); n > 0 {
			e.addStep("job", "browsers that have another answer, by %s, get what is different, if the answer is everybody's (cache.dictionaries)", rc.Cache.Dictionaries[n-1])
		}
		e.caveat(r, rc)
		e.addStep("cache", "`millrace cache explain URL` asks the running server what it has")
		e.ended(0, "what is stored, or else the answer of %s", strings.Join(e.To, ", "))
	case rc.WebSocket != nil:
		e.Job = "websocket"
		e.addStep("job", "websocket")
		e.cold = cmp.Or(e.cold, "WebSockets are conversations")
		e.ended(0, "a WebSocket, or the page to try it with")
	case rc.Proxy != nil:
		e.Job, e.To = "proxy", rc.Proxy.To
		e.addStep("job", "proxy, to %s", strings.Join(e.To, ", "))
		e.cold = cmp.Or(e.cold, "proxy keeps nothing")
		e.ended(0, "the answer of %s", strings.Join(e.To, ", "))
	default:
		return e.builtIn(r, route, rc)
	}
	return nil
}

// beside says why a job answers without its upstream.
func (e *explainer) beside(job string, to []string) {
	e.Job, e.To = job, to
	e.cold = cmp.Or(e.cold, "the upstream is not asked")
	e.ended(http.StatusNotFound, "Nothing is here: the path has dot segments for some servers, which would lead out of the one that the upstream's address or a rewrite names")
}

// caveat says what keeps a cache from keeping an answer.
func (e *explainer) caveat(r *http.Request, rc config.Route) {
	if reason, hint := rc.Cache.Caveat(r); reason != "" {
		e.addStep("cache", "%s", reason)
		if hint != "" {
			e.addStep("cache", "%s", hint)
		}
	}
}

// builtIn are the routes that need no job.
func (e *explainer) builtIn(r *http.Request, route *site.Route, rc config.Route) (err error) {
	var h http.Handler
	switch {
	case rc.Redirect != nil:
		e.Job = "redirect"
		h, err = (&builder{scope: e.scope}).redirect(route.Pattern, *rc.Redirect)
	case rc.Respond != nil:
		e.Job = "respond"
		h, err = rc.Respond.Handler()
	case rc.Deny != nil:
		e.Job = "deny"
		h = rc.Deny.Handler()
	}
	if err != nil || h == nil {
		return err
	}
	e.byItself(r, h, "route "+route.Pattern)
	return nil
}

// byItself calls a handler that needs no upstream.
func (e *explainer) byItself(r *http.Request, h http.Handler, by string) {
	w := &answerHead{header: http.Header{}}
	h.ServeHTTP(w, r)
	if to := w.header.Get("Location"); to != "" {
		e.To = []string{to}
		e.addStep("job", "redirect to %s", to)
		e.ended(w.status, "redirect to %s, by %s", to, by)
	} else {
		e.addStep("job", "%s", e.Job)
		e.ended(w.status, "%d %s, by %s", w.status, http.StatusText(w.status), by)
	}
	if e.Job != "respond" {
		e.cold = cmp.Or(e.cold, e.Job+" is quick by itself and is not kept")
	}
}

// answerHead is a ResponseWriter that keeps the head of an answer.
type answerHead struct {
	header http.Header
	status int
}

// Header implements [http.ResponseWriter].
func (w *answerHead) Header() http.Header { return w.header }

// WriteHeader implements [http.ResponseWriter].
func (w *answerHead) WriteHeader(status int) { w.status = cmp.Or(w.status, status) }

// Write implements [http.ResponseWriter].
func (w *answerHead) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return len(p), nil
}

// asksOfImage adds a step for the size and what else a URL asks for of an image, or for why it
// may not.
func (e *explainer) asksOfImage(r *http.Request, o images.Options) {
	what, err := o.Asked(r)
	switch {
	case e.Status >= http.StatusMultipleChoices: // there is no image
	case err != nil:
		e.addStep("job", "images.params: %v", err)
		e.ended(http.StatusBadRequest, "%v", err)
		e.cold = cmp.Or(e.cold, "what is refused is not kept")
	case what != "":
		e.addStep("job", "the URL asks for the image as %s", what)
	}
}

// static adds a step for the file that answers.
func (e *explainer) static(r *http.Request, route *site.Route, o static.Options, images bool) error {
	e.Job = "static"
	if images {
		e.Job = "images"
	}
	rc := config.Route{Static: &o}
	mount(&rc, route.Pattern)
	files, err := e.folder(*rc.Static)
	if err != nil {
		return err
	}
	defer func() { _ = files.Close() }() // nothing was written
	below := r.URL.Path
	if before, ok := strings.CutSuffix(route.Pattern, "/"); ok {
		below = strings.TrimPrefix(below, before)
	}
	if below == "" {
		e.ended(http.StatusMovedPermanently, "redirect to %s/", r.URL.Path)
		e.cold = cmp.Or(e.cold, "redirects are not kept")
		return nil
	}
	asked := *r
	asked.URL = &url.URL{Path: below, RawQuery: r.URL.RawQuery}
	f := files.Explain(&asked)
	e.cold = cmp.Or(e.cold, f.Cold)
	if f.File != "" {
		e.file(f, o, below)
	} else {
		e.noFile(f, o)
	}
	if len(f.Fields) > 0 {
		e.addStep("job", "the fields below these lines of _headers are added: %s", strings.Trim(fmt.Sprint(f.Fields), "[]"))
	}
	return nil
}

// noFile says why no file answers.
func (e *explainer) noFile(f static.Finding, o static.Options) {
	e.addStep("job", "%s, folder %s: %s", e.Job, strings.Join(o.Folders(), ", then "), f.Why)
	if f.To == "" {
		e.ended(f.Status, "%d: %s", f.Status, f.Why)
		e.cold = cmp.Or(e.cold, "only files are kept")
		return
	}
	e.To = []string{f.To}
	e.ended(f.Status, "redirect to %s, by %s", f.To, f.By)
	e.cold = cmp.Or(e.cold, "redirects are not kept")
}

// file says which file answers, and why that one.
func (e *explainer) file(f static.Finding, o static.Options, below string) {
	e.File = path.Join(f.Folder, f.File)
	e.addStep("job", "%s: %s", e.Job, e.File)
	if folders := o.Folders(); f.Folder != o.Root {
		e.addStep("job", "from %s, which is asked after %s (static.fallback)", f.Folder, strings.Join(folders[:slices.Index(folders, f.Folder)], ", "))
	}
	if n := o.Dictionaries.Of(below); n > 0 {
		e.addStep("job", "where it is text, browsers that have another version, by %s, get what has changed (static.dictionaries)", o.Dictionaries[n-1])
	}
	if f.By == "" {
		e.ended(f.Status, "the file %s", e.File)
		return
	}
	e.addStep("job", "%s", f.Why)
	e.ended(f.Status, "the file %s, by %s", e.File, f.By)
}

// pluginsOf are the plugins of a route, in the order in which they see a request.
func pluginsOf(sc config.Site, rc config.Route) []plugin.Options {
	return slices.Concat(sc.Plugins, rc.Plugins)
}
