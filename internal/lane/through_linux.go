package lane

import (
	"io"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"millrace/internal/epoll"
	"millrace/internal/lean"
	"millrace/internal/send"
)

// A request of a loop-owned connection that is not hot may take any time, so a
// goroutine of the crew answers it while the loop goes on: the connection is
// away. The loop still watches it, and tells its request when the client has
// gone; what else comes waits in the socket. Afterwards the connection is the
// loop's again, without a system call. Where the answer would have to wait for
// the client, the connection leaves its loop, as it does for net/http.

// workerPool is the goroutines that answer for the loops. There is at most one for
// each connection, and mostIdle of them wait for the next.
type workerPool struct {
	mu     sync.Mutex
	idle   []*worker // the one that worked last is the next: its stack is in the cache
	closed bool
}

// maxIdleWorkers is how many goroutines wait for a request, with their stacks.
const maxIdleWorkers = 64

// worker is one of the crew.
type worker struct{ tasks chan task }

// task is one request.
type task struct {
	c    *Conn
	head string
}

// submit has the crew answer the request that b begins with, if it may be one
// of ours.
func (lp *loop) submit(c *Conn, b []byte) bool {
	if !c.canServeDirect() {
		return false
	}
	n, v := lean.End(b)
	if v != lean.Whole {
		return false
	}
	if len(b) > n {
		c.readAhead = append(c.readAhead, b[n:]...)
	}
	c.deadline.Store(0)
	c.state.set(stateActive)
	c.setMode(loopWatches)
	lp.lane.workers.submit(task{c, string(b[:n])})
	return true
}

// canServeDirect reports whether requests of the connection may take the through road:
// of plain ones that a loop has owned.
func (c *Conn) canServeDirect() bool {
	return c.lane.through != nil && c.onLeave != nil && !c.scope.Secure && c.ownerLoop() != nil
}

// ownerLoop is the loop that owns the connection, or has.
func (c *Conn) ownerLoop() *loop {
	if n := len(c.lane.loops); n > 0 {
		return c.lane.loops[int(c.shard)%n]
	}
	return nil
}

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

// run answers requests until it is no longer needed, or the crew is closed. A
// handler that never returns keeps it for good, as with net/http.
func (h *worker) run(w *workerPool) {
	for o := range h.tasks {
		o.c.serveTask(o.head)
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

// close ends those that wait, and the others when they are ready.
func (w *workerPool) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, h := range w.idle {
		close(h.tasks)
	}
	w.idle = nil
}

// serveTask answers a request for the loop.
func (c *Conn) serveTask(head string) {
	whole := false
	defer func() {
		cause := recover()
		if cause == nil && whole {
			return // it may be the loop's again
		}
		if c.discardRoundTrip(); cause != nil {
			c.closeAfterPanic(cause)
		} else { // the handler has ended its goroutine
			_ = c.Close()
		}
	}()
	if x := lean.New(head); x == nil {
		c.readAhead = append([]byte(head), c.readAhead...)
		c.state.set(stateReading)
		c.startHeadTimeout(len(c.readAhead))
	} else if c.closeIfLast(c.serveExchange(x)) {
		whole = true
		return
	}
	whole = true
	if c.fd != noFD && len(c.readAhead) == 0 && c.resume() {
		return
	}
	c.resumeOffLoop()
}

// resume gives the connection back to its loop. It reports false if the
// connection is to be closed.
func (c *Conn) resume() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cutPending {
		return false
	}
	if loopMode(c.mode.Swap(uint32(loopServes))) == loopWatchesEnd {
		_ = c.ownerLoop().in.Change(c.fd, epoll.In|epoll.PeerShut, int32(c.fd), c.shard)
	}
	return true
}

// resumeOffLoop has a connection go on in a goroutine of its own.
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

// serveOffLoop serves a connection that has left its loop. Nobody waits for it, since
// its handler may never return; it ends when the connection is cut otherwise.
func (c *Conn) serveOffLoop() {
	defer c.recoverPanic()
	c.onLeave(c)
}

// onEventWhileBusy looks at what has happened on a connection that is away.
func (lp *loop) onEventWhileBusy(c *Conn, event *epoll.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fd := int(event.Key())
	if c.loopServes() || fd != c.fd && fd != c.watchedFD {
		return // it is told once more where that matters
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

// cancelIfGone ends the context of the request at hand if its client has gone.
func (c *Conn) cancelIfGone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if fd := c.fd; fd != noFD {
		c.cancelIfGoneFD(fd)
	} else if c.watchedFD > 0 {
		c.cancelIfGoneFD(c.watchedFD)
	}
}

// cancelIfGoneFD is lookForEnd for a descriptor, with c.mu held. A client that only sends no
// more still waits for its answer (docs/decisions/0049).
func (c *Conn) cancelIfGoneFD(fd int) {
	if c.handlerCtx != nil && c.handlerCtx.cancel != nil && send.Gone(fd) {
		c.handlerCtx.cancel()
	}
}

// watchForClose has the loop watch for the end of a connection that has left it.
func (c *Conn) watchForClose() {
	if c.fd != noFD || c.watchedFD > 0 {
		return
	}
	sc, ok := c.transport.(syscall.Conn)
	if !ok {
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

// stopWatching ends watchEnd: the connection is about to be closed, or has another owner.
func (c *Conn) stopWatching() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopWatchingLocked()
}

// stopWatchingLocked is unwatch with c.mu held. It must come before the descriptor is
// closed: its number may be another connection's right behind that.
func (c *Conn) stopWatchingLocked() {
	if fd := c.watchedFD; fd > 0 {
		c.watchedFD = 0
		c.lane.owned.slot(fd).CompareAndSwap(c, nil)
		_ = c.ownerLoop().in.Remove(fd)
	}
}

// leaveLoop takes the connection from its loop for good, if it has one: something
// must be waited for.
func (c *Conn) leaveLoop() error {
	c.handlerCtx.loopMu.Lock()
	defer c.handlerCtx.loopMu.Unlock()
	return c.leaveLoopLocked()
}

// leaveLoopLocked is unloop with the lock held.
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

// closedErr is an error where a connection has left its loop and has become none of package
// net's: there was no descriptor left for that, or half of an answer could be sent.
func (c *Conn) closedErr() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nc == nil {
		return net.ErrClosed
	}
	return nil
}

// trySend sends what the client of a loop-owned connection takes at once. If that
// is not all, or there is no loop, the rest may be waited for.
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
	if n, err = send.TryWrite(uintptr(c.fd), head, body); err == nil && n < all {
		err = c.leaveLoopLocked()
	}
	return n, err
}

// Switch implements [lean.Link].
func (l *link) Switch(head []byte) (fd int, early []byte, ok bool) {
	c := (*Conn)(l)
	c.handlerCtx.loopMu.Lock()
	defer c.handlerCtx.loopMu.Unlock()
	if c.fd == noFD {
		return 0, nil, false
	}
	switch n, err := send.TryWrite(uintptr(c.fd), head, nil); {
	case n == 0 && err == nil:
		return 0, nil, false
	case n < len(head):
		_ = c.Close() // half a head is of no use to anybody
		return 0, nil, false
	}
	c.lane.meters.Sent.Copied.Add(c.shard, uint64(len(head)))
	fd = c.detach()
	if !c.release() { // it was cut meanwhile
		_ = unix.Close(fd)
		return 0, nil, false
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1) // nobody else notices a dead peer from here on
	c.lane.untrack(c)
	if c.onClose != nil {
		c.onClose()
	}
	early, c.readAhead = c.readAhead, nil
	return fd, early, true
}

// tryRead reads what is there of a loop-owned connection. If nothing is, or there
// is no loop, it is not ok: then it may be waited for.
func (c *Conn) tryRead(p []byte) (n int, ok bool, err error) {
	c.handlerCtx.loopMu.Lock()
	defer c.handlerCtx.loopMu.Unlock()
	if c.fd == noFD {
		return 0, false, c.closedErr()
	}
	if n, ok, err = send.TryRead(uintptr(c.fd), p); !ok {
		return 0, false, c.leaveLoopLocked()
	}
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, true, err
}

// readBody reads a part of a body: what is there, or what comes.
func (c *Conn) readBody(p []byte) (int, error) {
	if n, ok, err := c.tryRead(p); ok || err != nil {
		return n, err
	}
	return c.readBodyBlocking(p)
}
