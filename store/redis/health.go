package redis

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// The times of recovery.
const (
	// checkEvery is how often a server that works is asked whether it does. It
	// bounds how long a lost connection on which changes are told goes unnoticed.
	checkEvery = time.Second
	// firstPause and longestPause lie between attempts to reach a server that
	// does not work: long enough not to be a burden to one that is just starting.
	firstPause   = 100 * time.Millisecond
	longestPause = 500 * time.Millisecond
	// slowCalls is how many calls in a row must time out for the server to count
	// as down. One may have been a large body.
	slowCalls = 3
)

// health decides whether the server is asked at all. Down means that calls are
// refused at once, without waiting for another timeout.
type health struct {
	isUp   atomic.Bool
	slow   atomic.Int32
	probe  atomic.Pointer[string] // the key of the call that failed: in a cluster, of the server that did
	cause  atomic.Pointer[error]
	wake   chan struct{} // tells the supervisor
	tried  chan struct{} // closed after the first attempt, or by close
	triedO sync.Once
	closed atomic.Bool
}

func newHealth() *health {
	return &health{wake: make(chan struct{}, 1), tried: make(chan struct{})}
}

func (h *health) up() bool { return h.isUp.Load() }

// ready reports whether the server may be asked. Only before the first attempt
// has ended does it wait, for that or ctx.
func (h *health) ready(ctx context.Context) bool {
	select {
	case <-h.tried:
	default:
		select {
		case <-h.tried:
		case <-ctx.Done():
		}
	}
	return h.isUp.Load() && !h.closed.Load()
}

func (h *health) worked() {
	if h.slow.Load() != 0 {
		h.slow.Store(0)
	}
}

// failed notes that a call has not been answered; slow, that it ran out of time.
func (h *health) failed(key string, slow bool, err error) {
	if slow && h.slow.Add(1) < slowCalls {
		return
	}
	h.probe.Store(&key)
	h.cause.Store(&err)
	if h.isUp.CompareAndSwap(true, false) {
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}
}

// checked notes the result of a check of the server. It reports whether that changed
// the state.
func (h *health) checked(err error) (changed bool) {
	h.slow.Store(0)
	if err != nil {
		h.cause.Store(&err)
		changed = h.isUp.Swap(false)
	} else {
		h.probe.Store(nil)
		changed = !h.isUp.Swap(true)
	}
	h.triedO.Do(func() { close(h.tried); changed = true })
	return changed
}

func (h *health) close() {
	h.closed.Store(true)
	h.isUp.Store(false)
	h.triedO.Do(func() { close(h.tried) })
}

// backoff counts attempts that failed.
type backoff struct{ pause time.Duration }

// next is the time until the next attempt, growing, and random by half, so that
// many machines do not come back all at once.
func (b *backoff) next() time.Duration {
	b.pause = min(max(2*b.pause, firstPause), longestPause)
	return b.pause/2 + rand.N(b.pause/2+1)
}

func (b *backoff) reset() { b.pause = 0 }

// sleep waits for d, or less if wake says so. It reports false when ctx has ended.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	select {
	case <-time.After(d):
	case <-wake:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
