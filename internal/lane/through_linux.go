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

// crew is the goroutines that answer for the loops. There is at most one for
// each connection, and mostIdle of them wait for the next.
type crew struct {
	mu     sync.Mutex
	idle   []*hand // the one that worked last is the next: its stack is in the cache
	closed bool
}

// mostIdle is how many goroutines wait for a request, with their stacks.
const mostIdle = 64

// hand is one of the crew.
type hand struct{ orders chan order }

// order is one request.
type order struct {
	c    *Conn
	head string
}

// dispatch has the crew answer the request that b begins with, if it may be one
// of ours.
func (lp *loop) dispatch(c *Conn, b []byte) bool {
	if !c.leanable() {
		return false
	}
	n, v := lean.End(b)
	if v != lean.Whole {
		return false
	}
	if len(b) > n {
		c.held = append(c.held, b[n:]...)
	}
	c.deadline.Store(0)
	c.phase.Store(uint32(active))
	c.away.Store(true)
	lp.lane.crew.employ(order{c, string(b[:n])})
	return true
}

// leanable reports whether requests of the connection may take the through road:
// of plain ones that a loop has owned.
func (c *Conn) leanable() bool {
	return c.lane.through != nil && c.take != nil && !c.scope.Secure && c.home() != nil
}

// home is the loop that owns the connection, or has.
func (c *Conn) home() *loop {
	if n := len(c.lane.loops); n > 0 {
		return c.lane.loops[int(c.shard)%n]
	}
	return nil
}

func (w *crew) employ(o order) {
	var h *hand
	w.mu.Lock()
	if n := len(w.idle); n > 0 {
		h, w.idle = w.idle[n-1], w.idle[:n-1]
	}
	w.mu.Unlock()
	if h == nil {
		h = &hand{make(chan order, 1)}
		go h.work(w)
	}
	h.orders <- o
}

// work answers requests until it is no longer needed, or the crew is closed. A
// handler that never returns keeps it for good, as with net/http.
func (h *hand) work(w *crew) {
	for o := range h.orders {
		o.c.attend(o.head)
		w.mu.Lock()
		stay := !w.closed && len(w.idle) < mostIdle
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
func (w *crew) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, h := range w.idle {
		close(h.orders)
	}
	w.idle = nil
}

// attend answers a request for the loop.
func (c *Conn) attend(head string) {
	whole := false
	defer func() {
		cause := recover()
		if cause == nil && whole {
			return // it may be the loop's again
		}
		if c.drop(); cause != nil {
			c.failed(cause)
		} else { // the handler has ended its goroutine
			_ = c.Close()
		}
	}()
	if x := lean.New(head); x == nil {
		c.held = append([]byte(head), c.held...)
		c.phase.Store(uint32(between))
		c.beginHead(len(c.held))
	} else if c.ends(c.exchange(x)) {
		whole = true
		return
	}
	whole = true
	if c.fd != noFD && len(c.held) == 0 && c.comeBack() {
		return
	}
	c.depart()
}

// comeBack gives the connection back to its loop. It reports false if the
// connection is to be closed.
func (c *Conn) comeBack() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.doomed {
		return false
	}
	c.away.Store(false)
	if c.muted {
		c.muted = false
		_ = c.home().in.Change(c.fd, epoll.In|epoll.PeerShut, int32(c.fd), c.shard)
	}
	return true
}

// depart has a connection go on in a goroutine of its own.
func (c *Conn) depart() {
	w := &c.lane.crew
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
	go c.carryOn()
}

// carryOn serves a connection that has left its loop. Nobody waits for it, since
// its handler may never return; it ends when the connection is cut otherwise.
func (c *Conn) carryOn() {
	defer c.guard()
	c.take(c)
}

// meanwhile looks at what has happened on a connection that is away.
func (lp *loop) meanwhile(c *Conn, event *epoll.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fd := int(event.Key())
	if !c.away.Load() || fd != c.fd && fd != c.watched {
		return // it is told once more where that matters
	}
	if event.Events&(epoll.PeerShut|epoll.HungUp|epoll.Failed) != 0 {
		c.shut.Store(true)
		c.endOn(fd)
	}
	if fd == c.fd && !c.muted {
		c.muted = true
		_ = lp.in.Change(fd, epoll.PeerShut|epoll.Edge, int32(fd), c.shard)
	}
}

// lookForEnd ends the context of the request at hand if its client has gone.
func (c *Conn) lookForEnd() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if fd := c.fd; fd != noFD {
		c.endOn(fd)
	} else if c.watched > 0 {
		c.endOn(c.watched)
	}
}

// endOn is lookForEnd for a descriptor, with c.mu held. A client that only sends no
// more still waits for its answer (docs/decisions/0049).
func (c *Conn) endOn(fd int) {
	if c.direct != nil && c.direct.cancel != nil && send.Gone(fd) {
		c.direct.cancel()
	}
}

// watchEnd has the loop watch for the end of a connection that has left it.
func (c *Conn) watchEnd() {
	if c.fd != noFD || c.watched > 0 {
		return
	}
	sc, ok := c.under.(syscall.Conn)
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
		c.watched = int(fd)
		c.away.Store(true)
		slot.Store(c)
		_ = c.home().in.Add(int(fd), epoll.PeerShut|epoll.Edge, int32(fd), c.shard)
	})
}

// unwatch ends watchEnd: the connection is about to be closed, or has another owner.
func (c *Conn) unwatch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endWatch()
}

// endWatch is unwatch with c.mu held. It must come before the descriptor is
// closed: its number may be another connection's right behind that.
func (c *Conn) endWatch() {
	if fd := c.watched; fd > 0 {
		c.watched = 0
		c.lane.owned.slot(fd).CompareAndSwap(c, nil)
		_ = c.home().in.Remove(fd)
	}
}

// unloop takes the connection from its loop for good, if it has one: something
// must be waited for.
func (c *Conn) unloop() error {
	c.direct.moving.Lock()
	defer c.direct.moving.Unlock()
	return c.quit()
}

// quit is unloop with the lock held.
func (c *Conn) quit() error {
	fd := c.fd
	if fd == noFD {
		return c.lost()
	}
	c.detach()
	if !c.settle(fd) {
		return net.ErrClosed
	}
	c.watchEnd()
	return nil
}

// lost is an error where a connection has left its loop and has become none of package
// net's: there was no descriptor left for that, or half of an answer could be sent.
func (c *Conn) lost() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nc == nil {
		return net.ErrClosed
	}
	return nil
}

// sendNow sends what the client of a loop-owned connection takes at once. If that
// is not all, or there is no loop, the rest may be waited for.
func (c *Conn) sendNow(head, body []byte) (n int, err error) {
	c.direct.moving.Lock()
	defer c.direct.moving.Unlock()
	all := len(head) + len(body)
	switch {
	case c.fd == noFD:
		return 0, c.lost()
	case all == 0:
		return 0, nil
	case len(head) == 0:
		head, body = body, nil
	}
	if n, err = send.TryWrite(uintptr(c.fd), head, body); err == nil && n < all {
		err = c.quit()
	}
	return n, err
}

// Switch implements [lean.Link].
func (l *link) Switch(head []byte) (fd int, early []byte, ok bool) {
	c := (*Conn)(l)
	c.direct.moving.Lock()
	defer c.direct.moving.Unlock()
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
	if c.gone != nil {
		c.gone()
	}
	early, c.held = c.held, nil
	return fd, early, true
}

// readNow reads what is there of a loop-owned connection. If nothing is, or there
// is no loop, it is not ok: then it may be waited for.
func (c *Conn) readNow(p []byte) (n int, ok bool, err error) {
	c.direct.moving.Lock()
	defer c.direct.moving.Unlock()
	if c.fd == noFD {
		return 0, false, c.lost()
	}
	if n, ok, err = send.TryRead(uintptr(c.fd), p); !ok {
		return 0, false, c.quit()
	}
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, true, err
}

// readBody reads a part of a body: what is there, or what comes.
func (c *Conn) readBody(p []byte) (int, error) {
	if n, ok, err := c.readNow(p); ok || err != nil {
		return n, err
	}
	return c.waitBody(p)
}
