package millrace

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"

	"millrace/bus"
	"millrace/bus/nats"
	"millrace/internal/upstream"
	"millrace/websocket"
	"millrace/websocket/channels"
	"millrace/websocket/conn"
)

// socketRoute is a route with WebSockets.
type socketRoute struct {
	handler *websocket.Handler
	Route   string `json:"route"` // its pattern
	Host    string `json:"host"`  // one of the site's, or empty
	Kind    string `json:"kind"`  // echo, proxy or channels
}

// webSocket is the handler of a route with WebSockets. All routes share one
// engine, which a reload carries over together with the handlers whose options
// are the same: their connections do not notice.
func (g *graph) webSocket(s *Server, hosts []string, pattern string, o websocket.Options, old *graph) (*websocket.Handler, error) {
	engine, err := carry(g, old, "websocket engine", func() (*conn.Engine, io.Closer, error) {
		e := conn.NewEngine(s.errors)
		return e, e, nil
	})
	if err != nil {
		return nil, err
	}
	var pool *upstream.Pool
	if o.Proxy != nil {
		if pool, err = g.pool(s, o.Proxy.Options, old); err != nil {
			return nil, err
		}
	}
	name := nameOf(hosts, pattern)
	var shared *bus.Shared
	if o.Channels != nil {
		if shared, err = g.bus(s, name, *o.Channels, old); err != nil {
			return nil, err
		}
	}
	h, err := carry(g, old, keyOf("websocket "+name, o), func() (*websocket.Handler, io.Closer, error) {
		d := websocket.Deps{Engine: engine, Pool: pool, Meters: s.meters.WebSocket(name), ErrorLog: s.errors}
		if o.Channels != nil {
			d.Bus = shared.Join()
		}
		h, err := websocket.New(o, d)
		return h, h, err
	})
	if err == nil {
		g.sockets[name] = newSocketRoute(h, hosts, pattern, o)
	}
	return h, err
}

// bus is what carries the publications of a route's channels. It is a part of
// its own, so that the history outlives a change of the route's other options:
// clients that are sent away for it find what they have missed.
func (g *graph) bus(s *Server, name string, o channels.Options, old *graph) (*bus.Shared, error) {
	keep := o.Keep()
	k := keyOf("bus "+name, []any{o.Bus, o.BusName, keep})
	return carry(g, old, k, func() (*bus.Shared, io.Closer, error) {
		if o.Bus == "" {
			b := bus.Share(bus.NewMemory(keep))
			return b, b, nil
		}
		n, err := nats.Open(nats.Options{URL: o.Bus, Name: o.BusName, Keep: keep, ErrorLog: s.errors})
		if err != nil {
			return nil, nil, err
		}
		b := bus.Share(n)
		return b, b, nil
	})
}

func newSocketRoute(h *websocket.Handler, hosts []string, pattern string, o websocket.Options) *socketRoute {
	r := &socketRoute{handler: h, Route: pattern, Kind: "echo"}
	if len(hosts) > 0 {
		r.Host = hosts[0]
	}
	switch {
	case o.Proxy != nil:
		r.Kind = "proxy"
	case o.Channels != nil:
		r.Kind = "channels"
	}
	return r
}

// hasSocket reports whether a handler serves in this graph, too.
func (g *graph) hasSocket(h *websocket.Handler) bool {
	for _, r := range g.sockets {
		if r.handler == h {
			return true
		}
	}
	return false
}

// listSockets is GET /websockets/ of the admin listener: the routes with
// WebSockets, for the verbs that publish and listen.
func (s *Server) listSockets(w http.ResponseWriter, _ *http.Request) {
	s.mu.RLock()
	list := make([]*socketRoute, 0, len(s.graph.sockets))
	for _, name := range slices.Sorted(maps.Keys(s.graph.sockets)) {
		list = append(list, s.graph.sockets[name])
	}
	s.mu.RUnlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list) // whoever asked has gone
}
