package upstream

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"millrace/internal/observe/trace"
)

// place is the right to have one request under way at a server. Its holder releases it
// exactly once: with recordFailure if no answer came, otherwise with recordAnswer,
// recordEnd or stream.
type place struct {
	server *server
	probe  bool // the one request that a half-open breaker lets pass
	again  bool // the request has failed elsewhere, after it was sent
	since  time.Duration
}

// demand is what a request demands of the server that is chosen for it.
type demand struct {
	key    uint64     // what balance: hash goes by
	tried  set        // rather another than these
	stream bool       // it will become a stream, if the server agrees
	stuck  set        // the one that its cookie names, if there is room
	client netip.Addr // for its turn in the queue; the zero one for a UNIX socket
}

// waiter is a request in the queue.
type waiter struct {
	prev, next *waiter
	demand
	customer netip.Prefix
	turn     uint64
	ready    chan struct{} // closed when place or err is there
	waker    Waker         // who hears of that, too; nil: nobody
	since    time.Duration // when it came
	place    place
	err      error
	queued   bool

	// Of one that waits for a connection, by the pool's mu:
	made     *wire // the connection
	lost     error // why none could be made
	gone     bool  // it does not wait for one any more
	dialing  bool  // a goroutine makes one
	orphaned bool  // that goroutine has the place, and gives it back
}

// Waker is notified when a request of an event loop need not wait any longer. Ready
// may be called on any goroutine, with locks held; it must return at once and must not
// call the pool.
type Waker interface{ Ready() }

// notify says that place or err is set.
func (w *waiter) notify() {
	close(w.ready)
	if w.waker != nil {
		w.waker.Ready()
	}
}

// queue is a list of waiters in the order of their turns. Each client has one
// request in each turn, so that one with a thousand does not hold up the others
// (Demers, Keshav and Shenker, Analysis and Simulation of a Fair Queueing
// Algorithm, SIGCOMM 1989); those of a client, and of a turn, keep their order.
// Options.Queue bounds it.
type queue struct {
	first, last *waiter
	len         int
	turn        uint64 // whose waiters get places now
	clients     map[netip.Prefix]*turns
}

// turns are the waiters of one client.
type turns struct {
	last uint64 // of the one that came last
	len  int
}

// customerOf is whose turn a request takes: an IPv4 address, or an IPv6 network of 64
// bits, which is what one customer gets. All clients without an address share one turn.
func customerOf(addr netip.Addr) netip.Prefix {
	prefix, _ := addr.Prefix(min(addr.BitLen(), 64)) // never an error
	return prefix
}

// nextTurn is the turn of a request that comes now.
func (q *queue) nextTurn(client netip.Prefix) uint64 {
	if c := q.clients[client]; c != nil {
		return max(c.last, q.turn) + 1
	}
	return q.turn + 1
}

func (q *queue) push(w *waiter) {
	w.queued, w.turn = true, q.nextTurn(w.customer)
	if q.clients == nil {
		q.clients = map[netip.Prefix]*turns{}
	}
	c := q.clients[w.customer]
	if c == nil {
		c = new(turns)
		q.clients[w.customer] = c
	}
	c.last = w.turn
	c.len++
	w.prev = q.last
	for w.prev != nil && w.prev.turn > w.turn {
		w.prev = w.prev.prev
	}
	if w.prev != nil {
		w.next, w.prev.next = w.prev.next, w
	} else {
		w.next, q.first = q.first, w
	}
	if w.next != nil {
		w.next.prev = w
	} else {
		q.last = w
	}
	q.len++
}

// displace makes room in a full queue by sending away the waiter whose turn is last,
// if that is later than the turn of this client's new request.
func (q *queue) displace(client netip.Prefix) bool {
	w := q.last
	if w == nil || w.turn <= q.nextTurn(client) {
		return false
	}
	q.remove(w)
	if c := q.clients[w.customer]; c != nil {
		c.last-- // it was that client's last
	}
	w.err = &upstreamError{kind: ErrBusy, cause: errQueueFull}
	w.notify()
	return true
}

func (q *queue) remove(w *waiter) {
	w.queued = false
	c := q.clients[w.customer]
	if c.len--; c.len == 0 {
		delete(q.clients, w.customer)
	}
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
	if q.first != nil { // the turns of those who gave up are over
		q.turn = max(q.turn, q.first.turn-1)
	}
}

// errFull means that the request has to wait.
var errFull = errors.New("all places are taken")

// acquire gets a request a place, at a server it has not tried if possible.
func (p *Pool) acquire(ctx context.Context, what demand) (place, error) {
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
	customer := customerOf(what.client)
	if p.queue.len >= p.options.Queue && !p.queue.displace(customer) {
		p.mu.Unlock()
		return place{}, &upstreamError{kind: ErrBusy, cause: errQueueFull}
	}
	w := &waiter{demand: what, customer: customer, since: now, ready: make(chan struct{})}
	p.queue.push(w)
	p.mu.Unlock()
	return p.wait(ctx, w)
}

// wait returns when w got a place, or has left the queue.
func (p *Pool) wait(ctx context.Context, w *waiter) (c place, err error) {
	step := trace.Begin(ctx, trace.Queue)
	defer func() { step.End("", err) }()
	select {
	case <-w.ready:
		return w.place, w.err
	case <-time.After(p.options.QueueTimeout - (p.now() - w.since)):
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
	w.orphaned = w.dialing && ctx.Err() != nil
	orphaned := w.orphaned
	p.mu.Unlock()
	if orphaned {
		return place{}, err
	}
	// The place came at the same moment.
	if w.err == nil && ctx.Err() != nil {
		p.recordFailure(w.place, undecided, nil)
		return place{}, err
	}
	return w.place, w.err
}

// choose finds a server for a request, with p.mu held. The error is [ErrUnhealthy]
// where no server may be asked; [ErrBusy] for a stream where all streams are taken,
// since those last and waiting would be in vain; and errFull where the servers that
// may be asked have no room now.
func (p *Pool) choose(now time.Duration, what demand) (*server, error) {
	var up, calm, room, mild set
	streaming := false
	for _, s := range p.servers {
		if s.running < p.options.Concurrency {
			room = room.with(s)
		}
		switch {
		case s.down || s.drained || !s.breaker.mild && !s.breaker.admits(now):
		case what.stream && s.streams >= p.options.Streams:
			streaming = true
		case !s.breaker.admits(now):
			mild = mild.with(s)
		default:
			up = up.with(s)
			if now >= s.ejectedUntil {
				calm = calm.with(s)
			}
		}
	}
	if up == 0 {
		up = mild // rather than nobody
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
	if one := from & what.stuck; one != 0 {
		from = one
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
	if p.weighted {
		return weighted[p.options.Balance](p, now, candidates, what), nil
	}
	return p.balance(p, now, candidates, what), nil
}

// enter takes a place at s, with p.mu held.
func (p *Pool) enter(s *server, now time.Duration) place {
	s.running++
	s.requests++
	return place{server: s, probe: s.breaker.enter(now), since: now}
}

// dispatch gives free places to those who wait longest, with p.mu held. It
// must be called whenever a place or a server has become free. As a waiter
// waits only while some server is full, a place always comes free later.
func (p *Pool) dispatch(now time.Duration) {
	for w := p.queue.first; w != nil; w = p.queue.first {
		s, err := p.choose(now, w.demand)
		if errors.Is(err, errFull) && w.tried != 0 {
			s, err = p.choose(now, demand{key: w.key, stream: w.stream}) // the same server again, rather than holding the others up
		}
		if errors.Is(err, errFull) {
			return
		}
		p.queue.remove(w)
		p.queue.turn = max(p.queue.turn, w.turn)
		if w.err = err; err == nil {
			w.place = p.enter(s, now)
		}
		w.notify()
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
	case failed, unreached:
		c.server.latency.observe(now, max(now-c.since, failureLatency))
	}
	return c.server.observe(now, o, c.probe, len(p.servers) == 1)
}

// recordAnswer records that a header came. done says that the answer is complete, and
// the place free.
func (p *Pool) recordAnswer(c place, now time.Duration, done bool) {
	p.mu.Lock()
	ch := p.observe(c, now, succeeded)
	if done {
		p.leave(c)
	}
	p.mu.Unlock()
	p.log(c.server, ch, nil)
}

// recordTry is recordFailure with the reason. A request that fails wherever it is
// sent, for example for a page that crashes the application, counts against the first
// server only.
func (p *Pool) recordTry(c place, f *failure) {
	o := f.outcome
	switch {
	case o != failed:
	case !f.sent:
		o = unreached
	case c.again:
		o = undecided
	}
	p.recordFailure(c, o, f.err)
}

// recordFailure records that a try has ended without an answer, and frees its place.
func (p *Pool) recordFailure(c place, o outcome, err error) {
	now := p.now()
	p.mu.Lock()
	ch := p.observe(c, now, o)
	p.leave(c)
	p.mu.Unlock()
	p.log(c.server, ch, err)
}

// recordEnd frees the place of a request whose answer has ended. An answer that
// broke off is a failure; a complete one is counted already.
func (p *Pool) recordEnd(c place, o outcome, err error) {
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
