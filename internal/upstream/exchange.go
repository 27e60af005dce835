package upstream

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/upstream/http1"
	"millrace/internal/wire/epoll"
)

// Exchange is one request of HTTP/1.1 to one server, and its answer. Two drive it, by the
// same steps:
//
//	      Begin, on a loop                     Do, on a goroutine
//	             │                                     │ a place
//	┌────────────┴─ all is taken ─▶ waiting ── Enter ──│─────┐
//	│ a place        ▲                                 ▼     │
//	└──────────────▶ └─ no connection ──────────────  placed │
//	                   or connecting, by the loop      │     │
//	                 ┌─────────────────────────────────┴─────┘
//	                 ▼       Send              Take
//	              connected ──────▶ sent ──────────────▶ answered ──▶ headed ──▶ ended
//
// An event loop never waits: epoll tells it that something has come, and a [Waker] that a
// place or a connection is there. It connects itself (dial_linux.go) where the address is
// known; a goroutine looks names up. It reads plain answers that are not long as a whole, and
// never comes to headed. All others, and whatever goes wrong, are for a goroutine, which
// goes on with [Pool.Continue] from the step that the loop has come to: what was sent is
// not sent again, and what has come is not lost.
//
// A goroutine waits for everything itself. Only a body that is not small has another one,
// which sends it (send.go).
//
// The zero Exchange is for Begin. It belongs to its loop, which may use it again when it
// has ended, until Continue; from then on to the answer's body, and is not used again.
type Exchange struct {
	pool   *Pool
	step   step
	place  place   // the zero one: none, or given back
	server *server // its, or the one that a probe is for
	what   demand

	tunnels bool // the connection is for a [Tunnel], and a new one

	line *line // the connection as loops have it; nil: none
	wire *wire // the same for a goroutine

	// Of a loop:
	loop    int
	secure  bool          // the client is there over TLS
	counted bool          // for the retries' budget
	waited  bool          // whoever goes on with it keeps its place
	waker   Waker         // nil: the request cannot wait
	waiter  *waiter       // while it waits
	lost    error         // why there is no connection
	asked   time.Duration // when it has sent the request, on the pool's clock
	taken   taken

	// Of a goroutine:
	caller  context.Context
	request *Request
	interim Interim // nil: nobody wants to know
	upload  *upload // nil: no body
	sender  *sender // nil: the body was sent with the head, or there is none
	first   []byte  // of a new connection, see proxyHeader

	buffer *[]byte // what in reads into; nil: given back
	in     http1.Reader
	head   http1.Head
	gives  Answer
	body   http1.Body
	out    outgoing

	listens bool        // stop detaches the context from the connection, if there is one
	stop    func() bool // nil: none
	early   bool        // bytes came before they were asked for
	stuck   atomic.Bool // the server does not take the body
	stream  bool        // it holds a stream, not a place
	late    bool        // so it does, since its reader waits for somebody; see Yield
	state   atomic.Int32
	reading atomic.Pointer[wire] // the connection, for a Close beside a Read
	err     error                // of the body's last Read

	// While a sender is at work, guarded by its mutex.
	limit time.Duration // when the head, or this read of the body, is late; 0: never
}

// step is how far an exchange has come.
type step uint8

const (
	unplaced   step = iota // there is no place for it
	waiting                // for a place; a loop's also for a connection, in its place
	placed                 // it has a place at a server
	connecting             // a loop connects to it
	connected              // and a connection, on which nothing was sent
	sent                   // on which some of the request may have reached the server
	answered               // and a byte of an answer has come
	headed                 // the head of the answer was read
	ended                  // it has nothing more to give back
)

// From here on, and in loop_linux.go, is what an event loop does with an exchange.

// mostTaken is the longest answer, with its head, that an event loop reads itself. A
// goroutine reads longer ones.
const mostTaken = 64 << 10

var takenPool = sync.Pool{New: func() any { b := make([]byte, mostTaken); return &b }}

// taken is what a loop has read of an answer.
type taken struct {
	all    []byte  // in the buffer of Take
	head   int     // how much of it is the head
	body   int64   // how much follows, for an answer that is plain
	more   bool    // and there is something behind the answer
	full   bool    // there may be, as there was no room to read it
	got    []byte  // of an answer of which not all has come; in buffer
	buffer *[]byte // of takenPool; nil: none
}

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
func (p *Pool) Begin(x *Exchange, loop int, q *Request, told Waker) bool {
	return p.begin(x, loop, q, told, false)
}

// BeginUpgrade is Begin for a request that [Pool.Upgrade] would send, on a connection of its
// own. [Exchange.TakeUpgrade] takes the answer, and a goroutine goes on with
// [Pool.ContinueUpgrade].
func (p *Pool) BeginUpgrade(x *Exchange, loop int, q *Request, told Waker) bool {
	return q.checkUpgrade() == nil && p.begin(x, loop, q, told, true)
}

func (p *Pool) begin(x *Exchange, loop int, q *Request, told Waker, tunnels bool) bool {
	if p.options.ProxyProtocol != "" {
		return false
	}
	now, what := p.at(q.Received), p.demandOf(q, tunnels)
	*x = Exchange{pool: p, loop: loop, what: what, secure: q.Secure, waker: told, tunnels: tunnels}
	p.mu.Lock()
	if !p.loopable() {
		p.mu.Unlock()
		return false
	}
	err := errFull
	if p.queue.len == 0 {
		var s *server
		if s, err = p.choose(now, what); err == nil {
			x.place, x.server, x.step = p.enter(s, now), s, placed
		}
	}
	ours := err == nil && x.server.loopable()
	waits := errors.Is(err, errFull) && told != nil && x.wait(now, told)
	p.mu.Unlock()
	switch {
	case x.step != placed:
		return waits
	case !ours:
		return x.waitFor(func(w *waiter) { w.notify() })
	}
	x.takeLine(now)
	return x.step == connected || x.makeLine()
}

// takeLine takes an idle connection, if there is one, and the request may have it.
func (x *Exchange) takeLine(now time.Duration) {
	if x.tunnels {
		return
	}
	if x.line = x.server.client.takeLine(x.loop, now); x.line != nil {
		x.step = connected
	}
}

// makeLine has a connection made, for which the request waits if it may.
func (x *Exchange) makeLine() bool {
	return x.waker != nil && x.dial() || x.connectLater()
}

// connectLater has a goroutine connect for a request that has a place: meanwhile it
// waits. The goroutine ends within Options.ConnectTimeout; Close waits for it. It keeps
// the place of a request that is given up meanwhile: clients who ask and go at once
// would otherwise have a server connected to without any bound.
func (x *Exchange) connectLater() bool {
	p := x.pool
	return x.waitFor(func(w *waiter) {
		w.dialing = true
		p.working.Go(func() { p.connect(w) })
	})
}

// waitFor has a request that has a place wait for what f begins. Where it cannot
// wait it gives the place back.
func (x *Exchange) waitFor(f func(*waiter)) bool {
	if x.waker == nil {
		x.giveBack()
		return false
	}
	w := &waiter{demand: x.what, waker: x.waker, since: x.place.since, ready: make(chan struct{}), place: x.place}
	x.place, x.waiter, x.step = place{}, w, waiting
	x.count(x.pool.now())
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

// collect ends the wait for a connection: it is the one that was made for the request,
// or there is a reason why none could be made, or neither.
func (p *Pool) collect(w *waiter) (made *wire, lost error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	made, w.made, w.gone = w.made, nil, true
	return made, w.lost
}

// offer gives a connection to others that was made for a request which does not need it;
// nil: there is none.
func (p *Pool) offer(made *wire, s *server) {
	if made != nil {
		s.client.putPreconnected(made, p.now())
	}
}

// await waits, on a goroutine, for what the exchange has waited for on its loop.
func (x *Exchange) await(ctx context.Context) error {
	p, w := x.pool, x.waiter
	c, err := p.wait(ctx, w)
	made, lost := p.collect(w)
	if x.waiter = nil; err != nil {
		x.step = ended
		p.offer(made, w.place.server)
		return err
	}
	x.place, x.server, x.lost, x.step = c, c.server, lost, placed
	if made != nil {
		made.uses++
		x.wire, x.step = made, connected
	}
	return nil
}

// loopable reports whether loops may have lines to the server, with p.mu held.
func (s *server) loopable() bool {
	return s.client != nil && s.client.tls == nil && !s.distrusted() && s.breaker.isClosed()
}

// Loops reports whether loops may make requests now.
func (p *Pool) Loops() bool {
	if p.options.ProxyProtocol != "" {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.loopable()
}

// loopable reports whether they may to any server.
func (p *Pool) loopable() bool { return slices.ContainsFunc(p.servers, (*server).loopable) }

// wait puts the request into the queue, if there is room, with p.mu held.
func (x *Exchange) wait(now time.Duration, told Waker) bool {
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
	x.step = waiting
	p.dispatch(now)
	return true
}

// Waits reports whether the request waits for a place, or for a connection that a goroutine
// makes: the waker is told.
func (x *Exchange) Waits() bool { return x.step == waiting }

// Connects reports whether the loop connects to the server: when the line is writable, or has
// failed, Enter and Send go on.
func (x *Exchange) Connects() bool { return x.step == connecting }

// Enter takes the place that has come, and a connection. If it reports false, the
// request is one for a goroutine, which goes on with [Pool.Continue].
func (x *Exchange) Enter() bool {
	if x.step == connecting {
		x.waited = true
		return true
	}
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
	var l *line
	if made != nil || !x.tunnels {
		l = w.place.server.client.lineFor(made, x.loop, p.now())
	}
	x.place, x.server, x.line, x.waiter, x.waited, x.step = w.place, w.place.server, l, nil, true, placed
	if l != nil {
		x.step = connected
		return true
	}
	return x.dial()
}

// count counts the request for the retries' budget: it was sent.
func (x *Exchange) count(now time.Duration) {
	if x.counted {
		return
	}
	x.counted = true
	p := x.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.budget.add(now, 0)
}

// Line is the connection's descriptor, and a number that the one before it, with the same
// descriptor, had not. unknown says that its loop must begin to watch it, edge-triggered; w
// ends that when somebody else takes the connection while it is idle.
func (x *Exchange) Line(w epoll.Watch) (fd int, serial uint32, unknown bool) {
	l := x.line
	if unknown = l.watch == nil; unknown {
		l.watch = w
	}
	return l.fd, l.serial, unknown
}

// Cancel ends an exchange whose request was not sent.
func (x *Exchange) Cancel() {
	if x.step == connected {
		l := x.line
		x.line, x.step = nil, placed
		l.uses = max(l.uses-1, 1) // as putPreconnected does
		x.server.client.putLine(l, x.loop, x.pool.now())
	}
	x.Discard()
}

// giveBack gives the place of a request back that was not sent.
func (x *Exchange) giveBack() {
	x.pool.unused(x.place)
	x.place, x.step = place{}, ended
}

// Discard ends an exchange without its answer: the server is told by the end of the
// connection.
func (x *Exchange) Discard() {
	switch {
	case x.step == waiting:
		x.pool.quit(x.waiter)
		x.waiter = nil
	case x.step == connecting:
		x.line.close()
		x.line = nil
		x.giveBack()
	case x.step == placed:
		x.giveBack()
	case x.step != unplaced && x.step != ended:
		x.drop()
		x.Release()
		x.pool.recordFailure(x.place, undecided, nil)
		x.place = place{}
	}
	x.step = ended
}

// quit ends the waiting of a request that nobody wants any more.
func (p *Pool) quit(w *waiter) {
	defer func() {
		made, _ := p.collect(w)
		p.offer(made, w.place.server)
	}()
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

// Release gives back what the answer was read into. Nobody may look at it any more.
func (x *Exchange) Release() {
	if t := &x.taken; t.buffer != nil {
		takenPool.Put(t.buffer)
		t.buffer, t.got = nil, nil
	}
}

// Own puts the fields of a whole answer, which Take has filled, into memory of their
// own: they stay when Release was called.
func (x *Exchange) Own(method string, a *Answer) {
	x.scan(string(x.taken.all[:x.taken.head]), method, a)
}

// Hold ends the loop's part where a whole answer is one for the goroutine.
func (x *Exchange) Hold() { x.keep(x.taken.all) }

// End frees the connection and the place behind a whole answer, which stays where
// it is until Release.
func (x *Exchange) End() {
	s, l := x.server, x.line
	now := x.pool.now()
	x.line = nil
	switch {
	case x.taken.more: // than it was asked for
		l.reportUnsolicited(s)
		l.close()
	case s.distrusted(), x.taken.full:
		l.close()
	default:
		s.client.putLine(l, x.loop, now)
	}
	x.count(now)
	x.pool.recordAnswer(x.place, now, true)
	x.place, x.step = place{}, ended
}
