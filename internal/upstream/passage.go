package upstream

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"millrace/internal/upstream/http1"
)

// mostTaken is the longest answer, with its header, that an event loop reads itself. A
// goroutine reads longer ones.
const mostTaken = 64 << 10

// line is an idle connection, without TLS, that an event loop watches; Go's poller
// does not know it. What the comment of [wire] says of stray answers holds for lines,
// too.
type line struct {
	fd       int
	serial   uint32       // random: tells it from who had its descriptor before
	known    func(fd int) // ends its loop's watch over it; nil: its loop does not know it
	uses     int
	since    time.Duration
	suspects []func()

	newcomer *newcomer // never nil
}

// Passage is one request that a loop passes on, and its answer: it has been sent
// on an idle connection, and nobody waits for it. The loop is told by epoll that
// something has come. A plain answer that is not long it takes itself; all others,
// and whatever goes wrong, are for a goroutine, which goes on with [Pool.Resume].
//
// A Passage belongs to its loop until then, and may be used again after that.
type Passage struct {
	pool   *Pool
	place  place
	loop   int
	line   *line   // nil: given back
	all    []byte  // what Take has read, in its buffer
	head   int     // how much of it is the answer's head
	body   int64   // how much follows, for an answer that is plain
	more   bool    // and there is something behind the answer
	got    []byte  // of an answer of which not all has come; in buffer
	buffer *[]byte // of takenPool; nil: none

	what    demand
	secure  bool    // the client is there over TLS
	waker   Waker   // nil: the request cannot wait, or has
	waiter  *waiter // for a place, before there is one; nil: there is
	waited  bool    // whoever goes on with it keeps its place
	lost    error   // why there is no connection
	counted bool    // for the retries' budget
}

var takenPool = sync.Pool{New: func() any { b := make([]byte, mostTaken); return &b }}

// Taken says what became of bytes that have come.
type Taken int

// The cases.
const (
	Wait  Taken = iota // for more of them
	Whole              // the answer has come, and End or Hold is next
	Other              // it is not for a loop
)

// Begin takes a place and an idle connection for a request, without waiting for
// either. If all places are taken, or no connection is idle, the request may wait for
// one, see Waits: waker is told when that is over; nil: it does not wait. Begin reports
// false where the request is not for a loop, and has chosen no server for it then: a
// server that was chosen keeps the request, or a turn would be lost, unless waker is nil.
//
// Of q counts what decides over the server. Where its Fields are not known yet, and nil,
// and the choice goes by one of them, the request is not for a loop.
func (p *Pool) Begin(x *Passage, loop int, q *Request, told Waker) bool {
	if p.options.ProxyProtocol != "" || p.picks.byFields && q.Fields == nil {
		return false
	}
	now, what := p.now(), p.demandOf(q, false)
	*x = Passage{pool: p, loop: loop, what: what, secure: q.Secure, waker: told}
	p.mu.Lock()
	if !p.loopable() {
		p.mu.Unlock()
		return false
	}
	err := errFull
	if p.queue.len == 0 {
		var s *server
		if s, err = p.choose(now, what); err == nil {
			x.place = p.enter(s, now)
		}
	}
	ours := err == nil && x.place.server.loopable()
	waits := errors.Is(err, errFull) && told != nil && x.wait(now, told)
	p.mu.Unlock()
	switch {
	case x.place.server == nil:
		return waits
	case !ours:
		return x.waitFor(func(w *waiter) { w.notify() })
	}
	x.line = x.place.server.client.takeLine(loop, now)
	return x.line != nil || x.connect()
}

// connect has a goroutine connect for a request that has a place: meanwhile it
// waits. The goroutine ends within Options.ConnectTimeout; Close waits for it. It keeps
// the place of a request that is given up meanwhile: clients who ask and go at once
// would otherwise have a server connected to without any bound.
func (x *Passage) connect() bool {
	p := x.pool
	return x.waitFor(func(w *waiter) {
		w.dialing = true
		p.working.Go(func() { p.connect(w) })
	})
}

// waitFor has a request that has a place wait for what f begins. Where it cannot
// wait it gives the place back.
func (x *Passage) waitFor(f func(*waiter)) bool {
	if x.waker == nil {
		x.giveBack()
		return false
	}
	w := &waiter{demand: x.what, waker: x.waker, since: x.place.since, ready: make(chan struct{}), place: x.place}
	x.place, x.waiter = place{}, w
	x.count()
	f(w)
	return true
}

// connect makes a connection for a request that waits for one. Where that fails, its
// handler says why, or asks another server.
func (p *Pool) connect(w *waiter) {
	c := w.place.server.client
	made, err := c.dial(p.ctx, nil, false)
	if err != nil {
		made = nil
	}
	p.mu.Lock()
	w.dialing = false
	orphaned := w.orphaned
	gone := w.gone || orphaned
	if !gone {
		w.made = made
		if p.ctx.Err() == nil {
			w.lost = err // else it is not the server's doing
		}
		w.notify()
	}
	p.mu.Unlock()
	if gone && made != nil {
		c.putPreconnected(made, p.now())
	}
	if orphaned { // after that: who gets the place finds the connection
		p.unused(w.place)
	}
}

// unused gives a place back on which no request was sent.
func (p *Pool) unused(c place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.server.requests--
	p.observe(c, p.now(), undecided)
	p.leave(c)
}

// unmade offers a connection that was made for a request, which no longer waits, to
// others, and returns why none could be made; nil if one was.
func (p *Pool) unmade(w *waiter) error {
	p.mu.Lock()
	made, lost := w.made, w.lost
	w.made, w.gone = nil, true
	p.mu.Unlock()
	if made != nil {
		w.place.server.client.putPreconnected(made, p.now())
	}
	return lost
}

// loopable reports whether loops may have lines to the server, with p.mu held.
func (s *server) loopable() bool {
	return s.client != nil && s.client.tls == nil && !s.distrusted() && s.breaker.isClosed()
}

// Loops reports whether loops may make requests now, of which the URL is known and not
// the fields.
func (p *Pool) Loops() bool {
	if p.options.ProxyProtocol != "" || p.picks.byFields {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.loopable()
}

// loopable reports whether they may to any server.
func (p *Pool) loopable() bool { return slices.ContainsFunc(p.servers, (*server).loopable) }

// wait puts the request into the queue, if there is room, with p.mu held.
func (x *Passage) wait(now time.Duration, told Waker) bool {
	p, customer := x.pool, customerOf(x.what.client)
	if p.queue.len > 0 {
		p.dispatch(now) // a server may have come back since
	}
	if p.queue.len >= p.options.Queue && !p.queue.displace(customer) {
		return false
	}
	x.counted = true
	p.budget.add(now, 0)
	x.waiter = &waiter{demand: x.what, customer: customer, waker: told, since: now, ready: make(chan struct{})}
	p.queue.push(x.waiter)
	p.dispatch(now)
	return true
}

// Waits reports whether the request waits for a place, or for a connection.
func (x *Passage) Waits() bool { return x.waiter != nil }

// Enter takes the place that has come, and a connection. If it reports false, the
// request is one for a goroutine, which goes on with [Pool.Resume].
func (x *Passage) Enter() bool {
	p, w := x.pool, x.waiter
	p.mu.Lock()
	ok := w.err == nil && w.lost == nil && w.place.server.loopable()
	made := w.made
	if ok {
		w.made = nil
	}
	p.mu.Unlock()
	if !ok {
		return false
	}
	l := w.place.server.client.lineFor(made, x.loop, p.now())
	if l == nil {
		return false
	}
	x.place, x.line, x.waiter, x.waited = w.place, l, nil, true
	return true
}

// count counts the request for the retries' budget: it was sent.
func (x *Passage) count() {
	if x.counted {
		return
	}
	x.counted = true
	p := x.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.budget.add(p.now(), 0)
}

// Lines is what a request to the server says besides its fields, for a host as
// in http.Request; "" for the server's own.
func (x *Passage) Lines(host, path, query string, ask bool, body int64) http1.Request {
	s := x.place.server
	return http1.Request{Prefix: s.prefix, Path: path, Query: query, Ask: ask, Host: s.hostFor(host), Body: body}
}

// Write appends r as it is sent to the server.
func (x *Passage) Write(b []byte, r *http.Request) ([]byte, error) {
	q := requestOf(r)
	if err := q.check(); err != nil {
		return b, err
	}
	head := x.place.server.head(q)
	return head.Append(b)
}

// OnSuspect is [OnSuspect] for the answer that is to come, once its request was sent.
func (x *Passage) OnSuspect(f func()) {
	if f != nil {
		x.line.registerSuspect(f)
	}
}

// Line is the connection's descriptor, and a number that the one before it, with
// the same descriptor, had not. unknown says that its loop must begin to watch it,
// edge-triggered. unwatch ends that, from anywhere, when somebody else takes the
// connection while it is idle.
func (x *Passage) Line(unwatch func(fd int)) (fd int, serial uint32, unknown bool) {
	l := x.line
	if unknown = l.known == nil; unknown {
		l.known = unwatch
	}
	return l.fd, l.serial, unknown
}

// Cancel ends a passage whose request was not sent.
func (x *Passage) Cancel() {
	if w := x.waiter; w != nil {
		x.waiter = nil
		x.pool.quit(w)
		return
	}
	l := x.line
	x.line = nil
	l.uses = max(l.uses-1, 1) // as putPreconnected does
	x.place.server.client.putLine(l, x.loop, x.pool.now())
	x.giveBack()
}

// giveBack gives the place of a request back that was not sent.
func (x *Passage) giveBack() {
	x.pool.unused(x.place)
	x.place = place{}
}

// Discard ends a passage without its answer: the server is told by the end of the
// connection.
func (x *Passage) Discard() {
	if w := x.waiter; w != nil {
		x.waiter = nil
		x.pool.quit(w)
	}
	switch {
	case x.line != nil:
		x.hangUp()
		x.pool.recordFailure(x.place, undecided, nil)
	case x.place.server != nil:
		x.giveBack()
	}
}

// quit ends the waiting of a request that nobody wants any more.
func (p *Pool) quit(w *waiter) {
	defer func() { _ = p.unmade(w) }()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case w.queued:
		p.queue.remove(w)
	case w.dialing:
		w.orphaned = true
	case w.err == nil:
		w.place.server.requests--
		p.observe(w.place, p.now(), undecided)
		p.leave(w.place)
	}
}

// hangUp closes the connection.
func (x *Passage) hangUp() {
	x.line.newcomer.end()
	x.line.close()
	x.line = nil
	x.Release()
}

// Release gives back what the answer was read into. Nobody may look at it any more.
func (x *Passage) Release() {
	if x.buffer != nil {
		takenPool.Put(x.buffer)
		x.buffer, x.got = nil, nil
	}
}

// Own puts the fields of a whole answer, which Take has filled, into memory of their
// own: they stay when Release was called.
func (x *Passage) Own(method string, a *Answer) { x.scan(string(x.all[:x.head]), method, a) }

// Hold ends the loop's part where a whole answer is one for the goroutine.
func (x *Passage) Hold() { x.keep(x.all) }

// End frees the connection and the place behind a whole answer, which stays where
// it is until Release.
func (x *Passage) End() {
	s, l := x.place.server, x.line
	x.line = nil
	switch {
	case x.more: // than it was asked for
		l.reportUnsolicited(s)
		l.close()
	case s.distrusted():
		l.close()
	default:
		s.client.putLine(l, x.loop, x.pool.now())
	}
	x.count()
	x.pool.recordAnswer(x.place, true)
	x.place = place{}
}

// registerSuspect is that of a wire.
func (l *line) registerSuspect(f func()) {
	if l.uses == 1 {
		return
	}
	if len(l.suspects) >= maxSuspects {
		l.suspects = append(l.suspects[:0], l.suspects[1:]...)
	}
	l.suspects = append(l.suspects, f)
}

// reportUnsolicited is that of a wire.
func (l *line) reportUnsolicited(s *server) {
	s.noteUnsolicited()
	for _, onSuspect := range l.suspects {
		onSuspect()
	}
	l.suspects = nil
}

// takeLine is the line of a loop that was used last, or an idle connection that
// becomes one; nil: there is neither.
func (c *client) takeLine(loop int, now time.Duration) *line {
	c.mu.Lock()
	l := c.lastLine(loop, now)
	c.mu.Unlock()
	if l != nil {
		l.uses++
		return l
	}
	w := c.takeIdle(now)
	if w == nil {
		if l = c.detachLine(now); l != nil {
			l.uses++
		}
		return l
	}
	if l = lineOf(w); l == nil {
		c.put(w, now)
		return nil
	}
	l.uses++
	return l
}

// lineFor is takeLine where a connection was just made, if that is not nil.
func (c *client) lineFor(made *wire, loop int, now time.Duration) *line {
	if made == nil {
		return c.takeLine(loop, now)
	}
	l := lineOf(made)
	if l == nil {
		c.putPreconnected(made, now)
		return nil
	}
	l.uses++
	return l
}

// lastLine takes out the line of a loop that was used last, with c.mu held; nil:
// none.
func (c *client) lastLine(loop int, now time.Duration) *line {
	if loop >= len(c.lines) {
		return nil
	}
	n := len(c.lines[loop]) - 1
	if n < 0 || now-c.lines[loop][n].since >= c.keep {
		return nil
	}
	l := c.lines[loop][n]
	c.lines[loop][n] = nil
	c.lines[loop] = c.lines[loop][:n]
	c.lined--
	return l
}

// detachLine is an idle line of any loop, which no longer watches it; nil: there is
// none.
func (c *client) detachLine(now time.Duration) (l *line) {
	c.mu.Lock()
	for loop := 0; loop < len(c.lines) && l == nil; loop++ {
		l = c.lastLine(loop, now)
	}
	c.mu.Unlock()
	if l != nil && l.known != nil {
		l.known(l.fd)
		l.known = nil
	}
	return l
}

// take is an idle connection for a goroutine; nil: there is none.
func (c *client) take(now time.Duration) *wire {
	if w := c.takeIdle(now); w != nil {
		return w
	}
	l := c.detachLine(now)
	if l == nil {
		return nil
	}
	w, err := l.wire()
	if err != nil {
		return nil
	}
	return w
}

// putLine keeps a line whose answer is complete.
func (c *client) putLine(l *line, loop int, now time.Duration) {
	c.mu.Lock()
	if !c.keeps(l.newcomer, now, l.since) {
		c.mu.Unlock()
		l.close()
		return
	}
	l.since = now
	for loop >= len(c.lines) {
		c.lines = append(c.lines, nil)
	}
	c.lines[loop] = append(c.lines[loop], l)
	c.lined++
	if c.timer == nil {
		c.timer = time.AfterFunc(c.keep, c.expire)
	}
	c.arm(now)
	c.mu.Unlock()
}

// oldLines takes out the lines that were idle for too long, with c.mu held, and
// says since when the oldest of the others is.
func (c *client) oldLines(now time.Duration) (old []*line, oldest time.Duration) {
	oldest = now
	for i, lines := range c.lines {
		n := 0
		for n < len(lines) && now-lines[n].since >= c.keep {
			n++
		}
		old = append(old, lines[:n]...)
		rest := copy(lines, lines[n:])
		clear(lines[rest:])
		if c.lines[i] = lines[:rest]; rest > 0 {
			oldest = min(oldest, lines[0].since)
		}
	}
	c.lined -= len(old)
	return old, oldest
}

// allLines takes all idle lines out, with c.mu held.
func (c *client) allLines() []*line {
	var all []*line
	for _, lines := range c.lines {
		all = append(all, lines...)
	}
	c.lines, c.lined = nil, 0
	return all
}

// giveUpLine is giveUp for a line.
func (c *client) giveUpLine(l *line) {
	if l.look() == unsolicited {
		l.reportUnsolicited(c.server)
	}
	l.close()
}

// wire is the line as a goroutine drives it.
func (x *Passage) wire() (*wire, error) {
	l := x.line
	x.line = nil
	return l.wire()
}

func (l *line) wire() (*wire, error) {
	nc, err := l.conn()
	if err != nil {
		l.newcomer.end()
		return nil, err
	}
	w := newWire(nc)
	w.uses, w.since, w.suspects, w.newcomer = l.uses, l.since, l.suspects, l.newcomer
	return w, nil
}

// newLine takes a detached descriptor over.
func newLine(fd int, w *wire) *line {
	return &line{fd: fd, serial: rand.Uint32(), uses: w.uses, since: w.since, suspects: w.suspects, newcomer: w.newcomer}
}
