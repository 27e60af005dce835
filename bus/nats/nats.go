// Package nats is the bus between machines: NATS carries the publications,
// JetStream puts them into an order and keeps the latest.
package nats

import (
	"context"
	"log/slog"

	"millrace/bus"
)

// Options of the connection.
type Options struct {
	// URL is nats://[user:password@]host:port or tls://…; several with commas between them.
	URL string
	// Name is the stream, and the first part of all subjects: machines with the same name share channels. Default millrace.
	Name string
	// Keep bounds the history, as for a bus in memory. The machine that makes the stream decides; others change it to theirs.
	Keep bus.Keep
	// Replicas of the stream in a cluster of NATS servers. Default 1.
	Replicas int
	// ErrorLog is told of interruptions; nil is slog.Default().
	ErrorLog *slog.Logger
}

// Bus implements [bus.Bus].
type Bus struct{}

var _ bus.Bus = (*Bus)(nil)

// Check returns what is wrong with a URL, without connecting.
func Check(url string) error { panic("not built") }

// Open returns a bus that connects as soon as it can: a server that cannot be reached is no error, but a state.
func Open(o Options) (*Bus, error) { panic("not built") }

// Start implements [bus.Bus].
func (b *Bus) Start(l bus.Listener) error { panic("not built") }

// Publish implements [bus.Bus].
func (b *Bus) Publish(ctx context.Context, m bus.Message) (bus.Message, error) { panic("not built") }

// Listen implements [bus.Bus].
func (b *Bus) Listen(channel string) error { panic("not built") }

// Ignore implements [bus.Bus].
func (b *Bus) Ignore(channel string) { panic("not built") }

// History implements [bus.Bus].
func (b *Bus) History(channel string, since *bus.Position, limit int, done func(bus.History, error)) {
	panic("not built")
}

// Members implements [bus.Bus].
func (b *Bus) Members(channel string, done func([]bus.Member, error)) { panic("not built") }

// Close implements [bus.Bus].
func (b *Bus) Close() error { panic("not built") }
