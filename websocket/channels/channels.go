// Package channels is publish and subscribe for browsers: the JSON protocol
// over WebSockets, event streams for who cannot have them, and publishing over
// HTTP. The protocol is in the job's README.
package channels

import (
	"log/slog"
	"net/http"
	"time"

	"millrace/bus"
	"millrace/internal/bytesize"
	"millrace/internal/meter"
	"millrace/websocket/auth"
	"millrace/websocket/conn"
	"millrace/websocket/frame"
	"millrace/websocket/hub"
)

// Options of the channels. The zero value lets everybody subscribe, and whoever is on this machine publish.
type Options struct {
	// Keys are what publishing over HTTP needs: Authorization: Bearer KEY. Without one only this machine may publish: by its loopback addresses and UNIX sockets, and with no Forwarded, X-Forwarded-For or Origin header.
	Keys []string `yaml:"keys"`
	// Auth says who may do what.
	Auth auth.Options `yaml:"auth"`
	// History bounds what is kept for clients that come back.
	History History `yaml:"history"`
	// Presence lets clients see who else is in a channel (with permission).
	Presence bool `yaml:"presence"`
	// PerClient is the most channels that one client may subscribe to. Default 128.
	PerClient int `yaml:"per_client"`
	// Commands is the most commands that one client may send in a second, over ten seconds. Default 50.
	Commands int `yaml:"commands"`
	// MaxPublish is the most bytes that a publication may have. Default 64KiB.
	MaxPublish bytesize.Size `yaml:"max_publish"`
	// Bus connects machines: nats://host:4222. Default: none, each process has channels of its own.
	Bus string `yaml:"bus"`
	// BusName is the same on all machines that share channels. Default millrace.
	BusName string `yaml:"bus_name"`
}

// History says how much of each channel is kept.
type History struct {
	// Messages is how many of each channel. Default 100.
	Messages int `yaml:"messages"`
	// Age is how long. Default 5m.
	Age time.Duration `yaml:"age"`
	// Memory is how many bytes for all channels together. Default 64MiB.
	Memory bytesize.Size `yaml:"memory"`
	// Off keeps nothing.
	Off bool `yaml:"off"`
}

// Check returns what is wrong with the options, by key.
func (o Options) Check() map[string]error { return nil } // not built

// Keep is the history for a bus.
func (o Options) Keep() bus.Keep { panic("not built") }

// Deps are what the channels work with.
type Deps struct {
	Bus      bus.Bus // not started; closed by Close
	Runners  int
	Post     func(i int, f func())
	Meters   *meter.WebSocket
	ErrorLog *slog.Logger
	// CompressFrom is from how many bytes on publications are compressed.
	CompressFrom int
	// Queue and QueueLength bound what waits for one event stream.
	Queue, QueueLength int
}

// Channels implements [conn.App] and [conn.Leaver].
type Channels struct{ hub *hub.Hub }

// New starts the hub. It must be closed.
func New(o Options, d Deps) (*Channels, error) { panic("not built") }

// Connect decides about a client that wants a WebSocket; the state is for [conn.Engine.Adopt]. An error is *Refusal.
func (c *Channels) Connect(r *http.Request) (state any, err error) { panic("not built") }

// Refusal is an HTTP status and what to say with it.
type Refusal struct {
	Status int
	Text   string
}

// Error implements error.
func (r *Refusal) Error() string { return r.Text }

// Open implements [conn.App].
func (c *Channels) Open(k *conn.Conn) { panic("not built") }

// Message implements [conn.App].
func (c *Channels) Message(k *conn.Conn, op frame.Opcode, data []byte) { panic("not built") }

// Closed implements [conn.App].
func (c *Channels) Closed(k *conn.Conn, code frame.Code) { panic("not built") }

// Leaving implements [conn.Leaver].
func (c *Channels) Leaving(k *conn.Conn, code frame.Code, reconnect time.Duration) {
	panic("not built")
}

// ServeEvents is GET …/sse?channel=NAME&channel=…: a stream of events (WHATWG HTML, 9.2). It ends when the client goes, or leaving is closed.
func (c *Channels) ServeEvents(w http.ResponseWriter, r *http.Request, leaving <-chan struct{}) {
	panic("not built")
}

// ServePublish is POST …/publish?channel=NAME, with the data as its body.
func (c *Channels) ServePublish(w http.ResponseWriter, r *http.Request) { panic("not built") }

// Measure sets the gauges.
func (c *Channels) Measure() { panic("not built") }

// Close ends the hub and its bus.
func (c *Channels) Close() error { panic("not built") }
