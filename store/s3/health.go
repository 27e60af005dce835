package s3

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// The times of recovery.
const (
	// firstPause and longestPause lie between attempts to reach a server that
	// does not work: long enough not to be a burden to one that is just starting.
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
	// slowCalls is how many calls in a row must run out of time, or be cut off,
	// for the server to count as down. One may have had bad luck.
	slowCalls = 3
	// betweenLines is the time between two log lines about the same.
	betweenLines = time.Minute
)

// health decides whether the server is asked at all. Down means that calls are
// refused at once, without waiting for another timeout.
type health struct {
	isDown atomic.Bool
	slow   atomic.Int32
	cause  atomic.Pointer[error]
	ups    atomic.Uint64 // how often it was up again
	wake   chan struct{} // tells the supervisor
}

func newHealth() *health { return &health{wake: make(chan struct{}, 1)} }

func (h *health) up() bool { return !h.isDown.Load() }

func (h *health) worked() {
	if h.slow.Load() != 0 {
		h.slow.Store(0)
	}
}

// failed notes that a call has not been answered which began when ups was as
// given: what was before the last recovery says nothing about now. once is one
// sign of several that it takes.
func (h *health) failed(ups uint64, once bool, err error) {
	if ups != h.ups.Load() || once && h.slow.Add(1) < slowCalls {
		return
	}
	h.cause.Store(&err)
	if h.isDown.CompareAndSwap(false, true) {
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}
}

func (h *health) recovered() {
	h.ups.Add(1)
	h.slow.Store(0)
	select { // of the time that has just ended
	case <-h.wake:
	default:
	}
	h.isDown.Store(false)
}

// supervise asks the server when the store is opened, and again and again while
// it is down. Open starts it, Close waits for it.
func (s *Store) supervise() {
	err := s.check()
	if err == nil && s.health.up() {
		s.log.Info("s3 answers", "server", s.Server())
	}
	for {
		if err == nil && s.health.up() {
			select {
			case <-s.health.wake:
			case <-s.closing.Done():
				return
			}
		}
		if s.closing.Err() != nil {
			return
		}
		if s.health.up() {
			s.health.failed(s.health.ups.Load(), false, err)
		}
		s.log.Warn("s3 does not work; other tiers go on without it", "server", s.Server(), "error", *s.health.cause.Load())
		var pause backoff
		for {
			if !sleep(s.closing, pause.next()) {
				return
			}
			if err = s.check(); err == nil {
				break
			}
		}
		s.health.recovered()
		s.log.Info("s3 answers", "server", s.Server())
	}
}

// backoff counts attempts that failed.
type backoff struct{ pause time.Duration }

// next is the time until the next attempt, growing, and random by half, so that
// many machines do not come back all at once.
func (b *backoff) next() time.Duration {
	b.pause = min(max(2*b.pause, firstPause), longestPause)
	return b.pause/2 + rand.N(b.pause/2+1)
}

// sleep waits for d. It reports false when ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
