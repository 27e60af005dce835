// Package stall bounds the streams of HTTP/2 and HTTP/3 that wait for their
// clients. Each has a goroutine, a request and buffers, and a client opens a
// hundred of them with a few kilobytes: without a bound it holds as much memory
// as it likes, by giving them no window or by not reading.
//
// While there are more than may be, connections are ended: of the client that has
// the most such streams, the connection that has the most of these. A client
// with one slow download comes last, however long that has been waiting.
package stall

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
)

const (
	// Cost is about what a stream that waits takes of memory, in bytes: a stack, a
	// request, a buffer of its body's beginning.
	Cost = 32 << 10
	// Few is how many streams without a window a connection may have, for an answer
	// that goes on within Patience, without that they count: a download is without
	// a window again and again.
	Few = 4
	// SmallWindow is a window, in bytes, that the beginning of an answer fills: a stream
	// which has no more will wait, as a rule. Clients begin with 64 KiB and more.
	SmallWindow = 16 << 10
	// StalledAfter is how long a stream may stand still before it waits.
	StalledAfter = time.Second
)

// Conn is a connection with streams. Its methods are safe for concurrent use.
type Conn interface {
	// Client is what limits count its client as; the zero address: as one of its own.
	Client() netip.Addr
	// Streams is how many of its streams are open, how many of them wait for the
	// client, and how many are kept for it.
	Streams(now time.Time) Count
	// Evict ends the connection, without waiting for the client.
	Evict()
}

// Count is how many streams there are.
type Count struct {
	Open    int
	Waiting int // of Open
	Kept    int // not open any more, see [Kept]
}

// Limits are what all connections may have together, and those of one client.
type Limits struct{ All, Each int }

// candidate is a connection with what it has.
type candidate struct {
	Conn
	client     netip.Addr
	n          int
	cumulative int // what its client has in this and in its smaller connections
}

// excess returns the connections that must end so that the others keep to the
// limits; n is what counts.
func excess(conns []Conn, n func(Conn) int, most Limits) (over []Conn) {
	var all []candidate
	total := 0
	for _, c := range conns {
		if k := n(c); k > 0 {
			all = append(all, candidate{Conn: c, client: c.Client(), n: k})
			total += k
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(a.client.Compare(b.client), cmp.Compare(a.n, b.n))
	})
	for i := range all {
		h := &all[i]
		if h.cumulative = h.n; i > 0 && h.client.IsValid() && all[i-1].client == h.client {
			h.cumulative += all[i-1].cumulative
		}
	}
	// In this order each is the largest of the client that has the most.
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(b.cumulative, a.cumulative) })
	for _, h := range all {
		if total <= most.All && (h.cumulative <= most.Each || !h.client.IsValid()) {
			break
		}
		over = append(over, h.Conn)
		total -= h.n
	}
	return over
}

// Handlers counts the streams of a connection by what their handlers do, where
// their frames are not seen. The methods of nil do nothing.
type Handlers struct {
	open    atomic.Int32
	waiting atomic.Int32
	moved   atomic.Int64 // when one of them had waited, in Unix nanoseconds
}

// Begin notes that a stream was opened, and End that it has ended.
func (h *Handlers) Begin() {
	if h != nil {
		h.open.Add(1)
	}
}

// End is said above.
func (h *Handlers) End() {
	if h != nil {
		h.open.Add(-1)
	}
}

// Wait notes that a stream waits for the client, and Go that it does not any more.
func (h *Handlers) Wait() {
	if h != nil && h.waiting.Add(1) == 1 {
		h.moved.Store(time.Now().UnixNano())
	}
}

// Go is said above.
func (h *Handlers) Go() {
	if h != nil {
		h.waiting.Add(-1)
		h.moved.Store(time.Now().UnixNano())
	}
}

// Streams is for [Conn].
func (h *Handlers) Streams(now time.Time) Count {
	c := Count{Open: int(h.open.Load()), Waiting: int(h.waiting.Load())}
	if c.Waiting <= Few && now.UnixNano()-h.moved.Load() < int64(StalledAfter) {
		c.Waiting = 0
	}
	return c
}

type key struct{}

// With has the handlers of a connection find who counts them.
func With(ctx context.Context, h *Handlers) context.Context { return context.WithValue(ctx, key{}, h) }

// Of returns who counts the handlers of a connection; nil: nobody does.
func Of(ctx context.Context) *Handlers {
	h, _ := ctx.Value(key{}).(*Handlers)
	return h
}
