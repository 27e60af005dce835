package engine

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/config"
	"millrace/internal/observe/meter"
	"millrace/internal/route/match"
	"millrace/internal/route/site"
	"millrace/internal/wire/netset"
	"millrace/static"
)

// Explanation says what answers a request by a config, and why.
type Explanation struct {
	Request string          `json:"request"`          // as in GET https://example.org/a
	Answer  string          `json:"answer"`           // in one line
	Status  int             `json:"status,omitempty"` // 0: an upstream decides
	Site    string          `json:"site,omitempty"`   // its hosts
	Rule    int             `json:"rule,omitempty"`   // the number of the rule that answers, or names the route
	Route   string          `json:"route,omitempty"`  // its key in the config
	Job     string          `json:"job,omitempty"`
	File    string          `json:"file,omitempty"`
	To      []string        `json:"to,omitempty"` // upstreams, or where a redirect leads
	Hot     bool            `json:"hot"`          // the fast lane can have the answer
	Steps   []ExplainedStep `json:"steps"`
}

// ExplainedStep is one decision on the way.
type ExplainedStep struct {
	Step string `json:"step"`
	Says string `json:"says"`
}

// explainer follows one request through a config, in the order in which the
// server does: listener, site, maintenance, traps, path, rules, route, addresses,
// rates, password, files in turn, job, pages, headers, fast lane. No upstream is asked and nothing is written.
type explainer struct {
	Explanation
	cfg   *config.Config
	site  config.Site
	on    *site.Site
	found site.Found
	route config.Route
	cold  string // why the lane cannot have the answer; "" if it can
	tries int
	scope *match.Scope

	clients *netset.Finder // nil: no proxy is trusted
}

// Explain says what would answer r by cfg. Of r count the method, the URL, Host,
// the header fields, RemoteAddr, and TLS (nil: plain HTTP).
func Explain(cfg *config.Config, r *http.Request) (*Explanation, error) {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	e := &explainer{cfg: cfg}
	e.Request = r.Method + " " + scheme + "://" + r.Host + r.URL.RequestURI()
	if err := e.explain(r); err != nil {
		return nil, err
	}
	e.ends(r)
	return &e.Explanation, nil
}

func (e *explainer) addStep(step, format string, args ...any) {
	e.Steps = append(e.Steps, ExplainedStep{step, fmt.Sprintf(format, args...)})
}

// ended sets the answer, when it is known.
func (e *explainer) ended(status int, format string, args ...any) {
	e.Status, e.Answer = status, fmt.Sprintf(format, args...)
}

func (e *explainer) explain(r *http.Request) error {
	if !e.listener(r) {
		return nil
	}
	sc, how := siteOf(e.cfg, r.Host)
	if sc == nil {
		e.addStep("site", "none has the host %q, and none is for all hosts", r.Host)
		e.ended(http.StatusNotFound, "No site is served under this host name.")
		e.cold = "only answers of a site are kept"
		return nil
	}
	e.site, e.Site = *sc, strings.Join(sc.Hosts, ", ")
	e.addStep("site", "%s", how)
	if err := e.build(); err != nil {
		return err
	}
	if answers, err := e.closed(r); answers || err != nil {
		return err
	}
	if answers, err := e.trapped(r); answers || err != nil {
		return err
	}
	var steps []site.Step
	e.found, steps = e.on.Explain(match.Of(r).Head)
	e.rules(steps)
	switch f := e.found; {
	case f.Clean != "":
		e.addStep("path", "%s is not clean: the client is sent to %s", r.URL.Path, f.Clean)
		e.ended(http.StatusMovedPermanently, "redirect to %s", f.Clean)
		e.cold = "redirects to a clean path are not kept"
		return nil
	case f.Ambiguous:
		e.addStep("path", "some servers read %s as a path that another route or rule is for: it is not passed on", r.URL.Path)
		e.ended(http.StatusBadRequest, "This path can be read in more than one way.")
		e.cold = "no route answers"
		return nil
	case f.Route == nil:
		e.addStep("route", "none is for %s", f.Path)
		e.ended(http.StatusNotFound, "Nothing is here.")
		e.cold = "no route answers"
		return nil
	}
	return e.answers(e.found.Request(r))
}

// listener is the address that the request comes to; false if the answer is
// that of the address.
func (e *explainer) listener(r *http.Request) bool {
	listen, name := e.cfg.Listen, "plain HTTP"
	if r.TLS != nil {
		listen, name = e.cfg.TLS.Listen, "HTTPS"
	}
	if len(listen) == 0 {
		e.addStep("listener", "%s is not served: no address listens for it; what follows would hold if one did", name)
	} else {
		e.addStep("listener", "%s, at %s", name, strings.Join(listen, ", "))
	}
	if r.TLS == nil && e.cfg.TLS.Redirects() {
		e.addStep("redirect", "plain HTTP is sent to HTTPS (tls.redirect)")
		e.ended(http.StatusPermanentRedirect, "redirect to https://%s%s", r.Host, r.URL.RequestURI())
		e.cold = "redirects are not kept"
		return false
	}
	return true
}

// siteOf is the site for a host, and why.
func siteOf(cfg *config.Config, host string) (sc *config.Site, how string) {
	t := site.NewTable()
	for i, sc := range cfg.Sites {
		t.Add(site.New(uint64(i)+1, nil), sc.Hosts)
	}
	on := t.Site(host)
	if on == nil {
		return nil, ""
	}
	sc = &cfg.Sites[on.ID-1]
	name := "the one"
	if len(sc.Hosts) > 0 {
		name = strings.Join(sc.Hosts, ", ")
	}
	switch {
	case !t.Named(host):
		how = fmt.Sprintf("%s for all hosts that no other site names (site %d)", name, on.ID)
	case slices.ContainsFunc(sc.Hosts, func(h string) bool { return strings.EqualFold(h, strings.TrimSuffix(bareHost(host), ".")) }):
		how = fmt.Sprintf("%s (site %d): the host is one of its names", name, on.ID)
	default:
		how = fmt.Sprintf("%s (site %d): a name with a star covers the host", name, on.ID)
	}
	return sc, how
}

// bareHost is a Host without its port.
func bareHost(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		return host[:i]
	}
	return host
}

// build makes the site with its rules and without jobs.
func (e *explainer) build() error {
	b := &builder{server: &Server{meters: meter.New()}, config: e.cfg, old: newGraph(), next: newGraph()}
	trusted, err := netset.Parse(e.cfg.TrustedProxies())
	if err != nil {
		return fmt.Errorf("limits.trusted_proxies: %w", err)
	}
	e.clients = netset.NewFinder(trusted, e.cfg.Limits.ClientHeader)
	if err := b.compileTables(e.clients); err != nil {
		return err
	}
	e.scope = b.scope
	var routes []*site.Route
	for pattern, rc := range e.site.Routes {
		routes = append(routes, &site.Route{Pattern: pattern, RawPath: passesRawPaths(e.site, rc), Private: signInOf(e.site, rc) != nil})
	}
	rules, err := b.rules(e.site, routes, nil)
	if err != nil {
		return err
	}
	e.on = site.New(1, routes, rules...)
	return nil
}

// rules adds a step for each rule; those for other paths share one.
func (e *explainer) rules(steps []site.Step) {
	var others []string
	flush := func() {
		if len(others) == 1 {
			e.addStep("rule "+others[0], "is for other paths")
		} else if len(others) > 1 {
			e.addStep("rules "+others[0]+"–"+others[len(others)-1], "are for other paths")
		}
		others = nil
	}
	for _, s := range steps {
		number := strconv.Itoa(s.Rule)
		switch {
		case !s.Path:
			others = append(others, number)
			continue
		case s.Fails != "":
			flush()
			e.addStep("rule "+number, "%s, but not with this %s", s.Pattern, strings.TrimSpace(s.Fails+" "+s.Name))
		case s.Nowhere:
			flush()
			e.addStep("rule "+number, "%s: what the request says would lead out of the path that the rule names, and nothing answers", s.Pattern)
		case s.To != "":
			flush()
			e.addStep("rule "+number, "%s: the path is %s from here on", s.Pattern, s.To)
		default:
			flush()
			e.addStep("rule "+number, "%s: holds, and ends the way", s.Pattern)
		}
	}
	flush()
}

// ends adds the steps after the job: error page, header fields, and whether the fast lane
// may keep the answer.
func (e *explainer) ends(r *http.Request) {
	pages := e.site.Pages(e.route)
	if page := pages.For(e.Status); page != "" {
		e.addStep("page", "the answer to %d is %s (errors), with the same status", e.Status, page)
		e.cold = "pages for errors are not kept"
	}
	e.fields()
	switch {
	case e.cfg.Lane.Off:
		e.cold = "the lane is off (lane.off)"
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		e.cold = "only GET and HEAD are kept"
	}
	if e.cold == "" {
		e.Hot = true
		text := "hot: the fast lane answers from the second request on"
		if len(e.found.Vary) > 0 {
			text += ", to requests with the same " + strings.Join(e.found.Vary, ", ")
		}
		e.addStep("lane", "%s", text)
		return
	}
	e.addStep("lane", "cold: %s", e.cold)
}

// folder opens a route's folder for reading.
func (e *explainer) folder(o static.Options) (*static.Handler, error) {
	h, err := static.Inspect(o.Root, o)
	if err != nil {
		return nil, fmt.Errorf("looking at the files: %w", err)
	}
	return h, nil
}
