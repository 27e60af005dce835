package tier

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"millrace/cache/object"
	"millrace/store"
)

// This file tells the shared store which of its objects are used. It does not see what is
// answered from memory, and would evict what is asked for most.

const (
	// touchEvery is the time between two messages, which name touchMost objects at most.
	touchEvery = time.Second
	touchMost  = 100
	// touchListed is how many objects take turns: each has one in 40 s at the latest.
	touchListed = 40 * touchMost
)

// touches are the objects whose use the shared store is told, in the order of their turns.
// One that has not been used since its last turn is no longer among them.
type touches struct {
	to    store.Toucher
	wake  chan struct{} // a token: there are some
	count atomic.Int32

	mu   sync.Mutex
	list []touch
}

type touch struct {
	keys []string
	use  *object.Usage
}

// Used notes that an answer from memory is being sent. What it returns notes that another
// one sends it from now on; nil: that is of no use.
func (t *Tiers) Used(key string, o *object.Object) *atomic.Bool {
	if t.touches == nil || o.Disk != "" || !o.Kept.Load() {
		return nil
	}
	u := o.Usage()
	if !u.Used.Load() {
		u.Used.Store(true)
	}
	if u.Listed.Load() || int(t.touches.count.Load()) >= touchListed || !u.Listed.CompareAndSwap(false, true) {
		return &u.Used
	}
	keys := []string{t.storeKey(key, o)}
	if len(o.Vary) > 0 {
		keys = append(keys, t.o.Prefix+key) // where it is said by which fields it was chosen
	}
	t.touches.add(touch{keys, u})
	return &u.Used
}

func (t *touches) add(one touch) {
	t.mu.Lock()
	t.list = append(t.list, one)
	t.count.Store(int32(len(t.list)))
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// take returns the keys whose turn it is, and reports whether there are objects left.
func (t *touches) take() (keys []string, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	turn := t.list[:min(len(t.list), touchMost)]
	rest := t.list[len(turn):]
	next := make([]touch, 0, len(t.list))
	next = append(next, rest...)
	for _, one := range turn {
		if one.use.Used.Swap(false) {
			keys = append(keys, one.keys...)
			next = append(next, one)
			continue
		}
		one.use.Listed.Store(false) // its next use lists it again
	}
	t.list = next
	t.count.Store(int32(len(next)))
	return keys, len(next) > 0
}

// run tells the store until ctx ends, or Stop. While nothing is used it sleeps.
func (t *touches) run(ctx context.Context, done <-chan struct{}) {
	for {
		select {
		case <-t.wake:
		case <-done:
			return
		case <-ctx.Done():
			return
		}
		for more := true; more; {
			select {
			case <-time.After(touchEvery):
			case <-done:
				return
			case <-ctx.Done():
				return
			}
			var keys []string
			if keys, more = t.take(); len(keys) > 0 {
				_ = t.to.Touch(ctx, keys) // those that are still used have another turn
			}
		}
	}
}
