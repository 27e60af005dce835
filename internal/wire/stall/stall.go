// Package stall bounds the streams of HTTP/2 and HTTP/3 that wait for their clients. Each
// stream has a goroutine, a request and buffers, and a client opens a hundred of them with a
// few kilobytes. Without a bound it could take any amount of memory, by giving them no
// window or by not reading.
//
// While there are too many, connections are evicted: of the client with the most waiting
// streams, the connection with the most of them. A client with one slow download is the
// last, however long that has been waiting.
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
	// Cost is about the memory of a waiting stream, in bytes: a stack, a request, a
	// buffer with the beginning of its body.
	Cost = 32 << 10
	// Few is how many streams of a connection may stand still for less than
	// StalledAfter without counting as waiting: a download has no window again and
	// again.
	Few = 4
	// SmallWindow is the size in bytes up to which a window is filled by the beginning
	// of an answer, so that most streams with it will wait. Clients begin with 64 KiB and
	// more.
	SmallWindow = 16 << 10
	// StalledAfter is how long a stream may stand still before it counts as waiting.
	StalledAfter = time.Second
)

// Conn is a connection with streams. Its methods may be called from any goroutine.
type Conn interface {
	// Client returns by what limits count its client. With the zero address the
	// connection counts as a client of its own.
	Client() netip.Addr
	// Streams returns how many of its streams are open, how many of them wait for the
	// client, and how many are kept for it.
	Streams(now time.Time) Count
	// Evict ends the connection without waiting for the client.
	Evict()
}

// Count is a number of streams.
type Count struct {
	Open    int
	Waiting int // for the client, of those
	Kept    int // not open any more, see [Kept]
}

// Limits bound the streams of all connections together, and of those of each client.
type Limits struct{ All, Each int }

// candidate is a connection with what it has.
type candidate struct {
	Conn
	client     netip.Addr
	n          int
	cumulative int // streams of its client in this and in smaller connections
}

// excess returns the connections to evict so that the others keep to the limits. n returns how
// many streams of a connection count.
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
	// Now each is the largest connection of the client that has the most, without those
	// before it.
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

// Handlers counts the streams of a connection by what their handlers do: of HTTP/3 the server
// does not see frames. The methods of nil do nothing.
type Handlers struct {
	open    atomic.Int32
	waiting atomic.Int32
	moved   atomic.Int64 // when a wait last began or ended, in Unix nanoseconds
}

// Begin records that a stream was opened.
func (h *Handlers) Begin() {
	if h != nil {
		h.open.Add(1)
	}
}

// End records that a stream has ended.
func (h *Handlers) End() {
	if h != nil {
		h.open.Add(-1)
	}
}

// Wait records that a stream waits for the client.
func (h *Handlers) Wait() {
	if h != nil && h.waiting.Add(1) == 1 {
		h.moved.Store(time.Now().UnixNano())
	}
}

// Go records that a stream does not wait any more.
func (h *Handlers) Go() {
	if h != nil {
		h.waiting.Add(-1)
		h.moved.Store(time.Now().UnixNano())
	}
}

// Streams implements the method of [Conn].
func (h *Handlers) Streams(now time.Time) Count {
	c := Count{Open: int(h.open.Load()), Waiting: int(h.waiting.Load())}
	if c.Waiting <= Few && now.UnixNano()-h.moved.Load() < int64(StalledAfter) {
		c.Waiting = 0
	}
	return c
}

type key struct{}

// With returns a context in which the handlers of a connection find h.
func With(ctx context.Context, h *Handlers) context.Context { return context.WithValue(ctx, key{}, h) }

// Of returns the Handlers from With; nil: the streams are not counted.
func Of(ctx context.Context) *Handlers {
	h, _ := ctx.Value(key{}).(*Handlers)
	return h
}
