package conn

import (
	"sync"
	"sync/atomic"
)

// runner is what a loop and the strand have in common: a number, an inbox, and
// the time.
type runner struct {
	index int
	wake  func()          // called by post when the inbox was empty
	guard func(cause any) // told of functions that panic
	tick  uint32          // of the engine, as seen by whatever runs here
	wheel wheel

	list []func() // taken from the inbox
	at   int      // the next of them

	mu    sync.Mutex
	inbox []func()
	over  bool        // nothing is taken any more
	asked atomic.Bool // there is something in the inbox
}

// post appends f to the inbox.
func (r *runner) post(f func()) {
	r.mu.Lock()
	if r.over {
		r.mu.Unlock()
		return
	}
	r.inbox = append(r.inbox, f)
	first := len(r.inbox) == 1
	r.mu.Unlock()
	if first {
		r.asked.Store(true)
		r.wake()
	}
}

const (
	// maxSpare is the largest list of functions that is used again.
	maxSpare = 4096
	// maxRun is how many functions are called before the connections get their
	// turn: a tenth of a millisecond if they are small.
	maxRun = 256
)

// run calls the functions in the inbox, but not those that come meanwhile, and not too
// many. after is called behind each.
func (r *runner) run(after func()) {
	if r.at == len(r.list) && !r.refill() {
		return
	}
	for end := min(r.at+maxRun, len(r.list)); r.at < end; {
		f := r.list[r.at]
		r.list[r.at] = nil
		r.at++
		r.call(f)
		after()
	}
}

// call calls f. A panic in it must not end all connections.
func (r *runner) call(f func()) {
	defer func() {
		if cause := recover(); cause != nil {
			r.guard(cause)
		}
	}()
	f()
}

// refill takes what is in the inbox.
func (r *runner) refill() bool {
	if !r.asked.Load() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var spare []func()
	if cap(r.list) <= maxSpare {
		spare = r.list[:0]
	}
	r.list, r.inbox, r.at = r.inbox, spare, 0
	r.asked.Store(false)
	return true
}

// more reports whether there is something to run.
func (r *runner) more() bool { return r.at < len(r.list) || r.asked.Load() }

// stop is called when run will not be called any more.
func (r *runner) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over, r.inbox, r.list = true, nil, nil
}
