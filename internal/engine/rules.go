package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/config"
	"millrace/internal/guard"
	"millrace/internal/lane"
	"millrace/internal/match"
	"millrace/internal/site"
	"millrace/static"
)

// siteFiles are what the answers of a site are made of and its config only names:
// the site has a new number when one of them changes.
func siteFiles(sc config.Site) (stamps []string) {
	look := func(o *guard.Respond) {
		if o == nil || o.File == "" {
			return
		}
		if info, err := os.Stat(o.File); err == nil {
			stamps = append(stamps, fmt.Sprint(o.File, info.Size(), info.ModTime().UnixNano()))
		}
	}
	for _, r := range sc.Rules {
		look(r.Respond)
	}
	for _, key := range slices.Sorted(maps.Keys(sc.Routes)) {
		look(sc.Routes[key].Respond)
	}
	return stamps
}

// site makes what some hosts serve.
func (b *builder) site(listener string, sc config.Site, routes []*site.Route, rules []site.Rule) *site.Site {
	s := site.New(b.siteNumber(listener, []any{sc, siteFiles(sc)}), routes, rules...)
	s.Pages = sc.Pages(config.Route{})
	return s
}

// rules are those of a site, compiled.
func (b *builder) rules(sc config.Site, routes []*site.Route) (rules []site.Rule, err error) {
	for i, o := range sc.Rules {
		m, faults := o.Compile()
		for key, err := range faults {
			return nil, fmt.Errorf("rule %d: %s: %w", i+1, key, err)
		}
		rule := site.Rule{Match: m}
		h, job, err := o.Answer(m.Path)
		switch {
		case err != nil:
		case h != nil:
			rule.Route = &site.Route{Pattern: m.Path.String(), Handler: h, Job: b.server.meters.Job(job), Pages: sc.Pages(config.Route{})}
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
			rule.Rewrite, err = match.NewTemplate(o.Rewrite, m.Path)
		}
		if err != nil {
			return nil, fmt.Errorf("rule %d: %w", i+1, err)
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// around puts what a route has besides its job around its handler.
func (b *builder) around(sc config.Site, rc config.Route, r *site.Route, on *siteRef) error {
	r.BodyBytes, r.NoLog, r.Pages = int64(rc.BodyBytes), rc.NoLog, sc.Pages(rc)
	if len(rc.Try) > 0 {
		t, err := b.try(rc, r, on)
		if err != nil {
			return err
		}
		r.Handler = t
	}
	o := rc.Auth
	if o == nil {
		o = sc.Auth
	}
	if o == nil || o.Off {
		return nil
	}
	gate, err := carry(b, keyOf("auth", o), func() (*guard.Gate, io.Closer, error) {
		g, err := guard.NewGate(*o, b.server.errors)
		return g, nothing{}, err
	})
	if err != nil {
		return fmt.Errorf("auth: %w", err)
	}
	r.Open, r.Handler, r.Private = r.Handler, gate.Wrap(r.Handler), true
	return nil
}

// nothing has nothing to close.
type nothing struct{}

// Close implements [io.Closer].
func (nothing) Close() error { return nil }

// siteRef is the site of a route, once it is built.
type siteRef struct{ site *site.Site }

// try looks for files in turn.
type try struct {
	files  *static.Handler
	prefix string // of the route
	paths  []*match.Template
	job    http.Handler
	on     *siteRef
	last   string
	status int // instead of last; 0: none
}

func (b *builder) try(rc config.Route, r *site.Route, on *siteRef) (*try, error) {
	if rc.Static == nil {
		return nil, errors.New("try needs static beside it")
	}
	files, err := b.static(*rc.Static)
	if err != nil {
		return nil, err
	}
	t := &try{files: files, job: r.Handler, on: on, last: rc.Try[len(rc.Try)-1]}
	if strings.HasSuffix(r.Pattern, "/") {
		t.prefix = strings.TrimSuffix(r.Pattern, "/")
	}
	for _, text := range rc.Try {
		p, err := match.NewTemplate(text, nil)
		if err != nil {
			return nil, fmt.Errorf("try: %w", err)
		}
		t.paths = append(t.paths, p)
	}
	if code, is := strings.CutPrefix(t.last, "="); is {
		if t.status, err = strconv.Atoi(code); err != nil {
			return nil, fmt.Errorf("try: %q is not a status", t.last)
		}
	}
	return t, nil
}

// maxTries bounds how often a path may be tried under another: each of them may
// have a try of its own.
const maxTries = 8

type triesKey struct{}

// ServeHTTP implements [http.Handler].
func (t *try) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	last := len(t.paths) - 1
	for i, p := range t.paths[:last] {
		path, query := p.Path(r, nil)
		below, ok := strings.CutPrefix(path, t.prefix)
		if !ok || !t.files.Has(below) {
			continue
		}
		if path == r.URL.Path+"/" {
			path = r.URL.Path // the job sends the client to the folder
		}
		if i > 0 || path != r.URL.Path { // it holds only while those before it are not there
			lane.Decline(r)
		}
		t.job.ServeHTTP(w, site.WithPath(r, path, query))
		return
	}
	lane.Decline(r)
	if t.status != 0 {
		http.Error(w, strconv.Itoa(t.status)+" "+http.StatusText(t.status), t.status)
		return
	}
	path, query := r.URL.Path, r.URL.RawQuery
	var route *site.Route
	if site.IsName(t.last) {
		route = t.on.site.Named(t.last)
	} else {
		path, query = t.paths[last].Path(r, nil)
		path, _ = site.Clean(path)
		route = t.on.site.Route(path)
	}
	tries, _ := r.Context().Value(triesKey{}).(int)
	switch {
	case route == nil:
		http.Error(w, "Nothing is here.", http.StatusNotFound)
	case path == r.URL.Path && route.Open == nil && route.Handler == http.Handler(t), path == r.URL.Path && route.Open == http.Handler(t):
		t.job.ServeHTTP(w, r) // its own 404
	case tries >= maxTries:
		http.Error(w, "508 Loop Detected", http.StatusLoopDetected)
	default:
		r = r.WithContext(context.WithValue(r.Context(), triesKey{}, tries+1))
		route.Handler.ServeHTTP(w, site.WithPath(r, path, query))
	}
}
