package conn

import (
	"sync"
	"sync/atomic"
)

// runner is what a loop and the strand have in common: a number, an inbox, and
// the time.
type runner struct {
	index int
	wake  func() // called by post when the inbox was empty
	tick  uint32 // of the engine, as seen by whatever runs here
	wheel wheel

	mu    sync.Mutex
	inbox []func()
	spare []func()
	asked atomic.Bool // there is something in the inbox
}

// post appends f to the inbox.
func (r *runner) post(f func()) {
	r.mu.Lock()
	r.inbox = append(r.inbox, f)
	first := len(r.inbox) == 1
	r.mu.Unlock()
	if first {
		r.asked.Store(true)
		r.wake()
	}
}

// maxSpare is the largest list of functions that is used again.
const maxSpare = 4096

// run calls what is in the inbox now, not what comes meanwhile. after is
// called behind each.
func (r *runner) run(after func()) {
	if !r.asked.Load() {
		return
	}
	r.mu.Lock()
	list := r.inbox
	r.inbox, r.spare = r.spare[:0], nil
	r.asked.Store(false)
	r.mu.Unlock()
	for i, f := range list {
		f()
		list[i] = nil
		after()
	}
	if cap(list) <= maxSpare {
		r.mu.Lock()
		r.spare = list[:0]
		r.mu.Unlock()
	}
}
