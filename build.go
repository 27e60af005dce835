package millrace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"

	"millrace/internal/accesslog"
	"millrace/internal/config"
	"millrace/internal/guard"
	"millrace/internal/server"
	"millrace/internal/site"
	"millrace/static"
)

// graph is everything that one config leads to. It does not change once it
// serves. What must survive a reload is carried over from the old graph by a
// key that says all there is to know about it.
type graph struct {
	setup  server.Setup
	ids    map[string]uint64 // sites: listener, hosts and routes → number
	parts  map[string]part   // jobs with a state, by their options
	logKey string

	before <-chan struct{} // closed when the graph before this one is
	closed chan struct{}   // closed when this one is
}

// part is a job that holds something open.
type part struct {
	handler http.Handler
	closer  io.Closer
}

// build makes the graph for cfg; old may be nil. After an error everything that
// was opened for it is closed again. This is the only place where the jobs meet.
func (s *Server) build(cfg *config.Config, old *graph) (g *graph, err error) {
	g = &graph{ids: map[string]uint64{}, parts: map[string]part{}, closed: make(chan struct{})}
	if old == nil {
		old = &graph{closed: make(chan struct{})}
		close(old.closed)
	}
	g.before = old.closed
	defer func() {
		if err != nil {
			_ = g.close(old)
			g = nil
		}
	}()
	if err = g.openLog(s, cfg.Log, old); err != nil {
		return g, err
	}
	g.setup.Listen, g.setup.TLS, g.setup.Limits = cfg.Listen, cfg.TLS, cfg.Limits
	g.setup.Plain, g.setup.Secure = site.NewTable(), site.NewTable()
	if cfg.TLS.Redirect {
		port := redirectPort(cfg.TLS.Listen)
		to := &site.Route{Pattern: "/", Handler: guard.ToHTTPS(port), Job: s.meters.Job("redirect")}
		g.add(g.setup.Plain, g.id(s, old, "redirect", port), []*site.Route{to}, nil)
	}
	for _, sc := range cfg.Sites {
		var routes []*site.Route
		for pattern, rc := range sc.Routes {
			h, job, err := g.job(pattern, rc, old)
			if err != nil {
				return g, fmt.Errorf("route %s: %w", pattern, err)
			}
			routes = append(routes, &site.Route{Pattern: pattern, Handler: mount(pattern, h, rc.Static != nil), Job: s.meters.Job(job)})
		}
		g.add(g.setup.Secure, g.id(s, old, "tls", sc), routes, sc.Hosts)
		if !cfg.TLS.Redirect {
			g.add(g.setup.Plain, g.id(s, old, "plain", sc), routes, sc.Hosts)
		}
	}
	return g, nil
}

func (g *graph) add(t *site.Table, id uint64, routes []*site.Route, hosts []string) {
	t.Add(site.New(id, routes), hosts)
}

// id is the number of a site on one kind of listener: the old one if nothing
// about it has changed, so that its finished answers live on, else a new one.
func (g *graph) id(s *Server, old *graph, listener string, what any) uint64 {
	k := keyOf(listener, what)
	id, ok := old.ids[k]
	if !ok {
		s.serial++
		id = s.serial
	}
	g.ids[k] = id
	return id
}

// keyOf tells configs apart by all that they say.
func keyOf(kind string, what any) string {
	b, err := json.Marshal(what)
	if err != nil {
		panic(fmt.Sprintf("millrace: options of %s cannot be compared: %v", kind, err)) // a mistake in an Options type
	}
	return kind + " " + string(b)
}

// job makes the handler of a route and names its job.
func (g *graph) job(pattern string, rc config.Route, old *graph) (http.Handler, string, error) {
	switch {
	case rc.Static != nil:
		h, err := g.part(keyOf("static", rc.Static), old, func() (part, error) {
			h, err := static.Open(rc.Static.Root, *rc.Static)
			return part{h, h}, err
		})
		return h, "static", err
	case rc.Redirect != nil:
		return rc.Redirect.Handler(pattern), "redirect", nil
	case rc.Deny != nil:
		return rc.Deny.Handler(), "deny", nil
	}
	return nil, "", errors.New("no job is named: write static, redirect or deny")
}

// part carries a job over from the old graph or opens a new one.
func (g *graph) part(k string, old *graph, open func() (part, error)) (http.Handler, error) {
	if p, ok := g.parts[k]; ok {
		return p.handler, nil
	}
	p, ok := old.parts[k]
	if !ok {
		var err error
		if p, err = open(); err != nil {
			return nil, err
		}
	}
	g.parts[k] = p
	return p.handler, nil
}

// openLog carries the access log over when its options are the same.
func (g *graph) openLog(s *Server, o accesslog.Options, old *graph) (err error) {
	g.logKey = keyOf("log", o)
	if old.logKey == g.logKey {
		g.setup.Log = old.setup.Log
		return nil
	}
	g.setup.Log, err = accesslog.Open(o, &s.meters.LogDropped, func(err error) {
		s.errors.Warn("the access log cannot be written; its lines are dropped and counted", "err", err)
	})
	return err
}

// close closes what this graph has and keep (which may be nil) does not.
func (g *graph) close(keep *graph) error {
	if keep == nil {
		keep = &graph{}
	}
	var errs []error
	for k, p := range g.parts {
		if _, ok := keep.parts[k]; !ok && p.closer != nil {
			errs = append(errs, p.closer.Close())
		}
	}
	if g.setup.Log != keep.setup.Log {
		errs = append(errs, g.setup.Log.Close())
	}
	return errors.Join(errs...)
}

// mount makes the job see its route's folder as the root. Only files live
// below a folder; the other jobs see the path as it is.
func mount(pattern string, h http.Handler, folder bool) http.Handler {
	if !folder || pattern == "/" || !strings.HasSuffix(pattern, "/") {
		return h
	}
	prefix := strings.TrimSuffix(pattern, "/")
	inner := http.StripPrefix(prefix, h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != prefix {
			inner.ServeHTTP(w, r)
			return
		}
		// Relative, so that it is right behind another proxy's prefix, too.
		to := url.URL{Path: path.Base(prefix) + "/", RawQuery: r.URL.RawQuery}
		w.Header().Set("Location", to.String())
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusMovedPermanently)
	})
}

// redirectPort is the port that plain requests are sent to: that of the first
// TLS listener with one.
func redirectPort(addrs []string) string {
	for _, a := range addrs {
		if _, port, err := net.SplitHostPort(a); err == nil && !strings.HasPrefix(a, "unix:") {
			return port
		}
	}
	return "443"
}
