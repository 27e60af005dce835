// Package queue decides when a conversion runs: never more at once than there
// are workers and memory for, those that a client waits for first, each only
// once however many ask, and none at all when too many wait. It learns what a
// conversion costs on this machine.
package queue

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// The errors of jobs that did not run, and of one that ended badly.
var (
	ErrFull     = errors.New("too many conversions wait")
	ErrTooBig   = errors.New("the conversion needs more memory than there is a budget for")
	ErrTooLong  = errors.New("the conversion would be ended before it is done")
	ErrClosed   = errors.New("the queue is closed")
	ErrPanicked = errors.New("the conversion panicked")
)

const (
	defaultMemory  = 512 << 20
	defaultDepth   = 1000
	defaultIdle    = 5 * time.Second
	defaultTimeout = time.Minute // several times the slowest: a large AVIF with the most effort

	// maxPassed is how often others may pass a job that does not fit into
	// memory now. Then the memory that becomes free is kept for it.
	maxPassed = 8
	// maxLook is how many jobs that do not fit are looked past for one that
	// does, which bounds the work of each decision.
	maxLook = 32
)

// Options of a Queue. Zero values are the defaults.
type Options struct {
	Workers int   // conversions at once; default the number of CPUs
	Memory  int64 // predicted bytes at once; default 512 MiB
	Depth   int   // jobs that wait; default 1000
	// Reserve is how many of the workers do Urgent jobs only, so that a client
	// need not wait for a long job in the background. Default 0, at most
	// Workers - 1.
	Reserve int
	// Idle is how long nothing urgent must have happened before Idle jobs
	// run. Default 5 s.
	Idle time.Duration
	// Timeout ends the context of a job that has run for so long. Default 1 min.
	Timeout time.Duration
}

// Priority of a job.
type Priority uint8

// Priorities: a client waits; nobody waits, but a visitor has asked for it;
// improvements that are made when there is nothing else to do, one at a time.
const (
	Urgent Priority = iota
	Background
	Idle
)

const priorities = Idle + 1

// Class is what jobs of a like cost share, such as "jpeg>webp fast tools".
type Class string

// Job is one conversion.
type Job struct {
	Key        string // the same key is the same work
	Class      Class
	Megapixels float64
	Memory     int64 // predicted bytes at the peak
	Priority   Priority
	// Guess is what it takes, within a factor of two, where nothing is known of
	// its class. A job that has one is refused if it will take longer than
	// Options.Timeout: it would cost all that time and come to nothing. 0: it is
	// tried.
	Guess time.Duration
	// Run does it. It returns the wall time that counts for the prediction
	// (0: none), whatever the error, and must end soon after ctx, which ends
	// with Close and after Options.Timeout, but not when clients go away. urgent
	// says whether a client waits by now. A panic is the job's error.
	Run func(ctx context.Context, urgent bool) (cost time.Duration, err error)
}

// work is a job from Submit to its end. Its fields are guarded by Queue.mu, but
// for err, which done publishes.
type work struct {
	Job
	at      *list.Element // in its priority's list while it waits, else nil
	passed  int           // how often others were let past
	low     bool          // was not Urgent when it was started
	started time.Time
	done    chan struct{}
	err     error
}

// Queue runs jobs.
type Queue struct {
	o        Options
	ctx      context.Context // of all jobs
	cancel   context.CancelFunc
	runnable chan *work // what runs and has not been taken by its worker yet
	workers  sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	byKey   map[string]*work       // what waits or runs: bounded by Depth and Workers
	waiting [priorities]*list.List // of *work, first in, first out; Depth together
	running map[*work]struct{}     // at most Workers
	memory  int64                  // predicted bytes of what runs
	low     int                    // how many of them are low
	active  time.Time              // when something that is not Idle last happened
	wake    *time.Timer            // for Idle jobs; nil before the first
	costs   costs
	stats   Stats // its counters
}

// New starts the workers, which Close waits for.
func New(o Options) *Queue {
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	o.Reserve = max(min(o.Reserve, o.Workers-1), 0)
	if o.Memory <= 0 {
		o.Memory = defaultMemory
	}
	if o.Depth <= 0 {
		o.Depth = defaultDepth
	}
	if o.Idle <= 0 {
		o.Idle = defaultIdle
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	q := &Queue{
		o: o,
		// No more than Workers run, so handing over never blocks.
		runnable: make(chan *work, o.Workers),
		byKey:    map[string]*work{},
		running:  map[*work]struct{}{},
		active:   time.Now(),
		costs:    costs{},
	}
	for p := range q.waiting {
		q.waiting[p] = list.New()
	}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	for range o.Workers {
		q.workers.Go(func() {
			for w := range q.runnable {
				q.run(w)
			}
		})
	}
	return q
}

// Ticket is one caller's share in a job.
type Ticket struct{ w *work }

// Done is closed when the job has ended.
func (t *Ticket) Done() <-chan struct{} { return t.w.done }

// Err is the job's error, valid after Done and nil before.
func (t *Ticket) Err() error {
	select {
	case <-t.w.done:
		return t.w.err
	default:
		return nil
	}
}

// Submit adds a job, or joins the one with its key that waits or runs: which
// becomes more urgent if this one is and it still waits. ErrFull, ErrTooBig,
// ErrTooLong or ErrClosed when it will not run. A full queue gives up an Idle job for a
// Background one, and that for an Urgent one, the newest of the least urgent first;
// the ticket of what was given up ends with ErrFull.
func (q *Queue) Submit(j Job) (*Ticket, error) {
	j.Priority = min(j.Priority, Idle)
	j.Memory = max(j.Memory, 0)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, ErrClosed
	}
	if j.Priority != Idle {
		q.active = time.Now()
	}
	if w := q.byKey[j.Key]; w != nil {
		q.stats.Joined++
		if j.Priority < w.Priority {
			q.promote(w, j.Priority)
		}
		return &Ticket{w}, nil
	}
	if j.Memory > q.o.Memory {
		return nil, fmt.Errorf("%w: %d bytes of %d", ErrTooBig, j.Memory, q.o.Memory)
	}
	if j.Guess > 0 {
		takes, known := q.costs.predict(j.Class, j.Megapixels)
		if !known {
			takes = 2 * j.Guess
		}
		if takes > q.o.Timeout {
			return nil, fmt.Errorf("%w: predicted %v of %v", ErrTooLong, takes.Round(time.Second), q.o.Timeout)
		}
	}
	w := &work{Job: j, done: make(chan struct{})}
	w.at = q.waiting[j.Priority].PushBack(w)
	q.byKey[j.Key] = w
	q.dispatch()
	if q.waits() > q.o.Depth && q.shed() == w {
		return nil, ErrFull
	}
	return &Ticket{w}, nil
}

// promote makes a job more urgent. What runs already runs as it was started.
func (q *Queue) promote(w *work, p Priority) {
	if w.at != nil {
		q.waiting[w.Priority].Remove(w.at)
		w.at = q.waiting[p].PushBack(w)
	}
	w.Priority = p
	q.dispatch()
}

// shed gives up the newest of the least urgent jobs that wait.
func (q *Queue) shed() *work {
	for p := Idle; ; p-- { // one waits: somebody found more than Depth
		if last := q.waiting[p].Back(); last != nil {
			w := last.Value.(*work)
			q.stats.Shed++
			q.giveUp(w, ErrFull)
			return w
		}
	}
}

// giveUp ends a job that waits with an error.
func (q *Queue) giveUp(w *work, err error) {
	q.waiting[w.Priority].Remove(w.at)
	w.at = nil
	q.end(w, err)
}

func (q *Queue) end(w *work, err error) {
	delete(q.byKey, w.Key)
	w.err = err
	close(w.done)
}

func (q *Queue) waits() int {
	n := 0
	for _, l := range q.waiting {
		n += l.Len()
	}
	return n
}

// dispatch starts what may run now. It is called after every change.
func (q *Queue) dispatch() {
	for !q.closed && len(q.running) < q.o.Workers {
		w := q.next()
		if w == nil {
			break
		}
		q.waiting[w.Priority].Remove(w.at)
		w.at = nil
		w.started = time.Now()
		q.running[w] = struct{}{}
		q.memory += w.Memory
		if w.low = w.Priority != Urgent; w.low {
			q.low++
		}
		q.runnable <- w
	}
	q.setAlarm()
}

// next is the job to start, or nil: the first of the most urgent that fits. One
// that doesn't fit is passed maxPassed times by jobs after it; then all
// wait with it, or small jobs could keep a large one out for ever.
func (q *Queue) next() *work {
	var unfit [maxLook]*work
	n := 0
	for p, l := range q.waiting[:Idle] {
		if Priority(p) != Urgent && q.low >= q.o.Workers-q.o.Reserve {
			return nil
		}
		for e := l.Front(); e != nil; e = e.Next() {
			w := e.Value.(*work)
			if q.memory+w.Memory <= q.o.Memory {
				for _, u := range unfit[:n] {
					u.passed++
				}
				return w
			}
			if w.passed >= maxPassed || n == len(unfit) {
				return nil
			}
			unfit[n] = w
			n++
		}
	}
	if first := q.waiting[Idle].Front(); first != nil && n == 0 && len(q.running) == 0 && q.untilIdle() <= 0 {
		return first.Value.(*work)
	}
	return nil
}

// untilIdle is how long Idle jobs have to wait still, if nothing happens.
func (q *Queue) untilIdle() time.Duration { return q.o.Idle - time.Since(q.active) }

// setAlarm has Idle jobs looked at again in time. While anything runs there is
// no need: its end is a change.
func (q *Queue) setAlarm() {
	if q.closed || len(q.running) > 0 || q.waiting[Idle].Len() == 0 {
		return
	}
	d := max(q.untilIdle(), 0)
	if q.wake != nil {
		q.wake.Reset(d)
		return
	}
	q.wake = time.AfterFunc(d, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.dispatch()
	})
}

// run does a job, in a worker.
func (q *Queue) run(w *work) {
	ctx, cancel := context.WithTimeout(q.ctx, q.o.Timeout)
	defer cancel()
	q.mu.Lock()
	urgent := w.Priority == Urgent
	q.mu.Unlock()
	cost, err := time.Duration(0), ErrClosed
	if q.ctx.Err() == nil {
		cost, err = guarded(ctx, w, urgent)
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	if w.Priority != Idle {
		q.active = time.Now()
	}
	delete(q.running, w)
	q.memory -= w.Memory
	if w.low {
		q.low--
	}
	q.costs.learn(w.Class, w.Megapixels, cost)
	if err != nil {
		q.stats.Failed++
	} else {
		q.stats.Done++
	}
	q.end(w, err)
	q.dispatch()
}

// guarded makes a panic an error, with its stack for the log.
func guarded(ctx context.Context, w *work, urgent bool) (cost time.Duration, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			stack := make([]byte, 4<<10) // where it happened stands at the top
			stack = stack[:runtime.Stack(stack, false)]
			cost, err = 0, fmt.Errorf("%w: %v\n%s", ErrPanicked, cause, stack)
		}
	}()
	return w.Run(ctx, urgent)
}

// Cost is what is known of a class: the milliseconds that an image of one
// megapixel takes, and of how many jobs that is known. The newest count most.
func (q *Queue) Cost(c Class) (ms float64, jobs int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	m := q.costs[c]
	if m == nil {
		return 0, 0
	}
	return m.cost(1), m.jobs
}

// Stats of the queue.
type Stats struct {
	Running, Waiting int
	Memory           int64             // predicted bytes of what runs
	Done, Failed     uint64            // jobs that ran and ended well, or with an error
	Shed             uint64            // jobs that got ErrFull
	Joined           uint64            // Submits of what waited or ran already
	Costs            map[Class]float64 // milliseconds that a megapixel takes, as Cost says
}

// Stats may be called at any time.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.stats
	s.Running, s.Waiting, s.Memory = len(q.running), q.waits(), q.memory
	s.Costs = make(map[Class]float64, len(q.costs))
	for c, m := range q.costs {
		s.Costs[c] = m.cost(1)
	}
	return s
}

// Close refuses new jobs, ends the context of those that run, and waits for
// them; those that wait end with ErrClosed. The second Close waits, too.
func (q *Queue) Close() error {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		q.cancel()
		close(q.runnable) // dispatch sends no more
		if q.wake != nil {
			q.wake.Stop()
		}
		for _, l := range q.waiting {
			for e := l.Front(); e != nil; e = l.Front() {
				q.giveUp(e.Value.(*work), ErrClosed)
			}
		}
	}
	q.mu.Unlock()
	q.workers.Wait()
	return nil
}
