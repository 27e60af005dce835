// Package hub knows who is subscribed to which channel, and brings every
// publication of a channel to all of them, in order, each once. It is in
// shards, one for each runner of the connections: a shard's subscribers are
// served on its runner, so that a broadcast uses all cores, and nobody
// locks a connection.
package hub

import (
	"context"
	"sync"

	"millrace/bus"
	"millrace/internal/meter"
	"millrace/websocket/frame"
)

// Options of a hub.
type Options struct {
	MaxChannels  int  // that have subscribers here; 0 is 1,000,000
	Presence     bool // joins and leaves are published to who asks for them
	CompressFrom int  // see frame.Prepare
	// Text is the message that tells clients of a publication; Event the same for event streams. Each is called at most once for a publication.
	Text  func(m bus.Message) []byte
	Event func(m bus.Message) []byte
	// Note is the message that tells clients that something about a channel is new: Placed (id and offset), Reset, joined, left. nil: nothing is told.
	Note   func(n Note) []byte
	Meters *meter.WebSocket
}

// Note is news about a channel that is no publication.
type Note struct {
	Kind    string // "placed", "reset", "join", "leave"
	Channel string
	ID      string // of placed
	Offset  uint64 // of placed
	Member  *bus.Member
}

// Publication is a message on its way to many. What it holds is made ready once for all.
type Publication struct {
	bus.Message
}

// Frame is the publication for WebSockets.
func (p *Publication) Frame() *frame.Prepared { panic("not built") }

// Event is the publication for event streams.
func (p *Publication) Event() []byte { panic("not built") }

// Subscriber is one client of a shard. It is called on the shard's runner, must not block, and must not call the hub.
type Subscriber interface {
	Deliver(p *Publication)
}

// Hub connects subscribers with a bus. It implements [bus.Listener].
type Hub struct {
	mu sync.Mutex
}

var _ bus.Listener = (*Hub)(nil)

// New starts a hub on a bus that was not started yet. post has a function called on runner i, as conn.Engine's Post does.
func New(o Options, b bus.Bus, shards int, post func(i int, f func())) (*Hub, error) {
	panic("not built")
}

// Request is a wish to subscribe.
type Request struct {
	Shard      int
	Subscriber Subscriber
	Channel    string
	Since      *bus.Position // go on behind this; nil: from now
	Member     *bus.Member   // to be seen in the channel's presence; nil: not to be
	Joins      bool          // wants notes of who joins and leaves
	// Done is called once, on the shard's runner or before Subscribe returns. Deliver is called for nothing that is in the answer's history, and for all that is after it, only after Done.
	Done func(Answer, error)
}

// Answer is where a subscription begins.
type Answer struct {
	Top       bus.Position
	Missed    []bus.Message // what came since, oldest first
	Recovered bool          // Since was given, and Missed is all that came after it
}

// Subscription is a subscriber's place in a channel.
type Subscription struct{}

// Channel is its name.
func (s *Subscription) Channel() string { panic("not built") }

// Subscribe must be called on the shard's runner, or for the last shard from anywhere. The error is that there are too many channels, or that the bus is closed;
// Done is then not called.
func (h *Hub) Subscribe(r Request) (*Subscription, error) { panic("not built") }

// Unsubscribe ends deliveries at once, also one that has not begun. It must be called where Subscribe may be. A second call does nothing.
func (h *Hub) Unsubscribe(s *Subscription) { panic("not built") }

// Publish is the bus's, with counters.
func (h *Hub) Publish(ctx context.Context, m bus.Message) (bus.Message, error) { panic("not built") }

// History is the bus's.
func (h *Hub) History(channel string, since *bus.Position, limit int, done func(bus.History, error)) {
	panic("not built")
}

// Presence is who is in a channel, on all machines.
func (h *Hub) Presence(channel string, done func([]bus.Member, error)) { panic("not built") }

// Down is why other machines cannot be reached, nil when they can.
func (h *Hub) Down() error { panic("not built") }

// Deliver implements [bus.Listener].
func (h *Hub) Deliver(m bus.Message) { panic("not built") }

// Placed implements [bus.Listener].
func (h *Hub) Placed(channel, id string, offset uint64) { panic("not built") }

// Reset implements [bus.Listener].
func (h *Hub) Reset(channel string) { panic("not built") }

// State implements [bus.Listener].
func (h *Hub) State(err error) { panic("not built") }

// Members implements [bus.Listener].
func (h *Hub) Members(channel string) []bus.Member { panic("not built") }

// Measure sets the gauges.
func (h *Hub) Measure() { panic("not built") }

// Close closes the bus.
func (h *Hub) Close() error { panic("not built") }
