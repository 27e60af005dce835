package lane

import (
	"io"
	"net"
	"sync"

	"golang.org/x/sys/unix"

	"millrace/internal/wire/epoll"
	"millrace/internal/wire/lean"
	"millrace/internal/wire/message"
	"millrace/internal/wire/send"
)

// A handler may take any time. So a worker calls it for a connection of a loop, while the
// loop serves others. The connection stays on its loop, which only watches it (loopWatches):
// when the client leaves, the loop cancels the request's context, and what the client sends
// waits in the socket. After the answer the loop serves the connection again, without a
// system call. If sending must wait for the client, the connection leaves its loop, as it
// does for net/http.

// workerPool has the goroutines that call handlers for the loops. A connection needs at most
// one of them at a time. Up to maxIdleWorkers stay when they have nothing to do.
type workerPool struct {
	mu     sync.Mutex
	idle   []*worker // a stack: the one that worked last is still in the processor's cache
	closed bool
}

// maxIdleWorkers bounds the goroutines, and their stacks, that wait for a request.
const maxIdleWorkers = 64

// worker is a goroutine of a pool.
type worker struct{ tasks chan task }

// task is a request for a worker: one over HTTP/1.1 and its connection, or one over HTTP/2.
type task struct {
	c        *Conn
	exchange *lean.Exchange
	stream   *stream
}

func (o *task) serve() {
	if o.stream != nil {
		o.stream.serve()
		return
	}
	o.c.serveTask(o.exchange)
}

// submit has a worker serve the request whose head is in fwd. rest was read behind it. It
// returns false if the target is not valid.
func (lp *loop) submit(c *Conn, rest []byte) bool {
	x := lean.NewExchange(&lp.fwd.request)
	if x == nil {
		return false
	}
	c.readAhead = append(c.readAhead, rest...)
	c.deadline.Store(0)
	c.state.set(stateActive)
	c.setMode(loopWatches)
	lp.lane.workers.submit(task{c: c, exchange: x})
	return true
}

// serveStream has a worker serve a request over HTTP/2. It reports false if the target is not
// valid.
func (lp *loop) serveStream(h *h2Host, id uint32, head *message.Request, started RoundTrip) bool {
	exchange := lean.NewExchange(head)
	if exchange == nil {
		return false
	}
	out := h.h2conn.Load().Beside(id)
	if out == nil {
		return false
	}
	x := &stream{Context: h.lane.baseCtx, h: h, out: out, exchange: exchange}
	x.source = requestSource{lane: h.lane, scope: h.scope, shard: h.shard, info: requestInfo{started: started}}
	h.lane.workers.submit(task{stream: x})
	return true
}

// canServeDirect reports whether the lane may serve the connection's requests without
// net/http: if it is on a loop or was so before.
func (c *Conn) canServeDirect() bool {
	return c.lane.through != nil && (c.onLeave != nil || c.h2host != nil) && c.ownerLoop() != nil
}

// ownerLoop returns the event loop that serves this connection, or served it before it left
// its loop; nil where there are no loops.
func (c *Conn) ownerLoop() *loop {
	if n := len(c.lane.loops); n > 0 {
		return c.lane.loops[int(c.shard)%n]
	}
	return nil
}

// submit gives the task to an idle worker, or to a new one.
func (w *workerPool) submit(o task) {
	var h *worker
	w.mu.Lock()
	if n := len(w.idle); n > 0 {
		h, w.idle = w.idle[n-1], w.idle[:n-1]
	}
	w.mu.Unlock()
	if h == nil {
		h = &worker{make(chan task, 1)}
		go h.run(w)
	}
	h.tasks <- o
}

// run serves tasks until enough others are idle, or the pool is closed. A handler that never
// returns keeps its worker for ever, as with net/http.
func (h *worker) run(w *workerPool) {
	for o := range h.tasks {
		o.serve()
		w.mu.Lock()
		stay := !w.closed && len(w.idle) < maxIdleWorkers
		if stay {
			w.idle = append(w.idle, h)
		}
		w.mu.Unlock()
		if !stay {
			return
		}
	}
}

// close ends the idle workers at once, and the others after their tasks.
func (w *workerPool) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, h := range w.idle {
		close(h.tasks)
	}
	w.idle = nil
}

// serveTask serves a request on a worker, and then gives the connection back to its loop.
func (c *Conn) serveTask(x *lean.Exchange) {
	whole := false
	defer func() {
		cause := recover()
		if cause == nil && whole {
			return // the loop may use c by now
		}
		if c.discardStarted(); cause != nil {
			c.closeAfterPanic(cause)
		} else { // the handler has called runtime.Goexit
			_ = c.Close()
		}
	}()
	if c.closeIfLast(c.serveExchange(x)) {
		whole = true
		return
	}
	whole = true
	if c.fd != noFD {
		ended := c.unbufferTLS()
		if c.resume(ended || len(c.readAhead) > 0) {
			return
		}
	}
	c.resumeOffLoop()
}

// resume has the loop serve the connection again; some: there is something for it of which
// epoll does not tell. It returns false if the connection must be closed.
func (c *Conn) resume(some bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cutPending {
		return false
	}
	switch was := loopMode(c.mode.Swap(uint32(loopServes))); {
	case some:
		c.wakeLoop()
	case was == loopWatchesEnd:
		_ = c.ownerLoop().in.Change(c.fd, epoll.In|epoll.PeerShut, int32(c.fd), c.shard)
	}
	return true
}

// unbufferTLS moves what TLS has read ahead to readAhead, and reports whether that was the end.
func (c *Conn) unbufferTLS() (ended bool) {
	room := maxHead - len(c.readAhead)
	if c.wire == nil || room <= 0 {
		return false
	}
	s := scratchPool.Get().(*scratch)
	defer scratchPool.Put(s)
	c.wire.readsLeft = 0
	n, err := c.nc.Read(s.buf[:room]) // the next read gets the error again
	c.readAhead = append(c.readAhead, s.buf[:n]...)
	return err != nil && !isWouldBlock(err)
}

// resumeOffLoop has a goroutine of its own serve the connection from now on.
func (c *Conn) resumeOffLoop() {
	w := &c.lane.workers
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		_ = c.Close()
		return
	}
	if c.fd != noFD {
		c.leave()
		return
	}
	go c.serveOffLoop()
}

// serveOffLoop serves a connection that has left its loop. Nobody waits for this goroutine,
// since a handler may never return; without one it ends when the connection is cut.
func (c *Conn) serveOffLoop() {
	defer c.recoverPanic()
	c.onLeave(c)
}

// onEventWhileBusy handles an event of a connection that the loop only watches: it cancels
// the request if the client has gone, and stops epoll from telling of input.
func (lp *loop) onEventWhileBusy(c *Conn, event *epoll.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fd := int(event.Key())
	if c.loopServes() || fd != c.fd && fd != c.watchedFD {
		return // the loop serves it by now, or the descriptor is of another connection
	}
	if event.Events&(epoll.PeerShut|epoll.HungUp|epoll.Failed) != 0 {
		c.halfClosed.Store(true)
		c.cancelIfGoneFD(fd)
	}
	if fd == c.fd && loopMode(c.mode.Load()) == loopWatches {
		c.setMode(loopWatchesEnd)
		_ = lp.in.Change(fd, epoll.PeerShut|epoll.Edge, int32(fd), c.shard)
	}
}

// cancelIfGone cancels the request that is being served if its client has gone.
func (c *Conn) cancelIfGone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if fd := c.fd; fd != noFD {
		c.cancelIfGoneFD(fd)
	} else if c.watchedFD > 0 {
		c.cancelIfGoneFD(c.watchedFD)
	}
}

// cancelIfGoneFD is cancelIfGone for a descriptor, with c.mu held. A client that has only
// closed its sending side still waits for the answer (docs/decisions/0049).
func (c *Conn) cancelIfGoneFD(fd int) {
	if c.handlerCtx != nil && c.handlerCtx.cancel != nil && send.Gone(fd) {
		c.handlerCtx.cancel()
	}
}

// watchForClose has the loop watch a connection that has left it, so that a client which
// goes cancels its request.
func (c *Conn) watchForClose() {
	if c.fd != noFD || c.watchedFD > 0 {
		return
	}
	sc := socketOf(c.transport)
	if sc == nil {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		slot := c.lane.owned.slot(int(fd))
		if slot == nil || fd == 0 {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.watchedFD = int(fd)
		c.setMode(loopWatches)
		slot.Store(c)
		_ = c.ownerLoop().in.Add(int(fd), epoll.PeerShut|epoll.Edge, int32(fd), c.shard)
	})
}

// stopWatching undoes watchForClose, before the connection is closed or somebody else's.
func (c *Conn) stopWatching() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopWatchingLocked()
}

// stopWatchingLocked is stopWatching with c.mu held. It must come before the descriptor is
// closed, whose number another connection may get at once.
func (c *Conn) stopWatchingLocked() {
	if fd := c.watchedFD; fd > 0 {
		c.watchedFD = 0
		c.lane.owned.slot(fd).CompareAndSwap(c, nil)
		_ = c.ownerLoop().in.Remove(fd)
	}
}

// leaveLoop takes the connection from its loop, if it is on one: this goroutine must wait for
// the client.
func (c *Conn) leaveLoop() error {
	c.handlerCtx.loopMu.Lock()
	defer c.handlerCtx.loopMu.Unlock()
	return c.leaveLoopLocked()
}

// leaveLoopLocked is leaveLoop with loopMu held.
func (c *Conn) leaveLoopLocked() error {
	fd := c.fd
	if fd == noFD {
		return c.closedErr()
	}
	c.detach()
	if !c.toNetConn(fd) {
		return net.ErrClosed
	}
	c.watchForClose()
	return nil
}

// closedErr returns an error for a connection that has left its loop without becoming a
// net.Conn: no descriptor was left for it, or it was closed with half an answer sent.
func (c *Conn) closedErr() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nc == nil {
		return net.ErrClosed
	}
	return nil
}

// trySend sends as much as the client takes at once, on a connection that a loop owns. If
// that is not all, the connection leaves its loop, and the caller may wait. Without a loop
// it sends nothing.
func (c *Conn) trySend(head, body []byte) (n int, err error) {
	c.handlerCtx.loopMu.Lock()
	defer c.handlerCtx.loopMu.Unlock()
	all := len(head) + len(body)
	switch {
	case c.fd == noFD:
		return 0, c.closedErr()
	case all == 0:
		return 0, nil
	case len(head) == 0:
		head, body = body, nil
	}
	if c.wire != nil {
		return c.trySeal(head, body)
	}
	if n, err = send.TryWrite(uintptr(c.fd), head, body); err == nil && n < all {
		err = c.leaveLoopLocked()
	}
	return n, err
}

// trySeal is trySend over TLS. What TLS has taken is sent to the last byte.
func (c *Conn) trySeal(head, body []byte) (n int, err error) {
	n, err = c.seal(head, body)
	if err != nil || n == len(head)+len(body) && !c.wire.full() {
		return n, err
	}
	if err = c.leaveLoopLocked(); err == nil {
		c.startWriteTimeout()
		err = c.wire.flushBlocking()
		c.stopWriteTimeout()
	}
	return n, err
}

// Switch implements [lean.Link].
func (l *link) Switch(head []byte) (fd int, early []byte, ok bool) {
	c := (*Conn)(l)
	c.handlerCtx.loopMu.Lock()
	defer c.handlerCtx.loopMu.Unlock()
	if c.fd == noFD || c.wire != nil {
		return 0, nil, false
	}
	if fd, ok = c.handOver(head); !ok {
		return 0, nil, false
	}
	early, c.readAhead = c.readAhead, nil
	return fd, early, true
}

// handOver sends head on a connection that a loop owns, and takes it out of the server: the
// descriptor is the caller's. Where ok is false nothing was sent, or the connection is closed.
func (c *Conn) handOver(head []byte) (fd int, ok bool) {
	switch n, err := send.TryWrite(uintptr(c.fd), head, nil); {
	case n == 0 && err == nil:
		return 0, false
	case n < len(head):
		_ = c.Close() // half a head was sent: the connection is of no use
		return 0, false
	}
	c.lane.meters.Sent.Copied.Add(c.shard, uint64(len(head)))
	fd = c.detach()
	if !c.release() { // it was cut meanwhile
		_ = unix.Close(fd)
		return 0, false
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1) // nobody else notices a dead peer from here on
	c.lane.untrack(c)
	if c.onClose != nil {
		c.onClose()
	}
	return fd, true
}

// tryRead reads what has come on a connection that a loop owns. ok is false if nothing has:
// then the connection leaves its loop, and the caller may wait. It is also false without a
// loop.
func (c *Conn) tryRead(p []byte) (n int, ok bool, err error) {
	c.handlerCtx.loopMu.Lock()
	defer c.handlerCtx.loopMu.Unlock()
	if c.fd == noFD {
		return 0, false, c.closedErr()
	}
	if c.wire != nil {
		c.wire.readsLeft = readsPerEvent
		if n, err = c.nc.Read(p); n > 0 {
			return n, true, nil // the next read gets an error again
		}
		ok = !isWouldBlock(err)
	} else {
		n, ok, err = send.TryRead(uintptr(c.fd), p)
	}
	if !ok {
		return 0, false, c.leaveLoopLocked()
	}
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, true, err
}

// readBody reads a part of a body, and waits for it if nothing has come.
func (c *Conn) readBody(p []byte) (int, error) {
	if n, ok, err := c.tryRead(p); ok || err != nil {
		return n, err
	}
	return c.readBodyBlocking(p)
}
