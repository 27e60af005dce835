package lane

import (
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2/hpack"

	"millrace/internal/epoll"
	"millrace/internal/lean"
	"millrace/internal/send"
)

// A request that is only passed on needs no goroutine: the loop sends it on an
// idle connection to the upstream, serves other connections, and sends the answer
// when it has come (docs/decisions/0040). Meanwhile the client's connection is
// marked as away, as it is while a goroutine of the crew answers. What is not plain
// (a long answer, a slow one, a client that leaves) is given to the crew, which
// goes on from where the loop has got to.

const (
	// carryRoom is how much of an answer is read at once.
	carryRoom = 64 << 10
	// carryTime is how long a loop waits for an answer. After that a goroutine
	// waits, which has timeouts and notices when its client leaves.
	carryTime = 100 * time.Millisecond
	// begunTime is how long it waits for the rest of an answer of which something has
	// come: applications send in several pieces what they have ready. After that a
	// goroutine sends the client what there is.
	begunTime = 20 * time.Millisecond
	// carryHeld is how many bytes of answers the loops hold for clients that do not
	// take them at once. Beyond that the crew sends them, within the proxy's buffers.
	carryHeld = 16 << 20
	// maxRequest is the room for a request as it is sent: what a client may have
	// sent, and what a proxy adds.
	maxRequest = 2*maxHead + 4<<10
)

// carrying is what a loop needs to pass requests on. It is made with the first.
type carrying struct {
	into     [carryRoom]byte
	out      [maxRequest]byte
	head     []byte // of the answer; over TLS with its body
	block    []byte // the head for HTTP/2
	question Question
	request  lean.Head
	reply    Reply

	flights map[int32]*flight // by the descriptor of their lines
	asked   awaited           // flights of which nothing has come, those that wait as well
	begun   awaited           // and those of which something has
	idle    *flight           // used again
	wake    func()
	unwatch func(fd int) // ends the watch over a line

	asleep atomic.Bool // nobody looks at ready before the loop is woken
	some   atomic.Bool // there is something in ready
	mu     sync.Mutex
	ready  []*flight // that may have a place now; guarded by mu
	spare  []*flight // room for the next
}

// awaited are flights in the order in which their present wait began, which may take
// so long.
type awaited struct {
	long        time.Duration
	first, last *flight
	timer       *time.Timer // nil: no flight is waited for
	due         atomic.Bool // by timer: there are late ones
	wake        func()
}

// flight is a request on its way, or one that waits for a place at its upstream.
type flight struct {
	k          *carrying // stays the same
	waits      bool
	told       bool  // that it is ready; guarded by k.mu
	c          *Conn // nil: it is over
	passage    Passage
	head       string // of HTTP/1.1
	stream     uint32 // of HTTP/2; 0: it is HTTP/1.1
	fields     []hpack.HeaderField
	method     string
	body       int       // bytes of its body, which c holds
	began      time.Time // of its wait in
	in         *awaited
	line       int32
	prev, next *flight
}

// lineKey tells the descriptors of lines from those of clients, and from a waker's.
func lineKey(fd int) int32 { return int32(-2 - fd) }

// fdOf is the descriptor of a key.
func fdOf(key int32) int { return int(-2 - key) }

// carries reports whether the loop may pass requests of a connection on. What is
// proved by a client's certificate is for a handler.
func (lp *loop) carries(c *Conn) bool {
	l := lp.lane
	if l.carrier == nil || !c.scope.Sites.Load().Passes() || l.draining.Load() || l.held.Load() > carryHeld {
		return false
	}
	if c.wire == nil {
		return c.leanable()
	}
	return l.through != nil && !c.vouched
}

// carry passes the request on that b begins with, if it may be passed on.
func (lp *loop) carry(c *Conn, b []byte) bool {
	if !lp.carries(c) {
		return false
	}
	c.before = nil
	n, v := lean.End(b)
	if v != lean.Whole {
		return false
	}
	k := lp.carriage()
	text := string(b[:n])
	if !k.request.Parse(text) || k.request.Upgrades || k.request.Length > int64(len(b)-n) {
		return false
	}
	size := int(k.request.Length)
	f := k.take()
	f.c, f.head, f.body = c, text, size
	if !lp.ask(f, b[n:n+size]) {
		c.before = k.question.Before
		return false
	}
	if len(b) > n {
		c.held = append(c.held, b[n:]...)
	}
	c.deadline.Store(0)
	c.headBegun, c.last, c.fault = false, false, ""
	c.phase.Store(uint32(active))
	c.flight = f
	c.away.Store(true)
	if !f.waits && !lp.expect(f) {
		lp.toCrew(f)
	}
	return true
}

// carriage is the loop's carrying.
func (lp *loop) carriage() *carrying {
	if lp.carrying == nil {
		wake := lp.waker.Wake
		lp.carrying = &carrying{
			flights: map[int32]*flight{}, wake: wake, unwatch: func(fd int) { _ = lp.in.Remove(fd) },
			asked: awaited{long: carryTime, wake: wake}, begun: awaited{long: begunTime, wake: wake},
		}
	}
	return lp.carrying
}

// pose makes the question of a flight, whose head is in carrying.
func (lp *loop) pose(f *flight, body []byte) *Question {
	k, c := lp.carrying, f.c
	k.question = Question{Head: &k.request, Body: body, Scope: c.scope, Client: c.RemoteAddr(), Local: c.local, Loop: lp.number, HTTP2: f.stream != 0, Out: k.out[:0]}
	if c.wire != nil {
		k.question.Local = c.wire.LocalAddr()
	}
	return &k.question
}

// ask has the carrier take a new request, whose head is in carrying. If it reports
// false, the flight is dropped.
func (lp *loop) ask(f *flight, body []byte) bool {
	k := lp.carrying
	q := lp.pose(f, body)
	q.Waiting = f
	if f.passage = lp.lane.carrier.Carry(q); f.passage == nil {
		f.c = nil
		k.drop(f)
		return false
	}
	f.method, f.waits = k.request.Method, f.passage.Waits()
	k.asked.add(f)
	return true
}

// expect watches for the answer to a request that was sent. It reports false where
// the system has no room for that.
func (lp *loop) expect(f *flight) bool {
	k := lp.carrying
	fd, serial, unknown := f.passage.Line(k.unwatch)
	f.line = lineKey(fd)
	k.flights[f.line] = f
	if unknown && lp.in.Add(fd, epoll.In|epoll.PeerShut|epoll.Edge, f.line, serial) != nil {
		return false
	}
	lp.lane.carried.Add(1)
	return true
}

// Ready notes that the flight need not wait any longer. It may be called from
// anywhere, once for each flight that waits.
func (f *flight) Ready() {
	k := f.k
	k.mu.Lock()
	f.told = true
	k.ready = append(k.ready, f)
	k.some.Store(true)
	k.mu.Unlock()
	if k.asleep.CompareAndSwap(true, false) {
		k.wake()
	}
}

// start sends the requests that have waited.
func (lp *loop) start() {
	k := lp.carrying
	k.mu.Lock()
	ready := k.ready
	k.ready, k.spare = k.spare[:0], ready
	k.some.Store(false)
	k.mu.Unlock()
	for i, f := range ready {
		ready[i] = nil
		if f.c != nil {
			lp.startOne(f)
		}
	}
}

func (lp *loop) startOne(f *flight) {
	k, c := lp.carrying, f.c
	defer lp.guard(c)
	if lp.stray(f) {
		return
	}
	if !lp.renew(f) || !f.passage.Start(lp.pose(f, c.held[:f.body])) {
		lp.toCrew(f)
		return
	}
	f.waits = false
	f.unlink()
	k.asked.add(f)
	if !lp.expect(f) {
		lp.toCrew(f)
	}
}

// renew reads the head of a flight once more. It reports false where the request is
// for a handler now.
func (lp *loop) renew(f *flight) bool {
	if f.stream != 0 {
		return parseFields(&lp.carrying.request, f.fields)
	}
	return !lp.lane.draining.Load() && lp.carrying.request.Parse(f.head)
}

// rest reports whether the loop may sleep: from then on a flight that is ready
// wakes it.
func (k *carrying) rest() bool {
	k.asleep.Store(true)
	return !k.some.Load() || !k.asleep.CompareAndSwap(true, false)
}

// take is a flight for the next request.
func (k *carrying) take() *flight {
	f := k.idle
	if f == nil {
		return &flight{k: k}
	}
	k.idle, f.next = f.next, nil
	return f
}

// put has a flight used again.
func (k *carrying) put(f *flight) {
	clear(f.fields)
	*f = flight{k: k, next: k.idle, fields: f.fields[:0]}
	k.idle = f
}

// drop has a flight used again that has not begun, unless it was told meanwhile that it
// is ready: start would take it for the next request.
func (k *carrying) drop(f *flight) {
	k.mu.Lock()
	told := f.told
	k.mu.Unlock()
	if !told {
		k.put(f)
	}
}

// add takes note of a flight. The first one starts the timer.
func (a *awaited) add(f *flight) {
	f.in, f.began = a, time.Now()
	f.prev, f.next = a.last, nil
	if a.last == nil {
		a.first = f
	} else {
		a.last.next = f
	}
	a.last = f
	if a.timer == nil {
		a.timer = time.AfterFunc(a.long, a.ring)
	}
}

// ring has the loop look for late flights.
func (a *awaited) ring() {
	a.due.Store(true)
	a.wake()
}

// remove forgets a flight.
func (k *carrying) remove(f *flight) {
	f.unlink()
	if f.c.flight = nil; f.stream != 0 {
		f.c.host.landed(f)
	}
	if f.c = nil; f.waits {
		return // it may be told yet that it is ready
	}
	delete(k.flights, f.line)
	k.put(f)
}

// unlink takes a flight out of the order.
func (f *flight) unlink() {
	a := f.in
	if f.prev == nil {
		a.first = f.next
	} else {
		f.prev.next = f.next
	}
	if f.next == nil {
		a.last = f.prev
	} else {
		f.next.prev = f.prev
	}
}

// late gives flights that take too long to the crew.
func (lp *loop) late() {
	if k := lp.carrying; k != nil {
		lp.lateIn(&k.asked)
		lp.lateIn(&k.begun)
	}
}

func (lp *loop) lateIn(a *awaited) {
	if !a.due.Load() {
		return
	}
	a.due.Store(false) // until there is another timer
	now := time.Now()
	a.timer = nil
	for a.first != nil && now.Sub(a.first.began) >= a.long/2 {
		if f := a.first; !lp.stray(f) {
			lp.toCrew(f)
		}
	}
	if a.first != nil {
		a.timer = time.AfterFunc(a.long, a.ring)
	}
}

// toCrew has a goroutine go on with a flight: one of the crew, or net/http's.
func (lp *loop) toCrew(f *flight) {
	c, head := f.c, f.head
	if f.stream != 0 {
		lp.surrender(c)
		return
	}
	c.passage = lp.handOver(f)
	if c.wire == nil {
		lp.lane.crew.employ(order{c, head})
		return
	}
	c.held = append([]byte(head), c.held...)
	c.phase.Store(uint32(between))
	c.away.Store(false)
	c.beginHead(len(c.held))
	c.leave()
}

// handOver ends a flight for whoever goes on with its passage.
func (lp *loop) handOver(f *flight) Passage {
	if !f.waits {
		_ = lp.in.Remove(fdOf(f.line)) // it gets another number, and this entry would stay
	}
	p := f.passage
	lp.carrying.remove(f)
	return p
}

// stray gives a flight up whose client has gone, over HTTP/2: others are told by
// their connections.
func (lp *loop) stray(f *flight) bool {
	if f.stream == 0 || !f.c.closed.Load() {
		return false
	}
	lp.giveUp(f)
	return true
}

// giveUp ends a flight and its passage.
func (lp *loop) giveUp(f *flight) {
	f.passage.Discard()
	lp.carrying.remove(f)
}

// landed reads from a line that has become readable.
func (lp *loop) landed(event *epoll.Event) {
	k := lp.carrying
	f := k.flights[event.Key()]
	if f == nil {
		return // it is idle, and looked at before it is used again
	}
	defer lp.guard(f.c)
	if _, serial, _ := f.passage.Line(k.unwatch); serial != event.Generation() || lp.stray(f) {
		return
	}
	l := lp.lane
	if l.draining.Load() && f.stream == 0 || l.held.Load() > carryHeld {
		lp.toCrew(f)
		return
	}
	switch f.passage.Take(k.into[:], &k.reply) {
	case More:
		if f.in != &k.begun {
			f.unlink()
			k.begun.add(f)
		}
	case Beyond:
		lp.toCrew(f)
	case Whole:
		if f.stream != 0 {
			lp.replyStream(f)
			return
		}
		c, p, body := f.c, f.passage, f.body
		c.answered = theLane
		if f.method == http.MethodPost {
			c.answered = thePost
		}
		k.remove(f)
		lp.reply(c, p, body)
	}
}

// reply sends the answer in carrying, and goes on with the client, who has sent so
// many bytes of body.
func (lp *loop) reply(c *Conn, p Passage, body int) {
	k := lp.carrying
	k.head = lp.lane.through.AppendHead(k.head[:0], k.reply.Status, k.reply.Lines)
	pending, err := lp.sendReply(c)
	p.Sent(c, &k.reply)
	c.phase.Store(uint32(between)) // a drain that begins now either sees this, or is seen below
	c.setIdle(time.Now(), lp.lane.settings.Load())
	if !c.comeBack() || err != nil {
		if pending != nil {
			pending.release()
		}
		c.away.Store(false)
		_ = c.Close()
		return
	}
	c.reading.pending, c.held = pending, c.held[body:]
	switch {
	case c.wire != nil:
		lp.goOnWire(c)
	case pending != nil: // what is held comes behind it
		lp.chat(c, 0)
	case len(c.held) > 0:
		n := copy(lp.scratch.buf[:], c.held)
		c.held = nil
		lp.chat(c, n)
	default:
		c.held = nil
	}
}

// sendReply sends of the answer in carrying what the client takes now, and returns
// the rest; nil: there is none. Over TLS head and body go together, in one record if
// they fit.
func (lp *loop) sendReply(c *Conn) (pending *pendingWrite, err error) {
	l, k := lp.lane, lp.carrying
	body, whole := k.reply.Body, true
	var n int
	if c.wire == nil {
		n, err = send.TryWrite(uintptr(c.fd), k.head, body)
	} else {
		k.head, body = append(k.head, body...), nil
		n, err = c.seal(k.head, nil)
		whole = len(c.wire.rest) == 0
	}
	l.meters.Sent.Copied.Add(c.shard, uint64(n))
	if pending = l.rest(k.head, body, n); pending == nil && !whole {
		pending = new(pendingWrite)
	}
	return pending, err
}

// rest is what a client has not taken of an answer of which n bytes are sent: a
// copy, since the answer's own memory is used again. nil: nothing.
func (l *Lane) rest(head, body []byte, n int) *pendingWrite {
	left := len(head) + len(body) - n
	if left == 0 {
		return nil
	}
	skip := min(n, len(head))
	l.held.Add(int64(left))
	return &pendingWrite{head: slices.Concat(head[skip:], body[n-skip:]), held: &l.held, holds: int64(left)}
}

// stopCarrying ends what is on its way when the loop has ended.
func (lp *loop) stopCarrying() {
	k := lp.carrying
	if k == nil {
		return
	}
	for _, a := range [...]*awaited{&k.asked, &k.begun} {
		if a.timer != nil {
			a.timer.Stop()
		}
		for a.first != nil {
			c := a.first.c
			lp.giveUp(a.first)
			c.away.Store(false)
		}
	}
}
