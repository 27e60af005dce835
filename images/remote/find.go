package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"millrace/internal/lane"
	"millrace/internal/observe/meter"
	"millrace/static/original"
)

// The times of what is known.
const (
	// leastFresh is how long a file is used at least, whatever its host says:
	// it is asked for it once a second at most.
	leastFresh = time.Second
	// mostFresh is how long it is used at most.
	mostFresh = 24 * time.Hour
	// staleFor is how long a file is used whose host is down, since it was
	// last known to be right.
	staleFor = 24 * time.Hour
	// again is when a host is asked again after it failed, noneAgain after it
	// said that there is no such file.
	again     = 10 * time.Second
	noneAgain = 30 * time.Second
	// sweepEvery is how long an answer may outlive its freshness on the fast lane.
	sweepEvery = 500 * time.Millisecond
)

// entry is what is known of a file.
type entry struct {
	file    *file
	gen     lane.Generation
	fresh   time.Duration // how long it is used at a time
	expires time.Time
	checked time.Time // when its host last said that it is right
	marked  bool      // since the last Void
}

// failure is a name that led to nothing.
type failure struct {
	err   error
	until time.Time
}

// call is a request to a host that is under way, shared by all who wait for it.
type call struct {
	done  chan struct{}
	found found // set before done is closed
	err   error
}

// found is a file and what goes with it.
type found struct {
	*file
	version lane.Version
	fresh   time.Duration
}

// The errors of find, besides original.ErrNone.
var (
	errClosed = errors.New("the source is closed")
	errBusy   = errors.New("too many files are being fetched")
	errLoop   = errors.New("the host asks us for what we ask it")
	errKept   = errors.New("it is not known without asking its host")
)

// find returns a file as it is now, as far as can be known.
func (s *Source) find(r *http.Request, name string) (found, error) {
	if slices.Contains(r.Header["Via"], s.via) {
		return found{}, errLoop
	}
	f, fl, err := s.look(name)
	if fl == nil {
		return f, err
	}
	select {
	case <-fl.done:
		return fl.found, fl.err
	case <-r.Context().Done():
		return found{}, r.Context().Err()
	}
}

// look returns what is known of a name, or the call under way that will tell.
func (s *Source) look(name string) (found, *call, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.closing.Err() != nil {
		return found{}, nil, errClosed
	}
	if f, ok := s.failures.get(name); ok {
		if now.Before(f.until) {
			return found{}, nil, f.err
		}
		s.failures.remove(name)
	}
	e, known := s.files.get(name)
	if known && now.Before(e.expires) {
		return e.found(), nil, nil
	}
	fl, err := s.startCall(name)
	if known && now.Before(e.expires.Add(e.fresh)) {
		// Not long stale: nobody waits, and the next one gets what comes.
		return e.found(), nil, nil
	}
	return found{}, fl, err
}

// found is the entry for a caller, with the generation that is invalidated when it changes.
func (e *entry) found() found {
	e.marked = true
	return found{file: e.file, version: e.gen.Now(), fresh: e.fresh}
}

// startCall starts a call for a name, or joins the one under way. s.mu is held.
func (s *Source) startCall(name string) (*call, error) {
	if fl, ok := s.calls[name]; ok {
		return fl, nil
	}
	if len(s.calls) >= mostWaiting {
		return nil, errBusy
	}
	fl := &call{done: make(chan struct{})}
	s.calls[name] = fl
	var known *file
	if e, ok := s.files.get(name); ok {
		known = e.file
	}
	s.wg.Go(func() { s.endCall(name, fl, s.fetch(name, known)) })
	return fl, nil
}

// fetch finds out about a file: from the store, or from its host.
func (s *Source) fetch(name string, known *file) outcome {
	ctx, cancel := context.WithTimeout(s.closing, s.o.Timeout)
	defer cancel()
	kept, err := s.load(ctx, name)
	if err == nil && known == nil && time.Now().Before(kept.Fetched.Add(kept.Fresh)) {
		return outcome{file: kept, fresh: kept.Fresh, checked: kept.Fetched}
	}
	select {
	case s.fetches <- struct{}{}:
		defer func() { <-s.fetches }()
	case <-ctx.Done():
		return outcome{err: fmt.Errorf("%w: %w", errBusy, context.Cause(ctx)), kept: kept}
	}
	o := s.ask(ctx, name, kept)
	o.kept = kept
	return o
}

// outcome is what a fetch led to.
type outcome struct {
	file    *file // as it is now, or nil
	fresh   time.Duration
	checked time.Time
	err     error
	kept    *file // in the store from before, or nil
}

// endCall notes a call's outcome and wakes those who wait for it.
func (s *Source) endCall(name string, fl *call, o outcome) {
	defer close(fl.done)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, name)
	if s.closing.Err() != nil {
		fl.err = errClosed
		return
	}
	now := time.Now()
	e, known := s.files.get(name)
	if errors.Is(o.err, original.ErrNone) {
		s.forget(name)
		s.fail(name, failure{o.err, now.Add(noneAgain)})
		fl.err = o.err
		return
	}
	if o.err != nil {
		s.complain(name, o.err)
		if o.kept != nil && !known {
			e = s.learn(name, o.kept, o.kept.Fetched)
		}
		if o.kept == nil || now.After(e.checked.Add(staleFor)) {
			s.forget(name)
			s.fail(name, failure{o.err, now.Add(again)})
			fl.err = o.err
			return
		}
		e.fresh, e.expires = again, now.Add(again)
		fl.found = e.found()
		return
	}
	if !known {
		e = s.learn(name, o.file, o.checked)
	} else if !e.file.same(o.file) {
		e.gen.Invalidate()
		e.marked = false
	}
	e.file, e.fresh, e.checked, e.expires = o.file, o.fresh, o.checked, o.checked.Add(o.fresh)
	fl.found = e.found()
}

// learn makes the entry of a file. s.mu is held.
func (s *Source) learn(name string, f *file, checked time.Time) *entry {
	e := &entry{file: f, checked: checked}
	if gone, full := s.files.put(name, e); full {
		gone.gen.Invalidate()
	}
	return e
}

// fail remembers a failure. s.mu is held.
func (s *Source) fail(name string, f failure) {
	s.failures.remove(name)
	s.failures.put(name, f)
}

// forget drops an entry. s.mu is held.
func (s *Source) forget(name string) {
	if e, ok := s.files.get(name); ok {
		e.gen.Invalidate()
		s.files.remove(name)
	}
}

// lost is called when the store does not have a file any more.
func (s *Source) lost(name string, f *file) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.files.get(name); ok && e.file.same(f) {
		s.forget(name)
	}
}

// sweep invalidates what the lane has of files that are no longer fresh: the next
// request then asks the host. It does so as long as there are clients, and before the
// first of them is served. New starts it, Close waits for it.
func (s *Source) sweep() {
	s.clients.Keep(s.closing.Done(), meter.Upkeep{
		Every: func() time.Duration { return sweepEvery },
		Turn:  func(now time.Time) (more bool) { s.invalidate(now); return false },
		First: func() { s.invalidate(time.Now()) },
	})
}

func (s *Source) invalidate(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.files.all() {
		if e.marked && !now.Before(e.expires) {
			e.gen.Invalidate()
			e.marked = false
		}
	}
}

// complain logs a failure, once in a while.
func (s *Source) complain(name string, err error) {
	s.loopWarning.Do(func() {
		s.log.Warn("a remote image cannot be fetched", "url", s.url(name).String(), "error", err)
	})
}
