package lane

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"millrace/internal/epoll"
	"millrace/internal/send"
)

const (
	// loopEvents is how many connections a loop is told of at once.
	loopEvents = 256
	// ownedChunk and ownedChunks bound the table of connections, by descriptor
	// number: a million, allocated a thousand at a time.
	ownedChunk  = 1 << 10
	ownedChunks = 1 << 10
)

// loop owns connections that have asked for nothing but hot answers so
// far. They have no goroutine and no buffer, only a Conn. All are
// served on the loop's own stack and scratch, which stay in the cache; at a
// thousand connections that is worth a quarter of the time of a goroutine
// each (docs/decisions/0004). What a client does not take at once the loop sends
// when there is room again. The first request that is for net/http, and the
// first file that would have to be read from the disk, ends a connection's time
// on its loop for good (docs/decisions/0021).
//
// Connections over TLS are the same, with a [Wire] below TLS (loop_wire_linux.go).
//
// A connection is watched with its descriptor as the key and its shard as the
// generation.
type loop struct {
	lane     *Lane
	in       *epoll.Poller // loop-owned connections that may send requests
	events   [loopEvents]epoll.Event
	sending  int        // loop-owned connections that wait in out
	out      *epoll.Set // those with an answer to take, and in
	writable [loopEvents]epoll.Event
	scratch  scratch
	number   int
	fwd      *forwarding // nil: nothing was passed on yet
	toFlush  []*Conn     // of HTTP/2, with answers to be written at the end of a round
	waker    *epoll.Waker
	pings    chan chan struct{} // see Lane.Answer
}

// ownedConns finds a loop-owned connection by its descriptor.
type ownedConns struct {
	chunks [ownedChunks]atomic.Pointer[[ownedChunk]atomic.Pointer[Conn]]
}

func (g *ownedConns) slot(fd int) *atomic.Pointer[Conn] {
	if fd < 0 || fd >= ownedChunk*ownedChunks {
		return nil
	}
	chunk := &g.chunks[fd/ownedChunk]
	if chunk.Load() == nil {
		chunk.CompareAndSwap(nil, new([ownedChunk]atomic.Pointer[Conn]))
	}
	return &chunk.Load()[fd%ownedChunk]
}

// startLoops starts a loop for each core. They end with stopLoops. Where the
// system has no descriptors left for them there are none, and every
// connection has a goroutine.
func (l *Lane) startLoops() {
	for range runtime.GOMAXPROCS(0) {
		lp, err := newLoop(l, len(l.loops))
		if err != nil {
			return
		}
		l.loops = append(l.loops, lp)
		l.loopsDone.Go(lp.run)
	}
}

func newLoop(l *Lane, number int) (*loop, error) {
	in, err := epoll.NewPoller()
	if err != nil {
		return nil, err
	}
	out, err := epoll.New()
	if err != nil {
		_ = in.Close()
		return nil, err
	}
	if err := out.Add(in.FD(), epoll.In, inputKey, 0); err != nil {
		_, _ = in.Close(), out.Close()
		return nil, fmt.Errorf("watch an epoll descriptor: %w", err)
	}
	waker, err := in.NewWaker()
	if err != nil {
		_, _ = in.Close(), out.Close()
		return nil, err
	}
	return &loop{lane: l, in: in, out: out, number: number, waker: waker, pings: make(chan chan struct{}, 1)}, nil
}

// stopLoops ends the loops, each when it finds nothing to do: every connection
// must have been cut. Loop-owned connections that are still open are closed.
func (l *Lane) stopLoops() {
	l.loopsOnce.Do(func() {}) // none may start any more
	for _, lp := range l.loops {
		_ = lp.in.Close()
	}
	l.loopsDone.Wait()
	for _, lp := range l.loops {
		lp.stopForwarding()
		_ = lp.waker.Close()
		_ = lp.out.Close()
	}
	l.each(func(c *Conn) {
		if c.isOwned() && c.loopServes() { // one that is away has been cut, and its goroutine notices
			if c.reading.pending != nil {
				_ = c.endPending(net.ErrClosed)
			}
			_ = c.Close()
		}
	})
}

// Adopt gives a plain connection that was just accepted to a loop; nc itself is
// closed. It reports false, and leaves nc alone, where that is not possible.
// gone is called once, when the connection is closed; take when the loop gives
// it up, in a goroutine of its own: it should call Serve first.
func (l *Lane) Adopt(nc net.Conn, scope *Scope, gone func(), take func(*Conn)) bool {
	if !l.on() {
		return false
	}
	if l.loopsOnce.Do(l.startLoops); len(l.loops) == 0 {
		return false
	}
	fd, ok := send.Detach(unwrapNamed(nc))
	if !ok {
		return false
	}
	slot := l.owned.slot(fd)
	if slot == nil {
		_ = unix.Close(fd)
		return false
	}
	c := &Conn{
		connHot:    connHot{lane: l, scope: scope, shard: l.serial.Add(1)},
		connLocked: connLocked{fd: fd},
		connFixed:  connFixed{peer: nc.RemoteAddr(), local: nc.LocalAddr(), onClose: gone, onLeave: take},
	}
	_ = nc.Close()
	c.onReadable = c.readable
	lp := c.ownerLoop()
	slot.Store(c)
	c.awaitFirstRequest()
	l.track(c)
	if err := lp.watch(fd, c.shard); err != nil {
		_ = c.Close() // the loop is gone, or the system has no room for another
	}
	return true
}

// watch adds a connection, of which the loop is told when there is something to
// read.
func (lp *loop) watch(fd int, shard uint32) error {
	return lp.in.Add(fd, epoll.In|epoll.PeerShut, int32(fd), shard)
}

// run is the loop's goroutine. It is started by startLoops; stopLoops waits.
func (lp *loop) run() { lp.in.Run(lp.work) }

// yieldAfter is how many connections a loop looks at before it lets others run.
// One that finds nothing waits, and they run as well, so a loop that is not busy
// is not held up: to yield costs more than to look at a connection.
const yieldAfter = 32

// work serves until there is nothing left to do. Only then may the poller wait: it
// is woken by what comes later, not by what is there already.
func (lp *loop) work() (done bool) {
	if k := lp.fwd; k != nil {
		k.asleep.Store(false)
	}
	for looked := 0; ; {
		k := lp.fwd
		if k != nil && k.some.Load() {
			lp.start()
		}
		if lp.sending > 0 {
			lp.sendWaiting()
			looked = yieldAfter
		} else {
			n := lp.poll()
			if n == 0 && (k == nil || k.maySleep()) {
				return false
			}
			looked += n
		}
		if looked >= yieldAfter {
			looked = 0
			runtime.Gosched() // under load there is always more
		}
	}
}

// poll serves the connections that have something to read, without waiting, and
// returns how many there were.
func (lp *loop) poll() int {
	n := lp.in.Poll(lp.events[:])
	for i := range n {
		lp.serve(&lp.events[i])
	}
	lp.expireCalls() // after that: what has just come is not late
	if len(lp.toFlush) > 0 {
		lp.sendReplies()
	}
	return n
}

// serve looks at one connection. The watch is level-triggered: what is left in the
// socket will be told again.
func (lp *loop) serve(event *epoll.Event) {
	fd := int(event.Key())
	if fd < 0 {
		if fd == epoll.WakeKey {
			lp.pong()
		} else {
			lp.upstreamReadable(event)
		}
		return
	}
	c := lp.lane.owned.slot(fd).Load()
	if c == nil || c.shard != event.Generation() {
		return // closed a moment ago, within the same round of events
	}
	if !c.loopServes() {
		lp.onEventWhileBusy(c, event)
		if c.call != nil && event.Events&(epoll.HungUp|epoll.Failed) != 0 {
			lp.toWorker(c.call)
		}
		return
	}
	if event.Events&epoll.PeerShut != 0 {
		c.halfClosed.Store(true)
	}
	idle := false
	if event.Events&epoll.Out != 0 && c.reading.pending == nil { // that was to make the loop look
		idle = c.idleTooLong(time.Now())
		if err := lp.in.Change(fd, epoll.In|epoll.PeerShut, int32(fd), c.shard); err != nil {
			_ = c.Close()
			return
		}
	}
	if c.wire != nil {
		lp.serveTLS(c)
	} else {
		lp.serveReadable(c)
	}
	if idle && lp.lane.owned.slot(fd).Load() == c && c.idleTooLong(time.Now()) {
		_ = c.Close() // nothing has come
	}
}

// wakeLoop has the loop look at a connection, for which it asks for room to write,
// which there is. One that waits for room will look anyway, and one that is away is
// not idle. c.mu must be held.
func (c *Conn) wakeLoop() {
	if c.loopServes() {
		_ = c.ownerLoop().in.Change(c.fd, epoll.In|epoll.Out|epoll.PeerShut, int32(c.fd), c.shard)
	}
}

// idleTooLong reports whether the connection has been idle for too long.
func (c *Conn) idleTooLong(now time.Time) bool {
	d := c.deadline.Load()
	return d&idleMark != 0 && d < now.UnixNano()
}

// serveReadable answers what has come on a connection, after what is left of an earlier
// answer.
func (lp *loop) serveReadable(c *Conn) {
	defer lp.recoverPanic(c)
	n := 0
	if c.reading.pending == nil {
		var ok bool
		var err error
		if n, ok, err = send.TryRead(uintptr(c.fd), lp.scratch.buf[:]); !ok {
			return
		}
		if n == 0 || err != nil {
			_ = c.Close()
			return
		}
	}
	lp.serveBytes(c, n)
}

// serveBytes answers the n bytes in the scratch buffer that have come on a connection,
// and those that are held.
func (lp *loop) serveBytes(c *Conn, n int) {
	s := &lp.scratch
	for {
		if c.reading.pending != nil {
			if !lp.sendPending(c) {
				return
			}
			if n = copy(s.buf[:], c.readAhead); n == 0 {
				return // the poller tells the loop of what comes from now on
			}
			c.readAhead = nil
		}
		used, o := c.answerHot(s, s.buf[:n], uintptr(c.fd))
		switch {
		case o == waiting && used == n:
			return
		case o == finished:
			_ = c.Close()
			return
		case o == blocked:
			c.readAhead = append(c.readAhead, s.buf[used:n]...) // waits behind the answer
		case o == notHot && (lp.forward(c, s.buf[used:n]) || lp.submit(c, s.buf[used:n])):
			return
		default:
			c.startHeadTimeout(n - used)
			c.readAhead = append(c.readAhead, s.buf[used:n]...)
			c.leave()
			return
		}
	}
}

// recoverPanic is Conn.guard for a connection of the loop. Nothing of a connection that
// failed may reach the next one: neither answers that were not sent yet nor its
// place among those that wait.
func (lp *loop) recoverPanic(c *Conn) {
	cause := recover()
	if cause == nil {
		return
	}
	lp.scratch = scratch{}
	if r := c.reading.pending; r != nil && r.awaitsClient {
		r.awaitsClient = false
		lp.sending--
	}
	if c.call != nil {
		lp.discardCall(c.call)
		c.setMode(loopServes)
	}
	for c.h2host != nil && len(c.h2host.calls) > 0 {
		lp.discardCall(c.h2host.calls[0])
	}
	c.closeAfterPanic(cause)
}

// leave ends a connection's time on its loop.
func (c *Conn) leave() {
	fd := c.detach()
	c.lane.leaving.Go(func() {
		defer c.recoverPanic()
		if c.toNetConn(fd) {
			if c.canServeDirect() {
				go c.serveOffLoop() // a handler may never return
			} else {
				c.onLeave(c)
			}
			return
		}
		if c.reading.pending != nil {
			_ = c.endPending(net.ErrClosed)
		}
		c.discardRoundTrip() // no handler will
		_ = c.Close()
	})
}

// detach takes the connection from its loop.
func (c *Conn) detach() (fd int) {
	_ = c.ownerLoop().in.Remove(c.fd)
	c.lane.owned.slot(c.fd).Store(nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	fd = c.fd
	c.fd = noFD
	return fd
}

// toNetConn gives the connection back to package net.
func (c *Conn) toNetConn(fd int) bool {
	f := os.NewFile(uintptr(fd), "connection")
	nc, err := net.FileConn(f)
	_ = f.Close()
	if c.wire != nil {
		return c.wireToNetConn(nc, err)
	}
	if err != nil {
		return false // no descriptors left
	}
	sock := send.NewSocket(nc, c.startWriteTimeout)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nc, c.transport, c.sock = nc, nc, sock
	if sock == nil {
		c.readWaker = newReadWaker()
	}
	return !c.cutPending
}

// closeOwned closes the descriptor of a loop-owned connection, if c is one.
func (c *Conn) closeOwned() (was bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd == noFD {
		return false
	}
	c.lane.owned.slot(c.fd).Store(nil)
	_ = unix.Close(c.fd) // leaves the epoll set by itself: there is no other reference
	if c.fd = noFD; c.wire != nil {
		c.wire.fd = goneFD
	}
	return true
}

// queued is how many bytes the client has been sent and has not yet taken.
func (c *Conn) queued() (n int, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd != noFD {
		return send.QueuedOn(c.fd)
	}
	return send.Queued(c.transport)
}

// acked is how many bytes the client has taken since it connected.
func (c *Conn) acked() (n uint64, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd != noFD {
		return send.AckedOn(c.fd)
	}
	return send.Acked(c.transport)
}

// shutdown ends a loop-owned connection from outside its loop, which then finds
// the end of the stream.
func shutdown(fd int) { _ = unix.Shutdown(fd, unix.SHUT_RDWR) }

// shutWrite tells the client of a loop-owned connection that no more comes.
func (c *Conn) shutWrite() error { return unix.Shutdown(c.fd, unix.SHUT_WR) }

func (c *Conn) isOwned() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fd != noFD
}
