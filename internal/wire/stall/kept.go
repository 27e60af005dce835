package stall

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// KeptCost is about what QUIC keeps of a stream whose handler has returned, in
	// bytes, until the client has acknowledged the answer.
	KeptCost = 5 << 10
	// KeptShare is how many such streams there may be for each that waits otherwise.
	KeptShare = 4
	// keepsShare is the share of them from which on new connections get few.
	keepsShare = 4
	// freeing is how long after a garbage collection its cleanups have run.
	freeing = 10 * time.Millisecond
)

// Kept counts the streams of a connection that are in memory after their handlers have
// returned: an answer that is smaller than a packet waits for its client inside of
// quic-go, which tells nobody when it was taken. So a stream is over when the garbage
// collector has freed it. Make it with [Budget.NewKept].
type Kept struct {
	n      atomic.Int32
	budget *Budget
}

// NewKept returns one of no streams.
func (b *Budget) NewKept() *Kept { return &Kept{budget: b} }

// Keep counts a stream, whose handler has returned, until it is freed.
func Keep[T any](k *Kept, stream *T) {
	k.add(1)
	runtime.AddCleanup(stream, func(k *Kept) { k.add(-1) }, k) // k must not lead to the stream
}

func (k *Kept) add(n int32) {
	if k.n.Add(n); k.budget != nil {
		k.budget.kept.Add(int64(n))
	}
}

// Streams is how many there are: right after a collection, otherwise with some that are
// over.
func (k *Kept) Streams() int { return int(k.n.Load()) }

// Kept is how many streams of all connections the last collection has left.
func (b *Budget) Kept() int { return int(b.left.Load()) }

// Keeps reports whether so many are kept that new connections should get few.
func (b *Budget) Keeps() bool {
	return b != nil && b.left.Load() > int64(b.limit.Load().Kept.All/keepsShare)
}

// WatchKept looks at conns after each garbage collection, which come the more often the
// more streams are opened, and evicts as [Budget.Watch] does. It returns when ctx ends.
func (b *Budget) WatchKept(ctx context.Context, conns func() []Conn, evicted func(Conn)) {
	collected := make(chan struct{}, 1)
	for {
		// A pointer in it keeps it from sharing its memory with others.
		runtime.AddCleanup(&struct{ p *int }{}, func(c chan struct{}) { c <- struct{}{} }, collected)
		select {
		case <-ctx.Done():
			return
		case <-collected:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(freeing):
		}
		kept, most := b.kept.Load(), b.limit.Load().Kept
		if b.left.Store(kept); kept <= int64(most.Each) {
			continue
		}
		now := time.Now()
		for _, c := range excess(conns(), func(c Conn) int { return c.Streams(now).Kept }, most) {
			evicted(c)
			c.Evict()
		}
	}
}
