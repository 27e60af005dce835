// Package control is how commands (millrace ws publish, listen) find the
// WebSocket routes of a running server: one JSON call on its admin listener,
// GET /websockets/. Who may call is decided by the listener; it asks for no
// password.
package control

import (
	"encoding/json"
	"net/http"

	"millrace/websocket"
)

// Prefix is where a Handler belongs.
const Prefix = "/websockets/"

// Route is a route with WebSockets.
type Route struct {
	Route string `json:"route"` // its pattern
	Host  string `json:"host"`  // one of the site's, or empty for every host
	Kind  string `json:"kind"`  // echo, proxy or channels
}

// NewRoute describes the route of a pattern on a site with these hosts.
func NewRoute(hosts []string, pattern string, o websocket.Options) Route {
	r := Route{Route: pattern, Kind: "echo"}
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

// Handler lists the routes in use. routes is called for every request.
func Handler(routes func() []Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(routes()) // the client may have gone
	})
}
