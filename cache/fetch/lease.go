package fetch

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	"millrace/cache/object"
	"millrace/cache/rfc9111"
	"millrace/internal/observe/trace"
)

// Leases let one machine of all that share a store ask the upstream for a key. A lease
// ends when its holder says so, perhaps with a note, or when the holder has not made it
// longer in time.
type Leases interface {
	// Hold takes the lease, or makes it longer if name holds it, and returns its holder.
	Hold(ctx context.Context, key, name string, d time.Duration) (holder string, err error)
	// Holder returns who holds the lease, or had it until it ended with a note; "": nobody.
	Holder(ctx context.Context, key string) (holder, note string, err error)
	Release(ctx context.Context, key, name, note string) error
}

const (
	// leaseTime is how long a lease holds, and so how long the others wait at most for a
	// holder that has died; a living one makes it longer every leaseRenewal.
	leaseTime    = 2 * time.Second
	leaseRenewal = leaseTime / 4
	// shortestLook and longestLook lie between two looks at another's lease. In between it
	// is an eighth of the time that was waited.
	shortestLook = 2 * time.Millisecond
	longestLook  = 50 * time.Millisecond
	// leastPatience and mostPatience bound how long is waited for another machine's fetch:
	// twice what all but one of a hundred answers have taken; the most while fewer than
	// knownAnswers are known.
	leastPatience = 500 * time.Millisecond
	mostPatience  = 10 * time.Second
	knownAnswers  = 20
)

// The notes with which a lease ends, for those who wait.
const (
	noteStored = ""     // it is in the shared store
	noteNone   = "none" // it is not: it could not be had, is for one client alone, or not kept
)

// lease is one that a fetch holds.
type lease struct {
	leases Leases
	key    string
	name   string
	ctx    context.Context // of the cache

	mu    sync.Mutex  // held while the store is asked
	timer *time.Timer // of the next renewal
	ended atomic.Bool
}

// elsewhere makes this machine the only one that asks the upstream for the fetch's key, or waits
// while another is, and takes its answer from the shared store. It reports whether the fetch
// is settled with that.
//
// It is not waited for long: after twice the time that answers take, and where the other's
// answer is for one client alone, could not be had, or cannot be found, the fetch goes on by
// itself, as it does without the shared store.
func (t *Fetch) elsewhere(ctx context.Context) (settled bool) {
	leases := t.c.Leases
	key, name := t.c.Tiers.Name(t.fetcher.fillKey(&t.Request)), rand.Text()
	holder, err := leases.Hold(ctx, key, name, leaseTime)
	switch {
	case err != nil:
		return false
	case holder == name:
		return t.hold(ctx, key, name)
	}
	step := trace.Begin(ctx, trace.Fetch)
	defer func() { step.End("another machine's", nil) }()
	began, patience, replaced := time.Now(), t.waitLimit(), false
	for time.Since(began) < patience {
		select {
		case <-time.After(min(max(time.Since(began)/8, shortestLook), longestLook)):
		case <-ctx.Done():
			return false
		}
		now, note, err := leases.Holder(ctx, key)
		switch {
		case err != nil:
			return false
		case now == holder && note == "":
			continue
		case now == holder: // with noteNone
			return false
		}
		if t.fromTiers(ctx) {
			return true
		}
		if replaced {
			return false // two have ended, and have left nothing
		}
		replaced = true // it has died, or had nothing to leave, and another may have been quicker than us
		if holder, err = leases.Hold(ctx, key, name, leaseTime); err != nil {
			return false
		}
		if holder == name {
			return t.hold(ctx, key, name)
		}
	}
	return false
}

// shareable reports whether another machine's answer may do. It does not where each use is
// validated, by what the last answer says or because this client wants that: who waited for
// another's fetch would ask all the same.
func (t *Fetch) shareable() bool {
	if t.Demand.Validates() {
		return false
	}
	o := t.fallback()
	return o == nil || !o.Facts.NoCache && o.Facts.Fresh > 0
}

// waitLimit is how long to wait for another machine's fetch.
func (t *Fetch) waitLimit() time.Duration {
	took := t.c.Meters.Upstream.Snapshot()
	if took.Count() < knownAnswers {
		return mostPatience
	}
	return min(max(2*took.Quantile(0.99), leastPatience), mostPatience)
}

// fromTiers settles the fetch with what is in the slower tiers, if that may be served. What
// may not is to be validated.
func (t *Fetch) fromTiers(ctx context.Context) (settled bool) {
	o, where := t.find(ctx)
	if o == nil {
		return false
	}
	if o.Use(t.Demand, time.Now(), o.State(t.c.Purges.Index())) == rfc9111.Serve {
		t.fill.Settle(Outcome{Object: o, How: where})
		return true
	}
	t.stored = append([]*object.Object{o}, t.stored...)
	return false
}

// tooLarge ends the lease if an answer of that size, as far as it is known, will not be in
// the shared store: nobody has to wait until all of it is there.
func (t *Fetch) tooLarge(size int64) {
	if t.lease != nil && !t.c.Tiers.Shares(size) {
		t.release(noteNone)
	}
}

// hold keeps the lease from ending until the fetch releases it. It looks whether another
// machine has stored an answer between the last look and the lease, and reports whether the
// fetch is settled with that.
func (t *Fetch) hold(ctx context.Context, key, name string) (settled bool) {
	l := &lease{leases: t.c.Leases, key: key, name: name, ctx: t.c.Context}
	l.mu.Lock()
	l.timer = time.AfterFunc(leaseRenewal, l.renew)
	l.mu.Unlock()
	t.lease = l
	if settled = t.fromTiers(ctx); settled {
		t.release(noteStored)
	}
	return settled
}

func (l *lease) renew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended.Load() {
		return
	}
	if holder, err := l.leases.Hold(l.ctx, l.key, l.name, leaseTime); err != nil || holder == l.name { // else another has taken it
		l.timer.Reset(leaseRenewal)
	}
}

// release ends the lease, if the fetch holds one: nobody has to wait for it any more. It
// does not wait for the store.
func (t *Fetch) release(note string) {
	l := t.lease
	if l == nil {
		return
	}
	t.lease = nil
	l.ended.Store(true)
	t.c.Start(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.timer.Stop()
		_ = l.leases.Release(l.ctx, l.key, l.name, note) // else it ends by itself
	})
}
