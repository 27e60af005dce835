// Package websocket is the job that carries WebSockets (RFC 6455): an echo, a
// proxy, and channels with very many quiet subscribers.
package websocket

import (
	"log/slog"
	"net/http"

	"millrace/bus"
	"millrace/internal/meter"
	"millrace/internal/upstream"
	"millrace/websocket/conn"
)

// Deps are what the job works with; all that it needs must be there.
type Deps struct {
	Engine   *conn.Engine
	Pool     *upstream.Pool // of a proxy; stays the caller's
	Bus      bus.Bus        // of channels; not started, closed by Close
	Meters   *meter.WebSocket
	ErrorLog *slog.Logger
}

// Handler answers requests for WebSockets. It must be closed.
type Handler struct{}

// New returns a handler.
func New(o Options, d Deps) (*Handler, error) { panic("not built") }

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { panic("not built") }

// Measure sets the gauges.
func (h *Handler) Measure() { panic("not built") }

// Close tells all clients to come back (1012), and returns when they are gone.
func (h *Handler) Close() error { panic("not built") }
