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
	h, err := carry(g, old, keyOf("websocket "+name, o), func() (*websocket.Handler, io.Closer, error) {
		d := websocket.Deps{Engine: engine, Pool: pool, Meters: s.meters.WebSocket(name), ErrorLog: s.errors}
		if o.Channels != nil {
			if d.Bus, err = openBus(s, *o.Channels); err != nil {
				return nil, nil, err
			}
		}
		h, err := websocket.New(o, d)
		return h, h, err
	})
	if err == nil {
		g.sockets[name] = newSocketRoute(h, hosts, pattern, o)
	}
	return h, err
}

// openBus is what carries the publications of a route's channels.
func openBus(s *Server, o channels.Options) (bus.Bus, error) {
	if o.Bus == "" {
		return bus.NewMemory(o.Keep()), nil
	}
	return nats.Open(nats.Options{URL: o.Bus, Name: o.BusName, Keep: o.Keep(), ErrorLog: s.errors})
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

// listSockets is GET /websockets of the admin listener: the routes with
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
