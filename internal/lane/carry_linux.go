package lane

import (
	"bytes"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2/hpack"

	"millrace/internal/wire/epoll"
	"millrace/internal/wire/lean"
	"millrace/internal/wire/message"
	"millrace/internal/wire/send"
)

// A request that is only forwarded needs no goroutine: the loop sends it on an
// idle connection to the upstream, serves other connections, and sends the answer
// when it has come (docs/decisions/0040). Meanwhile the client's connection is
// only watched (loopWatches), as it is while a worker answers. What is not plain
// (a long answer, a slow one, a client that leaves) is given to a worker, which
// goes on from where the loop has got to.

const (
	// forwardBufBytes is how much of an answer is read at once.
	forwardBufBytes = 64 << 10
	// forwardWait is how long a loop waits for an answer. After that a goroutine
	// waits, which has timeouts and notices when its client leaves.
	forwardWait = 100 * time.Millisecond
	// partialWait is how long it waits for the remainder of an answer of which something has
	// come: applications send in several pieces what they have ready. After that a
	// goroutine sends the client what there is.
	partialWait = 20 * time.Millisecond
	// maxUnsent is how many bytes of answers the loops hold for clients that do not
	// take them at once. Beyond that a worker sends them, within the proxy's buffers.
	maxUnsent = 16 << 20
	// joinedBody is the longest body that is copied behind its head. The system call takes
	// half a microsecond longer for a second buffer, see BenchmarkWriteSizes.
	joinedBody = 4 << 10
	// maxKept is the longest buffer for what has come behind a head that a call keeps for
	// the next one.
	maxKept = 4 << 10
	// maxRequest is the room for a request as it is sent: what a client may have
	// sent, and what a proxy adds.
	maxRequest = 2*maxHead + 4<<10
)

// forwarding is what a loop needs to pass requests on. It is made with the first.
type forwarding struct {
	into    [forwardBufBytes]byte
	out     [maxRequest]byte
	head    []byte // of the answer; over TLS with its body
	block   []byte // the head for HTTP/2
	forward ForwardRequest
	request message.Request
	reply   Reply

	lines      lines
	unanswered callList // calls of which nothing has come, those that wait as well
	partial    callList // and those of which something has
	idle       *call    // used again
	wake       func()

	asleep   atomic.Bool // nobody looks at ready before the loop is woken
	some     atomic.Bool // there is something in ready
	mu       sync.Mutex
	ready    []*call // that may have a place now; guarded by mu
	readyBuf []*call // room for the next
}

// callList are calls in the order in which their present wait began, which may take
// so long.
type callList struct {
	timeout     time.Duration
	first, last *call
	timer       *time.Timer // nil: no call is waited for
	due         atomic.Bool // by timer: there are late ones
	wake        func()
}

// call is a request on its way, or one that waits for a place at its upstream.
type call struct {
	k          *forwarding // stays the same
	waits      bool
	connects   bool  // its line is being made
	notified   bool  // that it is ready; guarded by k.mu
	c          *Conn // nil: it is over
	roundTrip  RoundTrip
	head       string // of HTTP/1.1
	stream     uint32 // of HTTP/2; 0: it is HTTP/1.1
	fields     []hpack.HeaderField
	method     string
	body       int       // bytes of its body, which begins kept
	kept       []byte    // what has come behind the head of HTTP/1.1
	began      time.Time // of its wait in
	in         *callList
	line       int // the descriptor of its line; 0: none
	prev, next *call
}

// canForward reports whether the loop may pass requests of a connection on.
func (lp *loop) canForward(c *Conn) bool {
	l := lp.lane
	if l.forwarder == nil || !c.scope.Sites.Load().Passes() || l.draining.Load() || l.unsent.Load() > maxUnsent {
		return false
	}
	return c.canServeDirect()
}

// pass has an upstream or a worker answer the request that b begins with. It returns false if
// the request is not complete or for net/http, and where more is true, so that more can be
// read, also if its body is not complete.
func (lp *loop) pass(c *Conn, b []byte, more bool) bool {
	if !c.canServeDirect() {
		return false
	}
	n, v := message.End(b)
	if v != message.Whole {
		return false
	}
	k := lp.ensureForwarding()
	text := string(b[:n])
	if !k.request.Parse(text) || more && k.request.Length > int64(len(b)-n) {
		return false
	}
	if !c.startedOnLoop() && lp.canForward(c) {
		if lp.forward(c, b, text) {
			return true
		}
		k.request.Parse(text) // the forwarder may have changed it
	}
	return lp.submit(c, b[n:])
}

// forward passes the request on that b begins with, whose head is text, and in fwd, if it may
// be forwarded.
func (lp *loop) forward(c *Conn, b []byte, text string) bool {
	k, n := lp.fwd, len(text)
	if k.request.Upgrades && c.wire != nil || k.request.Length > int64(len(b)-n) {
		return false
	}
	size := int(k.request.Length)
	f := k.take()
	f.c, f.head, f.body = c, text, size
	started, sent := lp.forwardCall(f, b[n:n+size], lp.scratch.now)
	if !sent {
		c.started = started
		return false
	}
	f.kept = append(f.kept[:0], b[n:]...)
	c.deadline.Store(0)
	c.headStarted, c.closeAfter, c.fault = false, false, ""
	c.state.set(stateActive)
	c.call = f
	c.setMode(loopWatches)
	if !f.waits && !lp.watchUpstream(f) {
		lp.toWorker(f)
	}
	return true
}

// ensureForwarding is the loop's fwd.
func (lp *loop) ensureForwarding() *forwarding {
	if lp.fwd == nil {
		wake := lp.waker.Wake
		lp.fwd = &forwarding{
			lines: lines{poller: lp.in}, wake: wake,
			unanswered: callList{timeout: forwardWait, wake: wake}, partial: callList{timeout: partialWait, wake: wake},
		}
	}
	return lp.fwd
}

// fillForward makes the ForwardRequest of a call, whose head is in fwd.
func (lp *loop) fillForward(f *call, body []byte, now time.Time) *ForwardRequest {
	k, c := lp.fwd, f.c
	k.forward = ForwardRequest{Head: &k.request, Body: body, Scope: c.scope, Client: c.RemoteAddr(), Remote: c.loggedAs(), Local: c.local, Loop: lp.number, Received: now, Out: k.out[:0]}
	k.request.Secure, k.request.ID, k.request.Set, k.request.Marks = c.scope.Secure, "", nil, nil
	k.request.Subject = c.subject
	k.request.Peer, k.request.Port = addrOf(k.forward.Client), portOf(k.forward.Client)
	if c.wire != nil {
		k.forward.Local = c.wire.LocalAddr()
	}
	return &k.forward
}

// forwardCall has the forwarder take a new request, which was read now and whose head is in
// fwd. If it was not sent, the call is dropped, and started is for the handler.
func (lp *loop) forwardCall(f *call, body []byte, now time.Time) (started RoundTrip, sent bool) {
	k := lp.fwd
	q := lp.fillForward(f, body, now)
	q.Waiting = f
	if started, sent = lp.lane.forwarder.Forward(q); !sent {
		f.c = nil
		k.drop(f)
		return started, false
	}
	f.roundTrip = started
	f.method, f.waits = k.request.Method, started.Waits()
	k.unanswered.add(f, now)
	return nil, true
}

// watchUpstream watches for the answer to a request that was sent, or for the connection on
// which it will be. It reports false where the system has no room for that.
func (lp *loop) watchUpstream(f *call) bool {
	k := lp.fwd
	fd, serial, unknown := f.roundTrip.Line(&k.lines)
	if f.line != fd {
		k.lines.forget(f)
		k.lines.await(fd, f)
	}
	events := uint32(epoll.In | epoll.PeerShut | epoll.Edge)
	if f.connects = f.roundTrip.Connects(); f.connects {
		events |= epoll.Out
	}
	if unknown && lp.in.Add(fd, events, lineKey(fd), serial) != nil {
		return false
	}
	if !f.connects {
		lp.lane.forwarded.Add(1)
	}
	return true
}

// Ready notes that the call need not wait any longer. It may be called from
// anywhere, once for each call that waits.
func (f *call) Ready() {
	k := f.k
	k.mu.Lock()
	f.notified = true
	k.ready = append(k.ready, f)
	k.some.Store(true)
	k.mu.Unlock()
	if k.asleep.CompareAndSwap(true, false) {
		k.wake()
	}
}

// start sends the requests that have waited.
func (lp *loop) start() {
	k := lp.fwd
	k.mu.Lock()
	ready := k.ready
	k.ready, k.readyBuf = k.readyBuf[:0], ready
	k.some.Store(false)
	k.mu.Unlock()
	for i, f := range ready {
		ready[i] = nil
		if f.c != nil {
			lp.startOne(f)
		}
	}
}

func (lp *loop) startOne(f *call) {
	k, c := lp.fwd, f.c
	defer lp.recoverPanic(c)
	if lp.dropIfClientGone(f) {
		return
	}
	now := time.Now()
	if !lp.reparse(f) || !f.roundTrip.Start(lp.fillForward(f, f.kept[:f.body], now)) {
		lp.toWorker(f)
		return
	}
	f.waits = false
	if !f.roundTrip.Connects() {
		f.unlink()
		k.unanswered.add(f, now)
	}
	if !lp.watchUpstream(f) {
		lp.toWorker(f)
	}
}

// reparse reads the head of a call once more. It reports false where the request is
// for a handler now.
func (lp *loop) reparse(f *call) bool {
	if f.stream != 0 {
		return parseFields(&lp.fwd.request, f.fields)
	}
	return !lp.lane.draining.Load() && lp.fwd.request.Parse(f.head)
}

// maySleep reports whether the loop may sleep: from then on a call that is ready
// wakes it.
func (k *forwarding) maySleep() bool {
	k.asleep.Store(true)
	return !k.some.Load() || !k.asleep.CompareAndSwap(true, false)
}

// take is a call for the next request.
func (k *forwarding) take() *call {
	f := k.idle
	if f == nil {
		return &call{k: k}
	}
	k.idle, f.next = f.next, nil
	return f
}

// put has a call used again.
func (k *forwarding) put(f *call) {
	clear(f.fields)
	if cap(f.kept) > maxKept {
		f.kept = nil
	}
	*f = call{k: k, next: k.idle, fields: f.fields[:0], kept: f.kept}
	k.idle = f
}

// drop has a call used again that has not begun, unless it was notified meanwhile that it
// is ready: start would take it for the next request.
func (k *forwarding) drop(f *call) {
	k.mu.Lock()
	told := f.notified
	k.mu.Unlock()
	if !told {
		k.put(f)
	}
}

// add takes note of a call, whose wait begins now. The first one starts the timer.
func (a *callList) add(f *call, now time.Time) {
	f.in, f.began = a, now
	f.prev, f.next = a.last, nil
	if a.last == nil {
		a.first = f
	} else {
		a.last.next = f
	}
	a.last = f
	if a.timer == nil {
		a.timer = time.AfterFunc(a.timeout, a.onTimer)
	}
}

// onTimer has the loop look for late calls.
func (a *callList) onTimer() {
	a.due.Store(true)
	a.wake()
}

// remove forgets a call.
func (k *forwarding) remove(f *call) {
	f.unlink()
	if f.c.call = nil; f.stream != 0 {
		f.c.h2host.forgetCall(f)
	}
	if f.c = nil; f.waits {
		return // it may be notified yet that it is ready
	}
	k.lines.forget(f)
	k.put(f)
}

// unlink takes a call out of the order.
func (f *call) unlink() {
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

// expireCalls gives calls that take too long to a worker.
func (lp *loop) expireCalls() {
	if k := lp.fwd; k != nil {
		lp.expireIn(&k.unanswered)
		lp.expireIn(&k.partial)
	}
}

func (lp *loop) expireIn(a *callList) {
	if !a.due.Load() {
		return
	}
	a.due.Store(false) // until there is another timer
	now := time.Now()
	a.timer = nil
	for a.first != nil && now.Sub(a.first.began) >= a.timeout/2 {
		if f := a.first; !lp.dropIfClientGone(f) {
			lp.toWorker(f)
		}
	}
	if a.first != nil {
		a.timer = time.AfterFunc(a.timeout, a.onTimer)
	}
}

// toWorker has a worker go on with a call.
func (lp *loop) toWorker(f *call) {
	c, head := f.c, f.head
	if f.stream != 0 {
		lp.streamToWorker(f)
		return
	}
	c.readAhead = append(c.readAhead, f.kept...)
	c.started = lp.endCall(f)
	x := lean.New(head)
	if x == nil { // net/http refuses the target
		c.state.set(stateReading)
		c.setMode(loopServes)
		rest := c.readAhead
		c.readAhead = nil
		lp.leaveWith(c, append([]byte(head), rest...))
		return
	}
	lp.lane.workers.submit(task{c: c, exchange: x})
}

// endCall ends a call for whoever goes on with its round trip.
func (lp *loop) endCall(f *call) RoundTrip {
	if !f.waits && (!f.connects || f.roundTrip.Connects()) { // it was not closed
		_ = lp.in.Remove(f.line) // it gets another number, and this entry would stay
	}
	p := f.roundTrip
	lp.fwd.remove(f)
	return p
}

// dropIfClientGone discards a call over HTTP/2 whose client has gone. For HTTP/1.1 the
// events of the client's connection do that.
func (lp *loop) dropIfClientGone(f *call) bool {
	if f.stream == 0 || !f.c.state.load().ended() {
		return false
	}
	lp.discardCall(f)
	return true
}

// discardCall ends a call and its round trip.
func (lp *loop) discardCall(f *call) {
	f.roundTrip.Discard()
	lp.fwd.remove(f)
}

// upstreamReadable reads from a line that has become readable.
func (lp *loop) upstreamReadable(event *epoll.Event) {
	k := lp.fwd
	fd := fdOf(event.Key())
	f := k.lines.call(fd)
	if f == nil {
		return // see noteIdle
	}
	defer lp.recoverPanic(f.c)
	if _, serial, _ := f.roundTrip.Line(&k.lines); serial != event.Generation() || lp.dropIfClientGone(f) {
		return
	}
	if event.Events&(epoll.PeerShut|epoll.HungUp|epoll.Failed) != 0 {
		k.lines.stir(fd, event.Generation()) // epoll says it once, and the answer may come before it
	}
	if f.connects {
		lp.startOne(f)
		return
	}
	l := lp.lane
	if l.draining.Load() && f.stream == 0 || l.unsent.Load() > maxUnsent {
		lp.toWorker(f)
		return
	}
	k.reply.Received = time.Now()
	switch f.roundTrip.Take(k.into[:], &k.reply) {
	case Incomplete:
		if f.in != &k.partial {
			f.unlink()
			k.partial.add(f, k.reply.Received)
		}
	case NeedsHandler:
		lp.toWorker(f)
	case Switched:
		lp.switchOver(f)
	case Complete:
		if f.stream != 0 {
			lp.replyStream(f)
			return
		}
		lp.reply(f)
	}
}

// reply ends a call, sends the answer in fwd, and goes on with the client.
func (lp *loop) reply(f *call) {
	k, c, p := lp.fwd, f.c, f.roundTrip
	if c.answeredBy = byLane; f.method == http.MethodPost {
		c.answeredBy = byLanePost
	}
	ahead := f.kept[f.body:] // until the next call
	k.remove(f)
	k.head = lp.lane.through.AppendHead(k.head[:0], k.reply.Status, k.reply.Lines)
	pending, err := lp.sendReply(c)
	p.Sent(c, &k.reply)
	c.state.set(stateReading) // a drain that begins now either sees this, or is seen below
	c.awaitRequest(k.reply.Received, lp.lane.settings.Load())
	if !c.resume(false) || err != nil {
		if pending != nil {
			pending.release()
		}
		c.setMode(loopServes)
		_ = c.Close()
		return
	}
	c.reading.pending = pending
	if len(ahead) > 0 && (c.wire != nil || pending != nil) {
		c.readAhead = append(c.readAhead, ahead...)
	}
	switch {
	case c.wire != nil:
		lp.resumeTLS(c)
	case pending != nil: // what was read ahead comes behind it
		lp.serveBytes(c, 0)
	case len(ahead) > 0:
		lp.serveBytes(c, copy(lp.scratch.buf[:], ahead))
	}
}

// switchOver ends a call behind which another protocol begins.
func (lp *loop) switchOver(f *call) {
	k, c := lp.fwd, f.c
	early := bytes.Clone(f.kept)
	s, ok := f.roundTrip.(Switching)
	if !ok {
		panic("lane: a round trip that cannot switch does")
	}
	k.remove(f)
	fd, ok := c.handOver(k.reply.Body)
	if !ok { // it has gone, or takes nothing: a new connection always does
		s.Discard()
		_ = c.Close()
		return
	}
	s.Switched(c, &k.reply, fd, early)
}

// sendReply sends as much of the answer in fwd as the client takes now, and returns
// the remainder; nil: there is none. Over TLS head and body go together, in one record if
// they fit; so does a short body on a plain connection, in one buffer.
func (lp *loop) sendReply(c *Conn) (pending *pendingWrite, err error) {
	l, k := lp.lane, lp.fwd
	body, whole := k.reply.Body, true
	if len(body) <= joinedBody {
		k.head, body = append(k.head, body...), nil
	}
	var n int
	if c.wire == nil {
		n, err = send.TryWrite(uintptr(c.fd), k.head, body)
	} else {
		k.head, body = append(k.head, body...), nil
		n, err = c.seal(k.head, nil)
		whole = !c.wire.full()
	}
	l.meters.Sent.Copied.Add(c.shard, uint64(n))
	if pending = l.remainder(k.head, body, n); pending == nil && !whole {
		pending = new(pendingWrite)
	}
	return pending, err
}

// remainder is what a client has not taken of an answer of which n bytes are sent: a
// copy, since the answer's own memory is used again. nil: nothing.
func (l *Lane) remainder(head, body []byte, n int) *pendingWrite {
	left := len(head) + len(body) - n
	if left == 0 {
		return nil
	}
	skip := min(n, len(head))
	l.unsent.Add(int64(left))
	return &pendingWrite{head: slices.Concat(head[skip:], body[n-skip:]), unsent: &l.unsent, counted: int64(left)}
}

// stopForwarding ends what is on its way when the loop has ended.
func (lp *loop) stopForwarding() {
	k := lp.fwd
	if k == nil {
		return
	}
	for _, a := range [...]*callList{&k.unanswered, &k.partial} {
		if a.timer != nil {
			a.timer.Stop()
		}
		for a.first != nil {
			c := a.first.c
			lp.discardCall(a.first)
			c.setMode(loopServes)
		}
	}
}
