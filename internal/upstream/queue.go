package upstream

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// place is the right to have one request under way at a server. Its holder gives it
// back: by failed if no answer came; otherwise by answered, or by ended or stream
// after that.
type place struct {
	server *server
	probe  bool // the one request that a half-open breaker lets pass
	since  time.Duration
}

// wish is what a request asks of the server that is chosen for it.
type wish struct {
	key    uint64 // what balance: hash goes by
	tried  set    // rather another than these
	stream bool   // it will become a stream, if the server agrees
}

// waiter is a request in the queue.
type waiter struct {
	prev, next *waiter
	wish
	ready  chan struct{} // closed when place or err is there
	place  place
	err    error
	queued bool
}

// queue is a list of waiters, first come, first served. Options.Queue bounds it.
type queue struct {
	first, last *waiter
	len         int
}

func (q *queue) push(w *waiter) {
	w.queued = true
	if w.prev = q.last; w.prev != nil {
		w.prev.next = w
	} else {
		q.first = w
	}
	q.last = w
	q.len++
}

func (q *queue) remove(w *waiter) {
	w.queued = false
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		q.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		q.last = w.prev
	}
	w.prev, w.next = nil, nil
	q.len--
}

// errFull means that the request has to wait.
var errFull = errors.New("all places are taken")

// acquire gets a request a place, at a server it has not tried if possible.
func (p *Pool) acquire(ctx context.Context, what wish) (place, error) {
	if ctx.Err() != nil {
		return place{}, interrupted(ctx)
	}
	now := p.now()
	p.mu.Lock()
	if what.tried == 0 {
		p.budget.add(now, 0)
	}
	if p.queue.len > 0 {
		p.dispatch(now) // a server may have come back since
	}
	if p.queue.len == 0 {
		s, err := p.choose(now, what)
		if err == nil {
			c := p.enter(s, now)
			p.mu.Unlock()
			return c, nil
		}
		if !errors.Is(err, errFull) {
			p.mu.Unlock()
			return place{}, err
		}
	}
	if p.queue.len >= p.options.Queue {
		p.mu.Unlock()
		return place{}, &upstreamError{kind: ErrBusy, cause: errQueueFull}
	}
	w := &waiter{wish: what, ready: make(chan struct{})}
	p.queue.push(w)
	p.mu.Unlock()
	return p.wait(ctx, w)
}

// wait returns when w got a place, or has left the queue.
func (p *Pool) wait(ctx context.Context, w *waiter) (place, error) {
	timer := time.NewTimer(p.options.QueueTimeout)
	defer timer.Stop()
	var err error
	select {
	case <-w.ready:
		return w.place, w.err
	case <-timer.C:
		err = &upstreamError{kind: ErrBusy, cause: errQueueWait}
	case <-ctx.Done():
		err = interrupted(ctx)
	}
	p.mu.Lock()
	if w.queued {
		p.queue.remove(w)
		p.mu.Unlock()
		return place{}, err
	}
	p.mu.Unlock()
	// The place came at the same moment.
	if w.err == nil && ctx.Err() != nil {
		p.failed(w.place, undecided, nil)
		return place{}, err
	}
	return w.place, w.err
}

// choose finds a server for a request, with p.mu held: [ErrUnhealthy] where
// none may be asked, errFull where those that may have no room. One whose
// streams are all taken may not be asked for one more, and there is no waiting
// for that: streams last.
func (p *Pool) choose(now time.Duration, what wish) (*server, error) {
	var up, calm, room set
	streaming := false
	for _, s := range p.servers {
		if s.running < p.options.Concurrency {
			room = room.with(s)
		}
		switch {
		case s.down || !s.breaker.admits(now):
		case what.stream && s.streams >= p.options.Streams:
			streaming = true
		default:
			up = up.with(s)
			if now >= s.ejectedUntil {
				calm = calm.with(s)
			}
		}
	}
	switch {
	case up == 0 && streaming:
		return nil, &upstreamError{kind: ErrBusy, cause: errAllStreams}
	case up == 0:
		return nil, &upstreamError{kind: ErrUnhealthy}
	}
	from := calm
	if from == 0 {
		from = up // all are ejected: panic threshold
	}
	if fresh := from &^ what.tried; fresh != 0 {
		from = fresh
	}
	if from &= room; from == 0 {
		return nil, errFull
	}
	candidates := p.scratch[:0]
	for _, s := range p.servers {
		if from&(1<<s.index) != 0 {
			candidates = append(candidates, s)
		}
	}
	if len(candidates) == 1 {
		return candidates[0], nil
	}
	return p.balance(p, now, candidates, what), nil
}

// enter takes a place at s, with p.mu held.
func (p *Pool) enter(s *server, now time.Duration) place {
	s.running++
	s.requests++
	return place{server: s, probe: s.breaker.enter(), since: now}
}

// dispatch gives free places to those who wait longest, with p.mu held. It
// must be called whenever a place or a server has become free. As a waiter
// waits only while some server is full, a place always comes free later.
func (p *Pool) dispatch(now time.Duration) {
	for w := p.queue.first; w != nil; w = p.queue.first {
		s, err := p.choose(now, w.wish)
		if errors.Is(err, errFull) && w.tried != 0 {
			s, err = p.choose(now, wish{key: w.key, stream: w.stream}) // rather there again than hold the others up
		}
		if errors.Is(err, errFull) {
			return
		}
		p.queue.remove(w)
		if w.err = err; err == nil {
			w.place = p.enter(s, now)
		}
		close(w.ready)
	}
}

// leave gives a place back, with p.mu held.
func (p *Pool) leave(c place) {
	c.server.running--
	if p.queue.len > 0 {
		p.dispatch(p.now())
	}
}

// observe records a result, with p.mu held.
func (p *Pool) observe(c place, now time.Duration, o outcome) change {
	switch o {
	case succeeded:
		c.server.latency.observe(now, now-c.since)
	case failed:
		c.server.latency.observe(now, max(now-c.since, failureLatency))
	}
	return c.server.observe(now, o, c.probe, len(p.servers) == 1)
}

// answered records that a header came. done says that the answer is complete, and
// the place free.
func (p *Pool) answered(c place, done bool) {
	now := p.now()
	p.mu.Lock()
	ch := p.observe(c, now, succeeded)
	if done {
		p.leave(c)
	}
	p.mu.Unlock()
	p.log(c.server, ch, nil)
}

// failed records that a try has ended without an answer, and frees its place.
func (p *Pool) failed(c place, o outcome, err error) {
	now := p.now()
	p.mu.Lock()
	ch := p.observe(c, now, o)
	p.leave(c)
	p.mu.Unlock()
	p.log(c.server, ch, err)
}

// ended frees the place of a request whose answer has ended. An answer that
// broke off is a failure; a complete one is counted already.
func (p *Pool) ended(c place, o outcome, err error) {
	p.mu.Lock()
	ch := unchanged
	if o == failed {
		ch = c.server.observe(p.now(), failed, false, len(p.servers) == 1)
	}
	p.leave(c)
	p.mu.Unlock()
	p.log(c.server, ch, err)
}

// stream turns a place into a stream, if there is room for one more; otherwise
// the place is kept.
func (p *Pool) stream(c place) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.server.streams >= p.options.Streams {
		return false
	}
	c.server.streams++
	p.leave(c)
	return true
}

// streamEnded records the end of a stream.
func (p *Pool) streamEnded(c place) {
	p.mu.Lock()
	c.server.streams--
	p.mu.Unlock()
}

// log logs a change of a server's state; without p.mu, since it may write to a disk.
func (p *Pool) log(s *server, ch change, err error) {
	switch ch {
	case ejected:
		p.errorLog.Warn("an upstream fails and gets no requests for a while", slog.String("upstream", s.name), slog.Any("error", err))
	case opened:
		p.errorLog.Warn("an upstream fails too often: its circuit breaker opens", slog.String("upstream", s.name), slog.Any("error", err))
	case closed:
		p.errorLog.Info("an upstream answers again: its circuit breaker closes", slog.String("upstream", s.name))
	}
}
