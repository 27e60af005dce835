package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"

	"millrace/cache"
	"millrace/cache/control"
	"millrace/cache/purge"
	images "millrace/images/control"
	"millrace/internal/config"
	"millrace/internal/observe/meter"
	"millrace/internal/ops/admin"
	"millrace/internal/ops/dashboard"
	"millrace/internal/ops/slow"
	"millrace/internal/route/match"
	"millrace/internal/route/site"
	websockets "millrace/websocket/control"
)

func (s *Server) openAdmin(cfg *config.Config) error {
	var err error
	var inherited *os.File
	if from := s.options.From; from != nil {
		inherited = from.Sockets.Admin
	}
	s.admin, err = admin.New(cfg.Admin, admin.Deps{
		Inherited: inherited,
		Upgrade:   s.options.Upgrade,
		Meters:    s.meters,
		Version:   s.options.Version,
		Revision:  s.options.Revision,
		Ready:     func() bool { return !s.server.Draining() },
		Degraded:  s.shared.degraded,
		Reload:    s.options.Reload,
		Routes:    s.controls(),
		Addrs:     s.Addrs,

		Certificates: s.certificates,
		Gather:       []func(){s.measure},
		Profiled:     s.profiled,
		ErrorLog:     s.errors,
	})
	if warning := s.admin.Warning(); err == nil && warning != "" {
		s.errors.Warn(warning)
	}
	return err
}

// AdminAddr is where the admin listener is, empty when it is off.
func (s *Server) AdminAddr() string { return s.admin.Addr() }

// controls are the handlers on the admin listener for caches, WebSockets and
// images, by the prefixes of their paths.
func (s *Server) controls() map[string]http.Handler {
	all := map[string]http.Handler{
		control.Prefix:    control.Handler(s.controlled, s.reached, s.counters),
		websockets.Prefix: websockets.Handler(s.webSockets),
		images.Prefix:     images.Handler(s.Images),
		MaintenancePath:   http.HandlerFunc(s.serveMaintenance),
	}
	if s.board != nil {
		all[dashboard.Prefix] = s.board
		all[slow.Prefix] = s.slow.Handler()
	}
	return all
}

// measure sets the gauges of the caches, images and WebSockets in use.
func (s *Server) measure() {
	memory, files := s.room.Used()
	s.meters.BufferedMemory.Set(memory)
	s.meters.BufferedFiles.Set(files)
	s.server.Measure()
	s.shared.measure()
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, h := range s.graph.caches {
		h.Measure()
	}
	for _, r := range s.graph.websockets {
		r.handler.Measure()
	}
	for _, h := range s.graph.images {
		h.Measure()
	}
}

// counters are those of the caches, as of now.
func (s *Server) counters() []*meter.Cache {
	s.measure()
	return s.meters.Caches()
}

// controlled lists the caches in use by their routes.
func (s *Server) controlled() map[string]controlledCache {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := map[string]controlledCache{}
	for name := range s.graph.caches {
		all[name] = controlledCache{s, name}
	}
	return all
}

// reached is the name of the cache of the route that answers a request; "" if it has none.
func (s *Server) reached(r *http.Request) (string, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	route, _ := s.graph.reach(r)
	if route == nil {
		return "", false
	}
	if on, ok := s.graph.cached[route]; ok {
		for name, h := range s.graph.caches {
			if h == on.cache {
				return name, true
			}
		}
	}
	return route.Pattern, true
}

// reach is the route that answers a request, nil if there is none, and the request as the
// route's job would get it.
func (g *graph) reach(r *http.Request) (*site.Route, *http.Request) {
	table := g.setup.Plain
	if r.TLS != nil {
		table = g.setup.Secure
	}
	on := table.Site(r.Host)
	if on == nil {
		return nil, nil
	}
	f := on.Find(match.Of(r).Head)
	if f.Clean != "" { // where the client is sent
		r = site.WithPath(r, f.Clean, r.URL.RawQuery)
		f = on.Find(match.Of(r).Head)
	}
	r = f.Request(r)
	if on, ok := g.cached[f.Route]; ok && on.auth != nil {
		return f.Route, on.auth.Presume(r)
	}
	return f.Route, r
}

// controlledCache is the cache of a route for the admin listener: after a reload, the new
// one.
type controlledCache struct {
	s    *Server
	name string
}

// use calls f with the cache. No reload happens meanwhile.
func (c controlledCache) use(f func(*cache.Handler)) error {
	c.s.mu.RLock()
	defer c.s.mu.RUnlock()
	h := c.s.graph.caches[c.name]
	if h == nil {
		return fmt.Errorf("the config was read again: the route %s has no cache any more", c.name)
	}
	f(h)
	return nil
}

// Purge also reaches the caches of graphs that are still draining: a request
// that began before a reload may still write to the folder that the new cache
// uses now.
func (c controlledCache) Purge(ctx context.Context, what purge.Selector) error {
	return c.purge(ctx, what, func(h *cache.Handler) error { return h.Purge(ctx, what) })
}

// Announce is Purge, with a function that waits for other machines. It does not hold up a
// reload.
func (c controlledCache) Announce(ctx context.Context, what purge.Selector) (await func(context.Context) error, err error) {
	err = c.purge(ctx, what, func(h *cache.Handler) (err error) {
		await, err = h.Announce(ctx, what)
		return err
	})
	return await, err
}

func (c controlledCache) purge(ctx context.Context, what purge.Selector, current func(*cache.Handler) error) error {
	var errs []error
	gone := c.use(func(h *cache.Handler) {
		errs = append(errs, current(h))
		now := slices.Collect(maps.Values(c.s.graph.caches))
		for g := range c.s.leaving {
			for _, old := range g.caches {
				if !slices.Contains(now, old) {
					errs = append(errs, old.Purge(ctx, what))
				}
			}
		}
	})
	return errors.Join(append(errs, gone)...)
}

// Explain says what would happen to r now.
func (c controlledCache) Explain(r *http.Request) (e cache.Explanation) {
	explain := func(h *cache.Handler) {
		if _, asJob := c.s.graph.reach(r); asJob != nil {
			r = asJob
		}
		e = h.Explain(r)
	}
	if err := c.use(explain); err != nil {
		e.Outcome, e.Reason = "miss", err.Error()
	}
	return e
}

// Recent lists the latest decisions.
func (c controlledCache) Recent(filter string, most int) (list []cache.Decision) {
	_ = c.use(func(h *cache.Handler) { list = h.Recent(filter, most) }) // none, of one that is gone
	return list
}
