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
	varied      uint64
	non2xx      uint64
	late        uint64
	dropped     uint64
	requestTime int64 // requests in flight × ns
	// rest is the time in ns that requests were in flight within the window and that
	// service times do not say: those that were lost, or not right, or not answered
	// when it closed. What service times say of the time before it is taken off.
	rest    int64
	cpu     cpu
	errors  Errors
	latency Histogram
	service Histogram // of open loops; latency is the same in a closed one
	status  [1000]uint64
	steps   []StepResult // of a scenario

	// The state at the end of that time.
	open   int    // connections
	flying uint64 // requests in flight
}

func newTally(p *plan) *tally {
	t := new(tally)
	if p.scenario {
		t.steps = make([]StepResult, len(p.steps))
	}
	return t
}

// under adds the time that a request was in flight, as far as it lies in the window.
func (t *tally) under(since, until, opened int64) { t.rest += max(until-max(since, opened), 0) }

// times are when a request was due, written, and answered, and when the window opened, on the
// run's clock.
type times struct{ due, since, now, opened int64 }

// answered counts an answer. It took since the request was due, or else since it
// was written.
func (t *tally) answered(step int, right, open bool, at times) {
	due, since, now, opened := at.due, at.since, at.now, at.opened
	if !right {
		t.under(since, now, opened)
	} else {
		t.rest -= max(opened-since, 0)
		t.latency.Record(time.Duration(now - due))
		if open {
			t.service.Record(time.Duration(now - since))
		}
	}
	if t.steps != nil {
		t.steps[step].count(right, time.Duration(now-since))
	}
}

func (s *StepResult) count(right bool, took time.Duration) {
	if s.Requests++; right {
		s.Latency.Record(took)
	} else {
		s.Failed++
	}
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
	t.varied += o.varied
	t.non2xx += o.non2xx
	t.rest += o.rest
	for i := range t.steps {
		t.steps[i].Requests += o.steps[i].Requests
		t.steps[i].Failed += o.steps[i].Failed
		t.steps[i].Latency.Merge(&o.steps[i].Latency)
	}
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
	e.Unexpected += o.Unexpected
	e.First = cmp.Or(e.First, o.First)
}

// reset empties the tally.
func (t *tally) reset() {
	latency, service := &t.latency, &t.service
	latency.reset()
	service.reset()
	t.took, t.requests, t.bytes, t.body, t.late, t.dropped, t.requestTime = 0, 0, 0, 0, 0, 0, 0
	t.varied, t.non2xx, t.rest = 0, 0, 0
	for i := range t.steps {
		s := &t.steps[i]
		s.Requests, s.Failed = 0, 0
		s.Latency.reset()
	}
	t.cpu, t.errors, t.open, t.flying = cpu{}, Errors{}, 0, 0
	clear(t.status[:])
}

// A page is what a driver knows about one path.
type page struct {
	request []byte // of the loops; nil: it is made for each
	known   known  // of the loops
	status  int    // of the first answer to be complete; 0: none yet
	body    int64
	plain   bool // an answer like the first is right: nobody looks into it, and its status is 2xx
	sample  sample
}
