// Package hub knows who is subscribed to which channel, and brings every
// publication of a channel to all of them, in order, each once. It is in
// shards, one for each runner of the connections: a shard's subscribers are
// served on its runner, so that a broadcast uses all cores, and nobody locks a
// connection.
//
// # A publication's way
//
// The bus calls [Hub.Deliver] (listener.go), which makes one [Publication] and
// puts it into the inbox (inbox.go) of each shard that has subscribers of the
// channel. The first in an empty inbox posts the shard's run (shard.go) to its
// runner; run calls [Subscriber.Deliver], at most some [slice] times, then posts
// itself again behind whatever else the runner has to do.
//
// # A subscriber's way
//
// Subscribe (join.go) puts it into the channel's list first, as one that joins.
// Once the bus listens to the channel (channel.go) it is asked for the history;
// what is published meanwhile is kept, and what of that is not in the answer
// is delivered right behind it.
//
// # Locks
//
// shard.mu (who is subscribed on a shard) comes before stripe.mu (which
// channels there are), inbox.mu (what is to be delivered), outage.mu, and
// everything that a Subscriber's Deliver locks. Those of the hub among the
// latter are held for a few instructions only, and the bus's calls take no
// others: a bus never waits for a slice of deliveries.
package hub

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"millrace/internal/observe/meter"
	"millrace/store/bus"
)

// DefaultMaxChannels is what Options.MaxChannels is when it is 0: with one
// subscriber each, so many channels take some 280 MB, and what the bus needs.
const DefaultMaxChannels = 1_000_000

// ErrChannels is returned by Subscribe when one more channel would be too many.
var ErrChannels = errors.New("too many channels have subscribers on this server")

// Options of a hub.
type Options struct {
	MaxChannels  int  // that have subscribers here; 0 is DefaultMaxChannels
	Presence     bool // Request.Member and Request.Joins count
	CompressFrom int  // bytes, see frame.Prepare
	// Forms are those that publications are made ready in, at most MaxForms.
	Forms  []Form
	Meters *meter.WebSocket // nil: counted for nobody
}

// Hub connects subscribers with a bus. It implements [bus.Listener]. Its
// methods are safe for concurrent use but for what Subscribe and Unsubscribe
// say.
type Hub struct {
	o    Options
	bus  bus.Bus
	post func(i int, f func())

	seed     maphash.Seed
	stripes  [stripes]stripe
	channels atomic.Int64 // in all stripes
	shards   []*shard
	tuner    tuner
	outage   outage
	closed   atomic.Bool
}

var _ bus.Listener = (*Hub)(nil)

// New starts a hub on a bus that was not started yet. post has a function
// called on runner i, as conn.Engine's Post does: soon, in the order of the
// calls, never before it returns. shards is how many runners there are, at
// least 1. If it fails the bus stays the caller's to close.
func New(o Options, b bus.Bus, shards int, post func(i int, f func())) (*Hub, error) {
	if shards < 1 {
		return nil, fmt.Errorf("making a hub: %d shards, at least one is needed", shards)
	}
	if len(o.Forms) > MaxForms {
		return nil, fmt.Errorf("making a hub: %d forms, at most %d are possible", len(o.Forms), MaxForms)
	}
	if o.MaxChannels <= 0 {
		o.MaxChannels = DefaultMaxChannels
	}
	if o.Meters == nil {
		o.Meters = new(meter.WebSocket)
	}
	h := &Hub{o: o, bus: b, post: post, seed: maphash.MakeSeed()}
	for i := range h.stripes {
		h.stripes[i].channels = map[string]*channel{}
	}
	for i := range shards {
		h.shards = append(h.shards, newShard(h, i))
	}
	if err := b.Start(h); err != nil {
		return nil, fmt.Errorf("starting the bus of the channels: %w", err)
	}
	return h, nil
}

// Publish is the bus's, with counters.
func (h *Hub) Publish(ctx context.Context, m bus.Message) (bus.Message, error) {
	m, err := h.bus.Publish(ctx, m)
	if err == nil {
		h.o.Meters.Published.Add(uint32(m.Offset), 1)
	}
	return m, err
}

// History is the bus's.
func (h *Hub) History(channel string, since *bus.Position, limit int, done func(bus.History, error)) {
	h.bus.History(channel, since, limit, done)
}

// Presence is who is in a channel, on all machines; as the bus's Members. Of
// each machine at most [MaxMembers] are told.
func (h *Hub) Presence(channel string, done func([]bus.Member, error)) {
	h.bus.Members(channel, done)
}

// Channels are those that have subscribers here, and how many.
func (h *Hub) Channels() map[string]int {
	all := map[string]int{}
	for i := range h.stripes {
		st := &h.stripes[i]
		st.mu.Lock()
		for name, ch := range st.channels {
			if ch.subs > 0 {
				all[name] = int(ch.subs)
			}
		}
		st.mu.Unlock()
	}
	return all
}

// Down is why other machines cannot be reached, nil when they can.
func (h *Hub) Down() error { return h.outage.why() }

// Measure sets the gauges.
func (h *Hub) Measure() {
	var subscriptions int64
	for _, sh := range h.shards {
		subscriptions += sh.subscriptions.Load()
	}
	h.o.Meters.Subscriptions.Set(subscriptions)
	h.o.Meters.Channels.Set(h.channels.Load())
	h.o.Meters.BusDown.Set(0)
	if h.Down() != nil {
		h.o.Meters.BusDown.Set(1)
	}
}

// Close ends all deliveries, closes the bus and waits for the hub's goroutines.
// No Deliver is under way when it returns, and none comes. Subscriptions that
// wait for their answer get none. It must not be called on a runner. A second
// call does nothing.
func (h *Hub) Close() error {
	if h.closed.Swap(true) {
		return nil
	}
	for _, sh := range h.shards {
		sh.close()
	}
	h.tuner.close()
	err := h.bus.Close() // whoever still tunes in gets bus.ErrClosed
	h.tuner.workers.Wait()
	return err
}

// stripe returns where a channel is found.
func (h *Hub) stripe(channel string) *stripe {
	return &h.stripes[maphash.String(h.seed, channel)%stripes]
}

// outage knows whether other machines can be reached, and which channels are to get a
// reset when they can again.
type outage struct {
	mu  sync.Mutex
	err error
	// blind are the channels that somebody subscribed to while the history
	// could not be asked. At most as many as have subscribers, and those that
	// had since the outage began.
	blind map[string]struct{}
}

func (o *outage) why() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// set notes the new state, and returns the channels that are to get a reset.
func (o *outage) set(err error) map[string]struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
	if err != nil {
		return nil
	}
	notify := o.blind
	o.blind = nil
	return notify
}

// remember has a channel told when the outage ends; false if there is none.
func (o *outage) remember(channel string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		return false
	}
	if o.blind == nil {
		o.blind = map[string]struct{}{}
	}
	o.blind[channel] = struct{}{}
	return true
}
