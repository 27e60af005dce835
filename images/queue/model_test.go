package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// life is what a test has seen of one job. Times are those of the bubble, in
// which everything that happens at once has the same.
type life struct {
	order          int // of Submit, or of what made it more urgent
	priority       Priority
	memory         int64
	submitted      time.Time
	started, ended time.Time // zero while it is not
	ticket         *Ticket
}

// witness watches all jobs of a queue.
type witness struct {
	t       *testing.T
	o       Options
	mu      sync.Mutex
	running map[string]bool
	memory  int64
	low     int // of those that run: nobody waited at their start
	lives   []*life
	now     map[string]*life // the latest of each key
}

func (w *witness) run(l *life, key string, d time.Duration) func(context.Context, bool) (time.Duration, error) {
	return func(ctx context.Context, urgent bool) (time.Duration, error) {
		w.mu.Lock()
		if urgent && l.priority != Urgent { // not the reverse: it may have become so in between
			w.t.Errorf("%s: nobody waits for it, its priority is %d", key, l.priority)
		}
		if w.running[key] {
			w.t.Errorf("%s runs twice at once", key)
		}
		l.started = time.Now()
		w.running[key] = true
		w.memory += l.memory
		low := 1
		if urgent {
			low = 0
		}
		w.low += low
		if len(w.running) > w.o.Workers || w.memory > w.o.Memory {
			w.t.Errorf("%d jobs with %d bytes run", len(w.running), w.memory)
		}
		if w.low > w.o.Workers-w.o.Reserve {
			w.t.Errorf("%d jobs run behind with %d workers, %d of them reserved", w.low, w.o.Workers, w.o.Reserve)
		}
		w.mu.Unlock()
		_, err := takes(d)(ctx, urgent)
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.running, key)
		w.memory -= l.memory
		w.low -= low
		l.ended = time.Now()
		return d, err
	}
}

// submit submits a random job, and keeps the books of what ought to come of it.
func (w *witness) submit(q *Queue, r *rand.Rand, keys int) {
	key := fmt.Sprint("job ", r.IntN(keys))
	l := &life{
		order: len(w.lives), priority: Priority(r.IntN(int(priorities))), memory: r.Int64N(w.o.Memory) + 1,
		submitted: time.Now(), // before the jobs that run can see it
	}
	if w.o.Memory == plenty || r.IntN(4) > 0 {
		l.memory = l.memory/8 + 1
	}
	d := time.Duration(r.IntN(2000)) * time.Millisecond
	w.mu.Lock() // no job may look around before the books are right
	defer w.mu.Unlock()
	ticket, err := q.Submit(Job{Key: key, Memory: l.memory, Priority: l.priority, Class: "x", Megapixels: 1, Run: w.run(l, key, d)})
	switch before := w.now[key]; {
	case err != nil:
		if !errors.Is(err, ErrFull) {
			w.t.Errorf("%s: %v", key, err)
		}
	case before != nil && before.ticket.w == ticket.w: // joined
		if l.priority < before.priority && before.started.IsZero() {
			before.priority, before.order = l.priority, l.order
		}
		w.lives = append(w.lives, &life{order: -1, ticket: ticket}) // only its order is used up
	default:
		l.ticket = ticket
		w.now[key] = l
		w.lives = append(w.lives, l)
	}
}

// ahead reports whether a has to start before b, if both wait and fit.
func ahead(a, b *life) bool {
	return a.priority < b.priority || a.priority == b.priority && a.order < b.order
}

// check looks at the whole history: each job that started while another one
// waited that was ahead of it has passed it.
func (w *witness) check() (ran int) {
	for _, l := range w.lives {
		select {
		case <-l.ticket.Done():
		default:
			w.t.Errorf("job %d never ends", l.order)
		}
		if l.order < 0 || l.started.IsZero() {
			continue
		}
		ran++
		passed := 0
		for _, other := range w.lives {
			if other.order >= 0 && !other.started.IsZero() && ahead(l, other) &&
				other.started.After(l.submitted) && other.started.Before(l.started) {
				passed++
			}
			if other != l && l.priority == Idle && !other.started.IsZero() && other.started.Before(l.started) && other.ended.After(l.started) {
				w.t.Errorf("job %d, an Idle one, was started while %d ran", l.order, other.order)
			}
		}
		if w.o.Memory == plenty && passed > 0 || passed > maxPassed {
			w.t.Errorf("job %d of priority %d was passed %d times", l.order, l.priority, passed)
		}
	}
	return ran
}

const plenty = 1 << 60 // everything fits: at most four run

// TestModel lets random jobs come at random times and checks what they see and
// what has become of them. Promotions happen in some of the runs: there the
// number of those that passed is not known from the outside, so only what must
// hold at every moment is checked.
func TestModel(t *testing.T) {
	ran := 0
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 6))
			o := Options{Workers: 1 + r.IntN(4), Memory: 1000, Depth: 1 + r.IntN(40), Idle: time.Second}
			o.Reserve = r.IntN(o.Workers)
			keys := 1 << 30
			switch r.IntN(3) {
			case 0:
				o.Memory = plenty
			case 1:
				keys = 10 // many join
			}
			w := &witness{t: t, o: o, running: map[string]bool{}, now: map[string]*life{}}
			q := New(o)
			defer q.Close()
			for range 150 {
				w.submit(q, r, keys)
				if s := q.Stats(); s.Running > o.Workers || s.Waiting > o.Depth || s.Memory > o.Memory {
					t.Errorf("%+v of %+v", s, o)
				}
				if r.IntN(2) == 0 {
					time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
				}
				if r.IntN(30) == 0 {
					time.Sleep(10 * time.Second) // time for Idle jobs
				}
			}
			time.Sleep(30 * time.Minute)
			synctest.Wait()
			if s := q.Stats(); s.Running != 0 || s.Waiting != 0 || s.Memory != 0 || len(q.byKey) != 0 {
				t.Errorf("in the end %+v", s)
			}
			if keys > 10 {
				ran += w.check()
			}
		})
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
	if ran < 1000 {
		t.Errorf("only %d jobs ran: this test proves little", ran)
	}
}
