package experiment

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"millrace/lab/load"
	"millrace/lab/record"
)

// A Stage is what a measurement says to whoever watches, and the clock it runs
// by. Its methods may be called by several goroutines; events leave it one at
// a time.
type Stage struct {
	env   Env
	res   *record.Result
	began time.Time
	until time.Time // when the budget is over

	mu sync.Mutex // guards res.Notes and the watcher
}

// NewStage begins now. Of the time that the mode allows, some is left for
// writing the reports.
func NewStage(env Env, res *record.Result) *Stage {
	now := time.Now()
	return &Stage{env: env, res: res, began: now, until: now.Add(Budget(env.Mode))}
}

// Budget is how long the whole run may take in a mode, with some seconds to
// spare for stopping and reporting.
func Budget(mode record.Mode) time.Duration {
	if mode == record.Full {
		return 14 * time.Minute
	}
	return 84 * time.Second
}

// Built is called when everything is built: what that took beyond its share is
// no part of the budget.
func (s *Stage) Built() {
	if beyond := time.Since(s.began) - buildShare; beyond > 0 {
		s.until = s.until.Add(beyond)
	}
}

// Left is how much of the budget is left.
func (s *Stage) Left() time.Duration { return time.Until(s.until) }

// Emit reports that something that takes time begins. The event's time is
// filled in.
func (s *Stage) Emit(e record.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.emit(e)
}

// Note tells a reader something, once.
func (s *Stage) Note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.res.Notes, text) {
		return
	}
	s.res.Notes = append(s.res.Notes, text)
	s.emit(record.Event{Kind: record.EventNote, Text: text})
}

// Part watches one of several measurements of a run. Its progress is that of the
// run between two shares; after is how long what follows it takes.
func (s *Stage) Part(from, to float64, after time.Duration) record.Watch {
	return func(e record.Event) {
		e.Done = from + (to-from)*e.Done
		if e.Left > 0 {
			e.Left += after
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.env.Watch != nil {
			s.env.Watch(e)
		}
	}
}

// emit sends an event; s.mu is held.
func (s *Stage) emit(e record.Event) {
	if s.env.Watch == nil {
		return
	}
	e.Time = time.Now()
	s.env.Watch(e)
}

// reservedFiles are the descriptors that a process needs beside its connections.
const reservedFiles = 400

// MostConnections is how many a process may hold open here, at the most the number
// that is wanted; a note says where it is less.
func (s *Stage) MostConnections(wanted int) int {
	files, err := load.RaiseFileLimit()
	if err != nil || int(files)-reservedFiles >= wanted {
		return wanted
	}
	s.Note("a process may hold only %d descriptors here, so there are fewer quiet connections than there should be (raise that with ulimit -Hn as root)", files)
	return max(1, int(files)-reservedFiles)
}

// Sleep waits, unless ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Each calls do with 0 to n-1, from at most so many goroutines, which it waits
// for. The first error ends it.
func Each(n, goroutines int, do func(i int) error) error {
	var (
		mu    sync.Mutex // guards what follows
		next  int
		first error
		all   sync.WaitGroup
	)
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next - 1, next <= n && first == nil
	}
	for range min(goroutines, n) {
		all.Go(func() {
			for i, ok := take(); ok; i, ok = take() {
				if err := do(i); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return first
}
