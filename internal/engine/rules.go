package engine

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"slices"

	"millrace/internal/access/admit"
	"millrace/internal/access/signin"
	"millrace/internal/config"
	"millrace/internal/route/headers"
	"millrace/internal/route/match"
	"millrace/internal/route/site"
	"millrace/internal/server/guard"
	"millrace/internal/wire/message"
	"millrace/internal/wire/netset"
)

// siteFiles are files whose content goes into a site's answers while the config only names
// them. The site gets a new number when one of them changes.
func (b *builder) siteFiles(sc config.Site) (stamps []string) {
	file := func(name string) {
		if info, err := os.Stat(name); err == nil {
			stamps = append(stamps, fmt.Sprint(name, info.Size(), info.ModTime().UnixNano()))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.config.Tables)) {
		t := b.config.Tables[name]
		stamps = append(stamps, keyOf("table "+name, t))
		file(t.File)
	}
	if b.closed {
		stamps = append(stamps, keyOf("maintenance", b.config.Maintenance))
		file(b.config.Maintenance.File)
	}
	look := func(o *guard.Respond) {
		if o == nil || o.File == "" {
			return
		}
		file(o.File)
	}
	for _, r := range sc.Rules {
		look(r.Respond)
	}
	for _, key := range slices.Sorted(maps.Keys(sc.Routes)) {
		look(sc.Routes[key].Respond)
		if rc := sc.Routes[key]; rc.Handler != nil || rc.Files != nil { // which cannot be compared
			stamps = append(stamps, fmt.Sprint("build ", b.server.builds))
		}
	}
	return stamps
}

// site makes what some hosts serve.
func (b *builder) site(listener string, sc config.Site, routes []*site.Route, rules []site.Rule, gate *admit.Gate) (_ *site.Site, err error) {
	lists := b.config.HeaderLists(sc, nil)
	s := site.New(b.siteNumber(listener, []any{sc, b.siteFiles(sc), lists}), routes, rules...)
	s.Pages, s.Gate = sc.Pages(config.Route{}), gate
	if s.Trap, err = b.trap(sc); err != nil {
		return nil, fmt.Errorf("traps: %w", err)
	}
	s.Headers, s.CORS, err = answers(lists, sc.CORSOptions(nil))
	return s, err
}

// answers are the rules for the header of answers, compiled.
func answers(lists []headers.List, o *headers.CORSOptions) (*headers.AnswerRules, *headers.CORS, error) {
	rules, faults := headers.CompileAnswers(lists)
	for key, err := range faults {
		return nil, nil, fmt.Errorf("headers: %s: %w", key, err)
	}
	if o == nil {
		return rules, nil, nil
	}
	policy, err := headers.NewCORS(*o)
	if err != nil {
		return nil, nil, fmt.Errorf("cors: %w", err)
	}
	return rules, policy, nil
}

// compileTables reads the tables, which rules and routes may name.
func (b *builder) compileTables(clients *netset.Finder) error {
	b.scope = &match.Scope{Tables: map[string]*match.Table{}}
	if clients != nil {
		b.scope.Client = func(q *message.Request) netip.Addr { return q.Client(clients) }
	}
	for _, name := range slices.Sorted(maps.Keys(b.config.Tables)) {
		t, faults := b.config.Tables[name].Compile(b.scope)
		for key, err := range faults {
			return fmt.Errorf("table %s: %s: %w", name, key, err)
		}
		b.scope.Tables[name] = t
	}
	return nil
}

// needs restricts a rule to requests for which its tables have an entry.
func (b *builder) needs(m *match.Matcher, o guard.Rule) error {
	to := o.Rewrite
	if o.Redirect != nil {
		to = o.Redirect.To
	}
	t, err := match.NewTemplate(to, m.Path, b.scope)
	if err != nil {
		return err //nolint:wrapcheck // says it all
	}
	for _, table := range t.Tables() {
		m.Needs(table)
	}
	return nil
}

// rules are those of a site, compiled.
func (b *builder) rules(sc config.Site, routes []*site.Route, gate *admit.Gate) (rules []site.Rule, err error) {
	for i, o := range sc.Rules {
		m, faults := o.Compile(b.scope)
		for key, err := range faults {
			return nil, fmt.Errorf("rule %d: %s: %w", i+1, key, err)
		}
		rule := site.Rule{Match: m}
		if err := b.needs(m, o); err != nil {
			return nil, fmt.Errorf("rule %d: %w", i+1, err)
		}
		h, job, err := o.Answer(m.Path, b.scope)
		switch {
		case err != nil:
		case h != nil:
			rule.Route = &site.Route{Pattern: m.Path.String(), Handler: h, Job: b.server.meters.Job(job), Pages: sc.Pages(config.Route{}), Gate: gate}
			rule.Route.Headers, rule.Route.CORS, err = answers(b.config.HeaderLists(sc, nil), sc.CORSOptions(nil))
		case o.Route != "":
			for _, r := range routes {
				if r.Pattern == o.Route {
					rule.Route = r
				}
			}
			if rule.Route == nil {
				err = fmt.Errorf("there is no route %s", o.Route)
			}
		default:
			rule.Rewrite, err = match.NewTemplate(o.Rewrite, m.Path, b.scope)
		}
		if err != nil {
			return nil, fmt.Errorf("rule %d: %w", i+1, err)
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// wrapHandler puts the options that go with any job around a route's handler: early
// hints, try, plugins, sign-in; limits and error pages go into the route itself.
func (b *builder) wrapHandler(sc config.Site, rc config.Route, r *site.Route, on *siteRef) error {
	r.BodyBytes, r.NoLog, r.Pages = int64(rc.BodyBytes), rc.NoLog, sc.Pages(rc)
	if sc.Intercepts(rc) {
		r.Intercepted = r.Pages
	}
	var err error
	if r.Gate, r.OwnGate, err = b.gates(sc, rc, routeName(sc.Hosts, r.Pattern)); err != nil {
		return err
	}
	if len(rc.EarlyHints) > 0 {
		r.Handler = guard.EarlyHints(rc.EarlyHints, r.Handler)
	}
	if len(rc.Try) > 0 {
		t, err := b.try(rc, r, on)
		if err != nil {
			return err
		}
		r.Handler = t
	}
	if err := b.plugins(sc, rc, r); err != nil {
		return err
	}
	o := signInOf(sc, rc)
	if o == nil {
		return nil
	}
	gate, err := reuseOrOpen(b, keyOf("auth", []any{o, b.config.TrustedProxies(), b.config.Limits.ClientHeader}), func() (*signin.Gate, io.Closer, error) {
		g, err := signin.New(*o, b.clients, b.server.errors)
		return g, g, err
	})
	if err != nil {
		return fmt.Errorf("auth: %w", err)
	}
	r.Open, r.Handler, r.Private = gate.Anonymous(cmp.Or(r.Open, r.Handler)), gate.Wrap(r.Handler), true
	return nil
}

// signInOf is the sign-in of a route; nil if everybody may come in.
func signInOf(sc config.Site, rc config.Route) *signin.Options {
	o := rc.Auth
	if o == nil {
		o = sc.Auth
	}
	if o == nil || o.Off {
		return nil
	}
	return o
}
