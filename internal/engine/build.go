package engine

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"millrace/cache"
	"millrace/internal/config"
	"millrace/internal/observe/accesslog"
	"millrace/internal/process/steer"
	"millrace/internal/route/match"
	"millrace/internal/route/site"
	"millrace/internal/server/guard"
	"millrace/internal/wire/netset"
)

// builder makes the graph of a config. Each job has its own file with the
// builder's methods for it, named after the job's package.
type builder struct {
	server *Server
	config *config.Config
	old    *graph // the graph that serves now; empty at the start
	next   *graph // the one that is being built
	scope  *match.Scope
	closed bool // for maintenance

	surveys int // new folders so far

	clients *netset.Finder
}

// build makes the graph for cfg; old may be nil. After an error everything that
// was opened for it is closed again.
func (s *Server) build(cfg *config.Config, old *graph) (*graph, error) {
	defer s.collectSooner(cfg)()
	if old == nil {
		old = newGraph()
		close(old.closed)
	}
	b := &builder{server: s, config: cfg, old: old, next: newGraph()}
	b.next.before = old.closed
	b.closed = cfg.Maintenance.On
	if s.closed != nil {
		b.closed = s.closed.On
	}
	s.builds++
	if err := b.build(); err != nil {
		_ = b.next.close(old)
		return nil, err
	}
	return b.next, nil
}

func (b *builder) build() (err error) {
	if err = b.accessLog(); err != nil {
		return err
	}
	cfg, setup := b.config, &b.next.setup
	setup.Listen, setup.TLS, setup.Limits, setup.HTTP3 = cfg.Listen, cfg.TLS, cfg.Limits, http3()
	setup.Responders = http.DefaultClient
	setup.Inherited, setup.Listeners = b.server.options.Sockets, b.server.options.Listeners
	if from := b.server.options.From; from != nil {
		setup.Inherited, setup.Successor, setup.OwnTickets = from.Sockets.Public, true, from.State.Tickets
	}
	setup.Generation = steer.Of(b.server.predecessors)
	trusted, err := netset.Parse(cfg.TrustedProxies())
	if err != nil {
		return fmt.Errorf("limits.trusted_proxies: %w", err)
	}
	b.clients = netset.NewFinder(trusted, cfg.Limits.ClientHeader)
	setup.Trusted, setup.Clients = trusted.Has, b.clients
	if setup.Tracing, err = b.follow(); err != nil {
		return err
	}
	if setup.ProxyProtocolFrom, err = netset.Parse(cfg.ProxyProtocol.From); err != nil {
		return fmt.Errorf("proxy_protocol.from: %w", err)
	}
	if err = b.compileTables(setup.Clients); err != nil {
		return err
	}
	if setup.Tickets, err = b.tickets(); err != nil {
		return fmt.Errorf("tls.tickets.shared: %w", err)
	}
	if err = b.certificates(); err != nil {
		return fmt.Errorf("tls.auto: %w", err)
	}
	setup.Plain, setup.Secure = site.NewTable(), site.NewTable()
	setup.OnlySockets = !slices.ContainsFunc(cfg.Sites, hasFiles)
	if cfg.TLS.Redirects() {
		b.redirectToTLS()
	}
	for _, sc := range cfg.Sites {
		on := &siteRef{}
		routes, err := b.routes(sc, on)
		if err != nil {
			return err
		}
		gate, _, err := b.gates(sc, config.Route{}, "")
		if err != nil {
			return err
		}
		rules, err := b.rules(sc, routes, gate)
		if err == nil {
			rules, err = b.closes(rules)
		}
		if err != nil {
			return err
		}
		if on.site, err = b.site(tlsKind(cfg), sc, routes, rules, gate); err != nil {
			return err
		}
		setup.Secure.Add(on.site, sc.Hosts)
		if !cfg.TLS.Redirects() {
			plain, err := b.site("plain", sc, routes, rules, gate)
			if err != nil {
				return err
			}
			setup.Plain.Add(plain, sc.Hosts)
		}
	}
	return nil
}

// hasFiles reports whether a site has jobs with files or upstreams of their own
// besides its WebSockets.
func hasFiles(sc config.Site) bool {
	for _, r := range sc.Routes {
		if r.WebSocket == nil && r.Redirect == nil && r.Respond == nil && r.Deny == nil {
			return true
		}
	}
	return false
}

// tlsKind is the kind of listener of sites over TLS. It holds what their answers say of
// HTTP/3 (Alt-Svc) and of HTTPS (HSTS): where that changes, finished answers are not
// valid any more.
func tlsKind(cfg *config.Config) string {
	kind := "tls"
	if cfg.TLS.HTTP3 {
		kind = fmt.Sprint("tls and http3 ", cfg.TLS.Listen)
	}
	if cfg.TLS.HSTS != nil {
		kind += fmt.Sprint(" hsts ", *cfg.TLS.HSTS)
	}
	return kind
}

// redirectToTLS sends plain requests to the first TLS listener, for the hosts
// that a site or the certificate names.
func (b *builder) redirectToTLS() {
	setup, srv := &b.next.setup, b.server
	port := guard.RedirectPort(b.config.TLS.Listen)
	secure := setup.Secure
	known := func(host string) bool { return secure.Named(host) || srv.server.Certifies(host) }
	to := &site.Route{Pattern: "/", Handler: guard.ToHTTPS(port, known), Job: srv.meters.Job("redirect")}
	setup.Plain.Add(site.New(b.siteNumber("redirect", port), []*site.Route{to}), nil)
}

// routes are those of a site, with their jobs.
func (b *builder) routes(sc config.Site, on *siteRef) (routes []*site.Route, err error) {
	for _, pattern := range slices.Sorted(maps.Keys(sc.Routes)) {
		rc := sc.Routes[pattern]
		policy := sc.CORSOptions(&rc)
		if rc.Cache != nil && policy != nil { // what it keeps is then for all origins
			o := *rc.Cache
			o.CORS, rc.Cache = *policy, &o
		}
		mount(&rc, pattern)
		h, job, err := b.job(sc.Hosts, pattern, rc)
		if err != nil {
			return nil, fmt.Errorf("route %s: %w", pattern, err)
		}
		folder := rc.Static != nil || rc.Images != nil || rc.WebSocket != nil && rc.WebSocket.Channels != nil
		r := &site.Route{Pattern: pattern, Handler: site.Mount(pattern, h, folder), Job: b.server.meters.Route(siteName(sc.Hosts), pattern, job), RawPath: passesRawPaths(sc, rc), Foreign: rc.Handler != nil, Passes: rc.Proxy != nil || rc.Cache != nil || rc.PHP != nil || rc.WebSocket != nil && rc.WebSocket.Proxy != nil}
		if c, ok := h.(*cache.Handler); ok {
			b.next.cached[r] = cachedRoute{c, signInOf(sc, rc)}
		}
		if err := b.wrapHandler(sc, rc, r, on); err != nil {
			return nil, fmt.Errorf("route %s: %w", pattern, err)
		}
		if r.Headers, r.CORS, err = answers(b.config.HeaderLists(sc, &rc), policy); err != nil {
			return nil, fmt.Errorf("route %s: %w", pattern, err)
		}
		routes = append(routes, r)
	}
	return routes, nil
}

// passesRawPaths reports whether a route passes paths on that are not clean, such as /a/../b. Where another
// server or a plugin decides by the path who is let in, it does not: the upstream might read
// dots in another way.
func passesRawPaths(sc config.Site, rc config.Route) bool {
	o := signInOf(sc, rc)
	switch {
	case o != nil && o.URL != "" || len(pluginsOf(sc, rc)) > 0:
		return false
	case rc.Handler != nil:
		return true
	case rc.Proxy != nil:
		return !rc.Proxy.Rewrites()
	case rc.Cache != nil:
		return !rc.Cache.Rewrites()
	}
	return false
}

// siteNumber is the number of a site on one kind of listener. It is the old one if nothing
// about the site has changed, so that its finished answers stay; else a new one.
func (b *builder) siteNumber(listener string, what any) uint64 {
	k := keyOf(listener, what)
	id, ok := b.old.ids[k]
	if !ok {
		b.server.serial++
		id = b.server.serial
	}
	b.next.ids[k] = id
	return id
}

// keyOf identifies options: it is equal for equal ones alone. It is the kind and a SHA-256,
// since the options themselves would take kilobytes for each site.
func keyOf(kind string, what any) string {
	b, err := json.Marshal(what)
	if err != nil {
		panic(fmt.Sprintf("engine: options of %s cannot be compared: %v", kind, err)) // a mistake in an Options type
	}
	sum := sha256.Sum256(b)
	return kind + " " + string(sum[:])
}

// job makes the handler of a route and returns its job's name.
func (b *builder) job(hosts []string, pattern string, rc config.Route) (h http.Handler, job string, err error) {
	switch name := routeName(hosts, pattern); {
	case rc.Handler != nil:
		return rc.Handler, "handler", nil
	case rc.PHP != nil:
		h, err = b.php(name, pattern, rc)
		return h, "php", err
	case rc.Images != nil:
		h, err = b.images(name, rc)
		return h, "images", err
	case rc.Static != nil:
		h, err = b.static(rc)
		return h, "static", err
	case rc.Cache != nil:
		h, err = b.cache(name, *rc.Cache)
		return h, "cache", err
	case rc.WebSocket != nil:
		h, err = b.webSocket(hosts, pattern, *rc.WebSocket)
		return h, "websocket", err
	case rc.Proxy != nil:
		h, err = b.proxy(*rc.Proxy)
		return h, "proxy", err
	case rc.Redirect != nil:
		h, err = b.redirect(pattern, *rc.Redirect)
		return h, "redirect", err
	case rc.Respond != nil:
		h, err = rc.Respond.Handler()
		return h, "respond", err
	case rc.Deny != nil:
		return rc.Deny.Handler(), "deny", nil
	}
	return nil, "", errors.New("no job is named: write static, images, php, cache, proxy, websocket, redirect, respond or deny")
}

// redirect is the handler of a route that redirects, by a template where it has one.
func (b *builder) redirect(pattern string, o guard.Redirect) (http.Handler, error) {
	if !strings.Contains(o.To, "{") {
		return o.Handler(pattern), nil
	}
	of, err := match.NewPath(pattern)
	if err != nil {
		of, err = match.NewPath("") // a name
	}
	if err != nil {
		return nil, err //nolint:wrapcheck // never: every path
	}
	return o.Matched(of, b.scope) //nolint:wrapcheck // the caller says which route
}

// siteName is what the dashboard calls a site: its first host, or "*" for every host.
func siteName(hosts []string) string {
	if len(hosts) > 0 {
		return hosts[0]
	}
	return "*"
}

// routeName is a route's name in the metrics and on the command line.
func routeName(hosts []string, pattern string) string {
	if len(hosts) > 0 {
		return hosts[0] + pattern
	}
	return pattern
}

// reuseOrOpen takes a part (a cache, a pool of connections, a bus) over from the old
// graph, or opens a new one. A part that uses others comes after them.
func reuseOrOpen[T any](b *builder, k string, open func() (T, io.Closer, error)) (T, error) {
	p, ok := b.next.parts[k]
	if !ok {
		if p, ok = b.old.parts[k]; !ok || b.freedPart(k) {
			what, closer, err := open()
			if err != nil {
				return what, err
			}
			p = part{what, closer, new(byte)}
		}
		b.next.parts[k] = p
		b.next.opened = append(b.next.opened, k)
	}
	return p.what.(T), nil
}

// accessLog carries the access log over when its options are the same.
func (b *builder) accessLog() (err error) {
	b.next.logKey = keyOf("log", b.config.Log)
	if b.old.logKey == b.next.logKey {
		b.next.setup.Log = b.old.setup.Log
		return nil
	}
	b.next.setup.Log, err = accesslog.Open(b.config.Log, &b.server.meters.LogDropped, accesslog.Reports(b.server.errors))
	b.next.setup.Log = accesslog.Watched(b.next.setup.Log, b.server.recent)
	return err
}
