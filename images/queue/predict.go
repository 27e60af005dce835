package queue

import (
	"slices"
	"time"
)

// Predict is how long it would take from now until such a job has ended: what
// runs and what waits before it, and its own cost. ok is false while nothing is
// known of its class, and for what would get ErrTooBig or ErrClosed. If its key
// waits or runs already, it is that job's end. What others may submit before
// then is not in it; jobs of classes of which nothing is known count as if they
// were of this one.
func (q *Queue) Predict(j Job) (d time.Duration, ok bool) {
	j.Priority = min(j.Priority, Idle)
	j.Memory = max(j.Memory, 0)
	q.mu.Lock()
	defer q.mu.Unlock()
	own, known := q.costs.predict(j.Class, j.Megapixels)
	if !known || q.closed {
		return 0, false
	}
	there := q.byKey[j.Key]
	if there == nil && j.Memory > q.o.Memory {
		return 0, false
	}
	guess := func(w *work) time.Duration {
		d, known := q.costs.predict(w.Class, w.Megapixels)
		if !known {
			d, _ = q.costs.predict(j.Class, w.Megapixels)
		}
		return d
	}
	s := forecast{workers: q.o.Workers, low: q.o.Workers - q.o.Reserve, budget: q.o.Memory}
	now := time.Now()
	for w := range q.running {
		rest := remaining(guess(w), now.Sub(w.started))
		if w == there {
			return rest, true
		}
		s.runs(share{rest, w.Memory, w.low})
	}
	for p := Urgent; p <= min(j.Priority, Background); p++ {
		for e := q.waiting[p].Front(); e != nil; e = e.Next() {
			w := e.Value.(*work)
			end := s.add(share{guess(w), w.Memory, p != Urgent})
			if w == there {
				return end, true
			}
		}
	}
	if j.Priority != Idle { // new, or to be moved up to the end
		return s.add(share{own, j.Memory, j.Priority != Urgent}), true
	}
	// Idle jobs run alone, one after the other, when all else has ended.
	end := s.end()
	if end > 0 && q.busy() {
		end += q.o.Idle
	} else {
		end = max(end, q.untilIdle())
	}
	for e := q.waiting[Idle].Front(); e != nil; e = e.Next() {
		w := e.Value.(*work)
		if w == there {
			break
		}
		end += guess(w)
	}
	return end + own, true
}

// busy reports whether something other than Idle jobs waits or runs.
func (q *Queue) busy() bool {
	for w := range q.running {
		if w.Priority != Idle {
			return true
		}
	}
	return q.waiting[Urgent].Len()+q.waiting[Background].Len() > 0
}

// remaining is how much longer a job takes that has run for a while. One that is
// overdue may end at any time; a quarter of what it has taken is a guess that keeps
// clients from waiting for jobs that hang.
func remaining(predicted, elapsed time.Duration) time.Duration {
	if elapsed <= predicted {
		return predicted - elapsed
	}
	return elapsed / 4
}

// forecast simulates the workers: jobs start in their order, each as soon as a
// worker and its memory are free. That smaller ones may pass is left out.
type forecast struct {
	workers int
	low     int // how many of them do what is not Urgent
	budget  int64
	now     time.Duration // when the last job was started
	running []share       // at most workers
}

// share is what a job has of the machine.
type share struct {
	time   time.Duration // that it takes; of one that runs, when it ends
	memory int64
	low    bool
}

// runs adds a job that has been started.
func (f *forecast) runs(s share) { f.running = append(f.running, s) }

// add starts a job as soon as it can, and returns when it ends.
func (f *forecast) add(job share) time.Duration {
	for len(f.running) > 0 {
		used, low, first := job.memory, 0, 0
		for i, s := range f.running {
			used += s.memory
			if s.low {
				low++
			}
			if s.time < f.running[first].time {
				first = i
			}
		}
		if len(f.running) < f.workers && used <= f.budget && (!job.low || low < f.low) {
			break
		}
		f.now = max(f.now, f.running[first].time)
		f.running = slices.Delete(f.running, first, first+1)
	}
	job.time += f.now
	f.runs(job)
	return job.time
}

// end is when all have ended.
func (f *forecast) end() time.Duration {
	end := f.now
	for _, s := range f.running {
		end = max(end, s.time)
	}
	return end
}
