package engine

import (
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"

	"millrace/internal/server"
	"millrace/internal/upstream"
	"millrace/store/bus"
	"millrace/websocket"
	"millrace/websocket/channels"
	"millrace/websocket/conn"
	"millrace/websocket/control"
)

// webSocketRoute is a route with WebSockets.
type webSocketRoute struct {
	control.Route
	handler *websocket.Handler
	engine  *conn.Engine
	alone   bool // what is published in other processes does not reach its clients
	// bound has the bus keep what the config says; nil: it has no history in memory.
	bound func()
}

// serves is called when this graph begins to serve, not before: a config that fails must
// not change the limits of connections.
func (g *graph) serves(errors *slog.Logger) {
	g.limitWebSockets(errors)
	g.boundHistories()
}

// boundHistories applies this graph's limits to histories in memory.
func (g *graph) boundHistories() {
	for _, r := range g.websockets {
		if r.bound != nil {
			r.bound()
		}
	}
}

// webSocket is the handler of a route with WebSockets. All routes share one engine. A
// reload reuses it with the handlers whose options are the same, so their connections
// stay.
func (b *builder) webSocket(hosts []string, pattern string, o websocket.Options) (*websocket.Handler, error) {
	engine, err := reuseOrOpen(b, "websocket engine", func() (*conn.Engine, io.Closer, error) {
		e := conn.NewEngine(b.server.errors)
		return e, e, nil
	})
	if err != nil {
		return nil, err
	}
	places, err := b.webSocketPlaces(engine, o)
	if err != nil {
		return nil, err
	}
	var pool *upstream.Pool
	if o.Proxy != nil {
		if pool, err = b.pool(o.ProxyOptions().Options); err != nil {
			return nil, err
		}
	}
	name := routeName(hosts, pattern)
	var shared routeBus
	var bound func()
	if o.Channels != nil {
		if shared, err = b.bus(name, *o.Channels); err != nil {
			return nil, err
		}
		if memory := shared.memory; memory != nil {
			bound = func() { memory.Bound(o.Channels.Keep()) }
		}
	}
	h, err := reuseOrOpen(b, keyOf("websocket "+name, o), func() (*websocket.Handler, io.Closer, error) {
		d := websocket.Deps{Engine: engine, Pool: pool, Places: places, Meters: b.server.meters.WebSocket(name), ErrorLog: b.server.errors}
		if o.Channels != nil {
			d.Bus = shared.Join()
		}
		h, err := websocket.New(o, d)
		return h, h, err
	})
	if err == nil {
		b.next.websockets[name] = &webSocketRoute{control.NewRoute(hosts, pattern, o), h, engine, o.Channels != nil && o.Channels.Bus == "", bound}
	}
	return h, err
}

// webSocketPlaces limit the WebSockets of all routes, with the limits of the new config.
func (b *builder) webSocketPlaces(engine *conn.Engine, o websocket.Options) (*websocket.Places, error) {
	setup := &b.next.setup
	setup.SocketDescriptors = max(1, setup.SocketDescriptors)
	if o.Proxy != nil {
		setup.SocketDescriptors = 2 // it has a connection to its upstream as well
	}
	setup.Sockets = func() int { return setup.SocketDescriptors * engine.Open() }
	p, err := reuseOrOpen(b, "websocket places", func() (*webSocketLimits, io.Closer, error) {
		p := &webSocketLimits{}
		p.now.Store(&socketShare{setup.Share(), setup.Trusted}) // for who comes before serves
		p.places = websocket.NewPlaces(func() int { return p.now.Load().share.WebSockets }, engine.Open)
		p.places.PerAddress(func() int { return p.now.Load().share.PerAddress }, func(a netip.Addr) bool { return p.now.Load().trusted(a) })
		p.places.Hint(func() string { return p.now.Load().share.Hint() })
		return p, p, nil
	})
	if err != nil {
		return nil, err
	}
	b.next.sockets = p
	return p.places, nil
}

// webSocketLimits is how many WebSockets all routes may have, which a reload changes.
type webSocketLimits struct {
	now    atomic.Pointer[socketShare]
	places *websocket.Places
}

// socketShare is what one config says of that.
type socketShare struct {
	share   server.Share
	trusted func(netip.Addr) bool
}

// limitWebSockets puts this graph's limits into effect.
func (g *graph) limitWebSockets(errors *slog.Logger) {
	if g.sockets == nil {
		return
	}
	share := g.setup.Share()
	if share.WebSockets < share.Asked {
		errors.Warn("limits.websockets asks for more than there are file descriptors for", "asked", share.Asked, "possible", share.WebSockets, "descriptors", share.Descriptors, "hint", share.Hint())
	}
	g.sockets.now.Store(&socketShare{share, g.setup.Trusted})
}

// WebSocketShare is how many WebSockets there may be; ok: a route has some.
func (s *Server) WebSocketShare() (share server.Share, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.graph.sockets == nil {
		return share, false
	}
	return s.graph.sockets.now.Load().share, true
}

// Close implements [io.Closer]: there is nothing to close.
func (*webSocketLimits) Close() error { return nil }

// routeBus is the bus of a route's channels.
type routeBus struct {
	*bus.Shared
	memory *bus.Memory // nil: it is not in memory
}

// bus is the bus of a route's channels. It is a part of its own, so that the history
// outlives a change of the route's options: clients that must reconnect for it get what
// they have missed. The limits of one in memory change with the config (boundHistories);
// one of several machines is reused as it is.
func (b *builder) bus(name string, o channels.Options) (routeBus, error) {
	keep := o.Keep()
	if o.Bus == "" {
		return reuseOrOpen(b, "bus "+name, func() (routeBus, io.Closer, error) {
			memory := bus.NewMemory(keep)
			shared := bus.Share(memory)
			return routeBus{shared, memory}, shared, nil
		})
	}
	return reuseOrOpen(b, keyOf("bus "+name, []any{o.Bus, o.BusName, o.BusReplicas, keep}), func() (routeBus, io.Closer, error) {
		u := b.shared("channels of " + name)
		n, err := openBus(o, keep, u)
		if err != nil {
			return routeBus{}, nil, err
		}
		shared := bus.Share(n)
		return routeBus{Shared: shared}, closing(func() error { return errors.Join(shared.Close(), u.Close()) }), nil
	})
}

// hasWebSocket reports whether a handler of the old graph serves in this one, too.
func (g *graph) hasWebSocket(h *websocket.Handler) bool {
	for _, r := range g.websockets {
		if r.handler == h {
			return true
		}
	}
	return false
}

// webSockets lists the routes with WebSockets, for the verbs that publish and
// listen.
func (s *Server) webSockets() []control.Route {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := make([]control.Route, 0, len(s.graph.websockets))
	for _, name := range slices.Sorted(maps.Keys(s.graph.websockets)) {
		list = append(list, s.graph.websockets[name].Route)
	}
	return list
}
