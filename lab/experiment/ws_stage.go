package experiment

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"millrace/lab/result"
	"millrace/lab/subject"
)

// A stage is what a measurement says to whoever watches, and the clock it runs
// by. Its methods may be called by several goroutines; events leave it one at
// a time.
type stage struct {
	env   Env
	res   *result.Result
	until time.Time // when the budget is over

	mu      sync.Mutex // guards what follows, res.Notes and the watcher
	planned time.Time  // when planned
	work    float64    // planned, in whatever measures how long it takes
	done    float64    // of that work
}

// newStage begins now. Of the time that the mode allows, some is left for
// writing the reports.
func newStage(env Env, res *result.Result) *stage {
	budget := 14 * time.Minute
	if env.Mode == result.Quick {
		budget = 84 * time.Second
	}
	return &stage{env: env, res: res, until: time.Now().Add(budget)}
}

// left is how much of the budget is left.
func (s *stage) left() time.Duration { return time.Until(s.until) }

// plan says how much work there will be from now on.
func (s *stage) plan(work float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.work, s.planned = work, time.Now()
}

// say tells that something that takes time begins. The event's time and
// progress are filled in.
func (s *stage) say(e result.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.emit(e)
}

// step is say, and counts some of the planned work as done.
func (s *stage) step(work float64, e result.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done += work
	s.emit(e)
}

// note tells a reader something, once.
func (s *stage) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.res.Notes, text) {
		return
	}
	s.res.Notes = append(s.res.Notes, text)
	s.emit(result.Event{Kind: result.EventNote, Text: text})
}

// emit sends an event; s.mu is held.
func (s *stage) emit(e result.Event) {
	if s.env.Watch == nil {
		return
	}
	e.Time = time.Now()
	if s.work > 0 && s.done > 0 {
		e.Done = min(1, s.done/s.work)
		e.Left = time.Duration(float64(time.Since(s.planned)) * (1/e.Done - 1))
	}
	s.env.Watch(e)
}

// freeAddress is an address of 127.0.0.1 where nobody listens right now.
func freeAddress() (string, error) {
	port, err := subject.FreePort()
	if err != nil {
		return "", err
	}
	return "127.0.0.1:" + strconv.Itoa(port), nil
}

// median is the middle of some figures, the mean of the two middle ones of an
// even number, and 0 of none.
func median(figures []float64) float64 {
	if len(figures) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(figures))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
