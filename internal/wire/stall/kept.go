package stall

import (
	"context"
	"runtime"
	"runtime/metrics"
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
	// freeing is how long after a garbage collection most of its cleanups have run.
	freeing = 10 * time.Millisecond
	// cleaning is the longest that a recount waits for cleanups.
	cleaning = time.Second
	// recountShare is at most one part in so many of the time for recounts.
	recountShare = 20
)

// Kept counts the streams of a connection that are in memory after their handlers have
// returned: an answer that is smaller than a packet waits for its client inside of
// quic-go, which tells nobody when it was taken. So a stream is over when the garbage
// collector has freed it. Make it with [Budget.NewKept].
type Kept struct {
	n      atomic.Int32
	recent atomic.Uint64 // of n and of those freed since: the number of the recount, and how many came after it began
	budget *Budget
}

// NewKept returns one of no streams.
func (b *Budget) NewKept() *Kept { return &Kept{budget: b} }

// Keep counts a stream, whose handler has returned, until it is freed.
func Keep[T any](k *Kept, stream *T) {
	k.note()
	k.add(1)
	runtime.AddCleanup(stream, func(k *Kept) { k.add(-1) }, k) // k must not lead to the stream
}

func (k *Kept) add(n int32) {
	if k.n.Add(n); k.budget != nil {
		k.budget.kept.Add(int64(n))
	}
}

// note counts a stream as a recent one.
func (k *Kept) note() {
	if k.budget == nil {
		return
	}
	for {
		was, recount := k.recent.Load(), uint64(k.budget.recounts.Load())
		next := was + 1
		if was>>32 != recount {
			next = recount<<32 | 1
		}
		if k.recent.CompareAndSwap(was, next) {
			return
		}
	}
}

// Streams is how many there are of those that were there when the last recount began.
// While it runs, and as long as none has run, it is too high or too low.
func (k *Kept) Streams() int {
	n := int(k.n.Load())
	if recent := k.recent.Load(); k.budget != nil && recent>>32 == uint64(k.budget.recounts.Load()) {
		n -= int(uint32(recent))
	}
	return max(0, n)
}

// Kept is how many streams of all connections the last collection or recount has left.
func (b *Budget) Kept() int { return int(b.left.Load()) }

// Keeps reports whether so many are kept that new connections should get few.
func (b *Budget) Keeps() bool { return b != nil && b.left.Load() > b.many() }

// many is from how many kept streams on they are recounted, and new connections get few.
func (b *Budget) many() int64 { return int64(b.limit.Load().Kept.All / keepsShare) }

// WatchKept looks at conns after garbage collections, which come the more often the more
// streams are opened, and evicts as [Budget.Watch] does. It returns when ctx ends.
//
// After a collection the count is too high: under load, what was found is freed only until
// the next one. So nobody is evicted before a recount.
func (b *Budget) WatchKept(ctx context.Context, conns func() []Conn, evicted func(Conn)) {
	var next recounting
	for awaitCollection(ctx) {
		kept := b.kept.Load()
		if kept <= b.many() {
			b.left.Store(kept)
			continue
		}
		began := time.Now()
		if !next.due(began, kept) {
			continue
		}
		exact := b.recount(ctx)
		if next.done(began, kept); !exact {
			continue
		}
		all, left := conns(), 0
		for _, c := range all {
			left += c.Streams(began).Kept
		}
		b.left.Store(int64(left))
		for _, c := range excess(all, func(c Conn) int { return c.Streams(began).Kept }, b.limit.Load().Kept) {
			next = recounting{}
			evicted(c)
			c.Evict()
		}
	}
}

// awaitCollection waits for the next garbage collection, and until most of what it has found
// is freed. It reports false when ctx ends.
func awaitCollection(ctx context.Context) bool {
	collected := make(chan struct{}, 1)
	// A pointer in it keeps it from sharing its memory with others.
	runtime.AddCleanup(&struct{ p *int }{}, func(c chan struct{}) { c <- struct{}{} }, collected)
	select {
	case <-ctx.Done():
		return false
	case <-collected:
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(freeing):
		return true
	}
}

// recount frees all streams that are over, and leaves out those that come meanwhile: then
// Streams of each Kept is exact. It reports false if cleanups took too long.
func (b *Budget) recount(ctx context.Context) bool {
	b.recounts.Add(1)
	runtime.GC() // returns when all that it has found is freed
	queue := []metrics.Sample{{Name: "/gc/cleanups/queued:cleanups"}, {Name: "/gc/cleanups/executed:cleanups"}}
	metrics.Read(queue)
	queued := queue[0].Value.Uint64()
	for until := time.Now().Add(cleaning); queue[1].Value.Uint64() < queued; metrics.Read(queue) {
		if ctx.Err() != nil || time.Now().After(until) {
			return false
		}
		time.Sleep(time.Millisecond)
	}
	return true
}

// recounting says when there may be another recount: it costs a collection.
type recounting struct {
	after time.Time
	kept  int64 // most that seemed to be kept since the last
}

// due reports whether streams should be recounted, of which so many seem to be kept: some
// time after the last recount, or when there are twice as many.
func (r *recounting) due(now time.Time, kept int64) bool {
	return now.After(r.after) || kept >= 2*r.kept
}

// done records a recount.
func (r *recounting) done(began time.Time, kept int64) {
	now := time.Now()
	if began.After(r.after) {
		r.kept = 0
	}
	r.kept = max(r.kept, kept)
	r.after = now.Add(max(recheckAfter, recountShare*now.Sub(began)))
}
