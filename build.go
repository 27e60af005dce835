package millrace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"millrace/cache"
	"millrace/images"
	"millrace/internal/accesslog"
	"millrace/internal/config"
	"millrace/internal/guard"
	"millrace/internal/proxy"
	"millrace/internal/server"
	"millrace/internal/site"
	"millrace/internal/upstream"
	"millrace/static"
)

// graph is everything that one config leads to. It does not change once it
// serves. What must survive a reload is carried over from the old graph by a
// key that says all there is to know about it.
type graph struct {
	setup  server.Setup
	ids    map[string]uint64 // sites: listener, hosts and routes → number
	parts  map[string]part   // what has a state, by its options
	opened []string          // keys of parts: each after those that it uses
	caches map[string]*cache.Handler
	photos map[string]*images.Handler // routes with images, by name
	logKey string

	sockets map[string]*socketRoute // routes with WebSockets, by name

	before <-chan struct{} // closed when the graph before this one is
	closed chan struct{}   // closed when this one is
}

// part is a job, or what a job works with, that holds something open.
type part struct {
	what   any
	closer io.Closer
}

// build makes the graph for cfg; old may be nil. After an error everything that
// was opened for it is closed again. This is the only place where the jobs meet.
func (s *Server) build(cfg *config.Config, old *graph) (g *graph, err error) {
	g = &graph{ids: map[string]uint64{}, parts: map[string]part{}, caches: map[string]*cache.Handler{}, photos: map[string]*images.Handler{}, sockets: map[string]*socketRoute{}, closed: make(chan struct{})}
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
		for _, pattern := range slices.Sorted(maps.Keys(sc.Routes)) {
			rc := sc.Routes[pattern]
			h, job, err := g.job(s, sc.Hosts, pattern, old, rc)
			if err != nil {
				return g, fmt.Errorf("route %s: %w", pattern, err)
			}
			folder := rc.Static != nil || rc.Images != nil || rc.WebSocket != nil && rc.WebSocket.Channels != nil
			routes = append(routes, &site.Route{Pattern: pattern, Handler: mount(pattern, h, folder), Job: s.meters.Job(job)})
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
func (g *graph) job(s *Server, hosts []string, pattern string, old *graph, rc config.Route) (http.Handler, string, error) {
	switch {
	case rc.Images != nil:
		h, err := g.images(s, nameOf(hosts, pattern), rc, old)
		return h, "images", err
	case rc.Static != nil:
		h, err := g.static(*rc.Static, old)
		return h, "static", err
	case rc.Cache != nil:
		h, err := g.cache(s, nameOf(hosts, pattern), *rc.Cache, old)
		return h, "cache", err
	case rc.WebSocket != nil:
		h, err := g.webSocket(s, hosts, pattern, *rc.WebSocket, old)
		return h, "websocket", err
	case rc.Proxy != nil:
		h, err := g.proxy(s, *rc.Proxy, old)
		return h, "proxy", err
	case rc.Redirect != nil:
		return rc.Redirect.Handler(pattern), "redirect", nil
	case rc.Deny != nil:
		return rc.Deny.Handler(), "deny", nil
	}
	return nil, "", errors.New("no job is named: write static, images, cache, proxy, websocket, redirect or deny")
}

func (g *graph) static(o static.Options, old *graph) (*static.Handler, error) {
	return carry(g, old, keyOf("static", o), func() (*static.Handler, io.Closer, error) {
		h, err := static.Open(o.Root, o)
		return h, h, err
	})
}

// nameOf is how the metrics and the operator call a route.
func nameOf(hosts []string, pattern string) string {
	if len(hosts) > 0 {
		return hosts[0] + pattern
	}
	return pattern
}

// proxy is a reverse proxy; routes with the same upstream have one pool.
func (g *graph) proxy(s *Server, o proxy.Options, old *graph) (http.Handler, error) {
	pool, err := g.pool(s, o.Options, old)
	if err != nil {
		return nil, err
	}
	return proxy.New(o, pool, s.errors)
}

func (g *graph) pool(s *Server, o upstream.Options, old *graph) (*upstream.Pool, error) {
	return carry(g, old, keyOf("upstream", o), func() (*upstream.Pool, io.Closer, error) {
		p, err := upstream.New(o, s.errors)
		return p, p, err
	})
}

// carry takes a part over from the old graph or opens a new one. What it uses
// itself must have been carried before.
func carry[T any](g, old *graph, k string, open func() (T, io.Closer, error)) (T, error) {
	p, ok := g.parts[k]
	if !ok {
		if p, ok = old.parts[k]; !ok {
			what, closer, err := open()
			if err != nil {
				return what, err
			}
			p = part{what, closer}
		}
		g.parts[k] = p
		g.opened = append(g.opened, k)
	}
	return p.what.(T), nil
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
	for _, k := range slices.Backward(g.opened) {
		if _, ok := keep.parts[k]; !ok {
			errs = append(errs, g.parts[k].closer.Close())
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
