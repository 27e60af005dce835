package stall

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// checkEvery is how often connections are checked while too many streams wait.
	checkEvery = 10 * time.Millisecond
	// recheckAfter is how long they are not checked after many streams were open of
	// which few waited, unless another limit/recheckShare are opened.
	recheckAfter = time.Second
	recheckShare = 8
)

// Budget bounds the streams of a server. Make it with [NewBudget]; nil has no limits.
type Budget struct {
	open      atomic.Int64
	kept      atomic.Int64
	left      atomic.Int64 // of kept, after the last collection or recount
	recounts  atomic.Uint32
	wakeAbove atomic.Int64 // no check until more streams than this are open
	limit     atomic.Pointer[Budgets]
	wake      chan struct{} // a token wakes Watch: there may be too many
	refused   func()
	collect   func() (done func())
}

// Budgets are the limits of a Budget.
type Budgets struct {
	Open    Limits // streams, whatever they wait for
	Waiting Limits // those that wait for their clients
	Kept    Limits // those that QUIC keeps for them, see [Kept]
}

// NewBudget returns a Budget. refused is called for each stream that is refused.
func NewBudget(refused func()) *Budget {
	b := &Budget{wake: make(chan struct{}, 1), refused: refused, collect: func() func() { return func() {} }}
	b.limit.Store(&Budgets{})
	return b
}

// CollectSooner has sooner called when connections are evicted, and what it returns when
// there are few streams again: what evicted streams held is garbage, and as much again
// would be let grow beside it. Call it before Watch.
func (b *Budget) CollectSooner(sooner func() (done func())) { b.collect = sooner }

// Set sets the limits.
func (b *Budget) Set(l Budgets) { b.limit.Store(&l) }

// Add records that n streams were opened, or have ended if n is negative.
func (b *Budget) Add(n int) {
	if b == nil {
		return
	}
	if b.open.Add(int64(n)); n >= 0 && b.Pressed() && b.open.Load() > b.wakeAbove.Load() {
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
}

// Pressed reports whether too many streams may be waiting. Meanwhile a connection that has
// more than Few streams gets no further ones.
func (b *Budget) Pressed() bool {
	return b != nil && b.open.Load() > int64(b.limit.Load().Waiting.Each)
}

// Refuse records that a stream was refused.
func (b *Budget) Refuse() { b.refused() }

// Open returns how many streams are open.
func (b *Budget) Open() int { return int(b.open.Load()) }

// Watch checks conns while there may be too many streams, and evicts those that must end.
// evicted is called for each before. Watch returns when ctx ends.
func (b *Budget) Watch(ctx context.Context, conns func() []Conn, evicted func(Conn)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.wake:
		}
		var done func()
		for b.Pressed() && ctx.Err() == nil {
			over := b.excess(conns(), time.Now())
			if len(over) > 0 && done == nil {
				done = b.collect()
			}
			for _, c := range over {
				evicted(c)
				c.Evict()
			}
			if len(over) == 0 {
				b.awaitPressure(ctx)
			}
			select {
			case <-ctx.Done():
			case <-time.After(checkEvery):
			}
		}
		if done != nil {
			done()
		}
		if b.wakeAbove.Store(0); b.Pressed() { // opened since then: Add has not woken us
			b.Add(0)
		}
	}
}

// awaitPressure waits until connections should be checked again.
func (b *Budget) awaitPressure(ctx context.Context) {
	b.wakeAbove.Store(b.open.Load() + int64(b.limit.Load().Waiting.Each/recheckShare))
	select {
	case <-ctx.Done():
	case <-time.After(recheckAfter):
	case <-b.wake:
	}
}

// excess returns the connections to evict.
func (b *Budget) excess(conns []Conn, now time.Time) []Conn {
	most := b.limit.Load()
	if over := excess(conns, func(c Conn) int { return c.Streams(now).Waiting }, most.Waiting); len(over) > 0 {
		return over
	}
	return excess(conns, func(c Conn) int { return c.Streams(now).Open }, most.Open)
}
