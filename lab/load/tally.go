package load

import (
	"cmp"
	"time"
)

// A tally is what one thread, or several together, counted over some time.
type tally struct {
	took        time.Duration // summed over threads
	requests    uint64
	bytes       uint64
	body        uint64
	late        uint64
	dropped     uint64
	requestTime int64 // requests in flight × ns
	cpu         cpu
	errors      Errors
	latency     Histogram
	service     Histogram // of open loops; latency is the same in a closed one
	status      [1000]uint64

	// The state at the end of that time.
	open   int    // connections
	flying uint64 // requests in flight
}

// cpu is what threads used.
type cpu struct {
	user, system time.Duration
	instructions uint64
}

func (c cpu) sub(earlier cpu) cpu {
	return cpu{c.user - earlier.user, c.system - earlier.system, c.instructions - earlier.instructions}
}

// fail counts an error of one kind, a field of t.errors.
func (t *tally) fail(kind *uint64, err error) {
	*kind++
	if t.errors.First == "" {
		t.errors.First = err.Error()
	}
}

// join adds the tally of another thread over the same time.
func (t *tally) join(other *tally) {
	t.add(other)
	t.open += other.open
	t.flying += other.flying
}

// follow adds a tally of the time that came next.
func (t *tally) follow(next *tally) {
	t.add(next)
	t.open, t.flying = next.open, next.flying
}

func (t *tally) add(o *tally) {
	t.took += o.took
	t.requests += o.requests
	t.bytes += o.bytes
	t.body += o.body
	t.late += o.late
	t.dropped += o.dropped
	t.requestTime += o.requestTime
	t.cpu.user += o.cpu.user
	t.cpu.system += o.cpu.system
	t.cpu.instructions += o.cpu.instructions
	t.errors.add(&o.errors)
	t.latency.Merge(&o.latency)
	t.service.Merge(&o.service)
	for status, n := range o.status {
		t.status[status] += n
	}
}

func (e *Errors) add(o *Errors) {
	e.Connect += o.Connect
	e.Closed += o.Closed
	e.Timeout += o.Timeout
	e.Protocol += o.Protocol
	e.Changed += o.Changed
	e.First = cmp.Or(e.First, o.First)
}

// reset empties the tally.
func (t *tally) reset() {
	latency, service := &t.latency, &t.service
	latency.reset()
	service.reset()
	t.took, t.requests, t.bytes, t.body, t.late, t.dropped, t.requestTime = 0, 0, 0, 0, 0, 0, 0
	t.cpu, t.errors, t.open, t.flying = cpu{}, Errors{}, 0, 0
	clear(t.status[:])
}

// A page is what a driver knows about one path.
type page struct {
	request []byte // of the loops
	number  int    // where Config.Unique's ends in it; 0: nowhere
	known   known  // of the loops
	status  int    // of the first answer to be complete; 0: none yet
	body    int64
	sample  sample
}
