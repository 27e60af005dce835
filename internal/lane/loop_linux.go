package lane

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"millrace/internal/wire/epoll"
	"millrace/internal/wire/send"
)

const (
	// loopEvents is how many events epoll returns at once.
	loopEvents = 256
	// ownedChunk and ownedChunks bound the table of connections by descriptor: a
	// million, allocated a thousand at a time.
	ownedChunk  = 1 << 10
	ownedChunks = 1 << 10
)

// loop is an event loop, which serves many connections on one goroutine. They have no
// goroutine and no buffer of their own, only a Conn: the loop's stack and scratch stay in
// the processor's cache. At a thousand connections that saves a quarter of the time of a
// goroutine for each (docs/decisions/0004). What a client does not take at once the loop
// sends when the socket has room again. A connection leaves its loop for a goroutine when
// that must wait: with a request for net/http, with a file that must be read from the disk
// (docs/decisions/0021), with a handler whose client takes its answer slowly.
//
// The same goes for connections over TLS, with a [Wire] below TLS (loop_wire_linux.go).
//
// epoll watches a connection with its descriptor as the key and its shard as the
// generation.
type loop struct {
	lane     *Lane
	in       *epoll.Poller // connections from which the loop reads
	events   [loopEvents]epoll.Event
	sending  int        // how many connections are in out
	out      *epoll.Set // connections with a pending answer, and in itself
	writable [loopEvents]epoll.Event
	scratch  scratch
	number   int
	fwd      *forwarding // nil: nothing was forwarded yet
	toFlush  []*Conn     // of HTTP/2, with answers to be written after all events of a poll
	waker    *epoll.Waker
	pings    chan chan struct{} // from Lane.CheckLoops; the loop closes what it gets
}

// ownedConns finds a loop's connection by its descriptor.
type ownedConns struct {
	chunks [ownedChunks]atomic.Pointer[[ownedChunk]atomic.Pointer[Conn]]
}

// slot returns the place for a descriptor; nil if its number is too large.
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

// startLoops starts a loop for each core, which stopLoops ends. If the system has no
// descriptors left for them there are fewer or none. With none, every connection has a
// goroutine.
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

// stopLoops ends the loops, each when it has nothing to do: every connection must have been
// cut before. It closes those of their connections that are still open.
func (l *Lane) stopLoops() {
	l.loopsOnce.Do(func() {}) // from here on none can start
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
		if c.isOwned() && c.loopServes() { // of the others, which were cut, somebody else finds out
			if c.reading.pending != nil {
				_ = c.endPending(net.ErrClosed)
			}
			_ = c.Close()
		}
	})
}

// Adopt gives a plain connection that was just accepted to a loop, which gets a duplicate of
// its descriptor; nc itself is closed. It returns false, and leaves nc alone, where that is
// not possible. gone is called once, when the connection is closed. take is called in a
// goroutine of its own when the connection leaves its loop; it should first call Serve.
func (l *Lane) Adopt(nc net.Conn, scope *Scope, gone func(), take func(*Conn)) bool {
	fd, ok := send.Detach(unwrapNamed(nc))
	if !ok {
		return false
	}
	if !l.AdoptSocket(fd, nc.RemoteAddr(), nc.LocalAddr(), scope, gone, take) {
		_ = unix.Close(fd)
		return false
	}
	_ = nc.Close()
	return true
}

// AdoptSocket is Adopt for a non-blocking socket that was just accepted and that Go's poller
// does not have. The loop owns it from then on.
func (l *Lane) AdoptSocket(fd int, peer, local net.Addr, scope *Scope, gone func(), take func(*Conn)) bool {
	if !l.on() {
		return false
	}
	if l.loopsOnce.Do(l.startLoops); len(l.loops) == 0 {
		return false
	}
	slot := l.owned.slot(fd)
	if slot == nil {
		return false
	}
	c := &Conn{
		connHot:    connHot{lane: l, scope: scope, shard: l.serial.Add(1)},
		connLocked: connLocked{fd: fd},
		connFixed:  connFixed{peer: peer, local: local, onClose: gone, onLeave: take},
	}
	c.onReadable = c.readable
	lp := c.ownerLoop()
	slot.Store(c)
	c.awaitFirstRequest()
	l.track(c)
	if err := lp.watch(fd, c.shard); err != nil {
		_ = c.Close() // the loop has ended, or epoll has no room for another
	}
	return true
}

// watch has epoll tell the loop when there is something to read on a connection.
func (lp *loop) watch(fd int, shard uint32) error {
	return lp.in.Add(fd, epoll.In|epoll.PeerShut, int32(fd), shard)
}

// run is the loop's goroutine. startLoops starts it and stopLoops waits for it.
func (lp *loop) run() { lp.in.Run(lp.work) }

// yieldAfter is how many events a busy loop handles before it lets other goroutines run. To
// yield costs more than to handle an event. A loop that is not busy soon waits, which lets
// them run as well.
const yieldAfter = 32

// work serves until there is nothing left to do. Only then may the poller wait, as it is not
// woken for events that are there already.
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
			runtime.Gosched() // under load there are always more events
		}
	}
}

// poll handles the events that are there, without waiting, and returns how many it got.
func (lp *loop) poll() int {
	n := lp.in.Poll(lp.events[:])
	if lp.fwd != nil {
		lp.fwd.lines.noteIdle(lp.events[:n])
	}
	for i := range n {
		lp.serve(&lp.events[i])
	}
	lp.expireCalls() // afterwards, since what has just come is not late
	if len(lp.toFlush) > 0 {
		lp.sendReplies()
	}
	return n
}

// serve handles one event. Connections are watched level-triggered: epoll tells again of
// what is left in the socket.
func (lp *loop) serve(event *epoll.Event) {
	fd := int(event.Key())
	if fd < 0 {
		switch {
		case fd == epoll.WakeKey:
			lp.pong()
		case event.Events != 0:
			lp.upstreamReadable(event)
		}
		return
	}
	c := lp.lane.owned.slot(fd).Load()
	if c == nil || c.shard != event.Generation() {
		return // it was closed within the same poll
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
	if event.Events&epoll.Out != 0 && c.reading.pending == nil { // see wakeLoop
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
		_ = c.Close() // nothing has come on it
	}
}

// wakeLoop has the loop serve a connection: it watches for room to write, which there is. If
// the connection waits for room, the loop serves it anyway; if the loop only watches it, it
// is not idle. c.mu must be held.
func (c *Conn) wakeLoop() {
	if c.loopServes() {
		_ = c.ownerLoop().in.Change(c.fd, epoll.In|epoll.Out|epoll.PeerShut, int32(c.fd), c.shard)
	}
}

// idleTooLong reports whether the idle timeout has passed.
func (c *Conn) idleTooLong(now time.Time) bool {
	d := c.deadline.Load()
	return d&idleMark != 0 && d < now.UnixNano()
}

// serveReadable sends what is pending of an earlier answer, and then serves the requests that
// have come.
func (lp *loop) serveReadable(c *Conn) {
	defer lp.recoverPanic(c)
	n := 0
	switch {
	case c.reading.pending != nil:
	case len(c.readAhead) > 0: // see Conn.resume
		n, c.readAhead = copy(lp.scratch.buf[:], c.readAhead), nil
	default:
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

// serveBytes serves the requests in the first n bytes of the scratch buffer, or in readAhead
// after a pending answer.
func (lp *loop) serveBytes(c *Conn, n int) {
	s := &lp.scratch
	for {
		if c.reading.pending != nil {
			if !lp.sendPending(c) {
				return
			}
			if n = copy(s.buf[:], c.readAhead); n == 0 {
				return // epoll tells of what comes from now on
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
		case o == notHot && lp.pass(c, s.buf[used:n], false):
			return
		default:
			c.startHeadTimeout(n - used)
			c.readAhead = append(c.readAhead, s.buf[used:n]...)
			c.leave()
			return
		}
	}
}

// recoverPanic is Conn.recoverPanic for a connection of the loop. It also clears what the
// loop has of that connection, so that nothing of it reaches another one.
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

// leave has the connection leave its loop: onLeave gets it, in a goroutine of its own.
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
		c.discardStarted() // no handler will go on with it
		_ = c.Close()
	})
}

// detach takes the descriptor from the loop, which does not know the connection any more.
func (c *Conn) detach() (fd int) {
	_ = c.ownerLoop().in.Remove(c.fd)
	c.lane.owned.slot(c.fd).Store(nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	fd = c.fd
	c.fd = noFD
	return fd
}

// toLoop gives a connection back to the loop that it has left, if there is one: nothing of a
// request has come, and everything is sent. It reports false where that is not possible.
func (c *Conn) toLoop() bool {
	if c.onLeave == nil || c.fd != noFD || !c.lane.on() || c.startedOnLoop() || len(c.readAhead) > 0 || !c.tracker.clean() ||
		c.state.load() != stateReading || c.reading.pending != nil || c.ownerLoop() == nil {
		return false
	}
	c.stopWatching()
	fd, ok := c.takeDescriptor()
	if !ok {
		return false
	}
	c.reading = readState{}
	c.setMode(loopServes)
	lp := c.ownerLoop()
	c.lane.owned.slot(fd).Store(c)
	events := uint32(epoll.In | epoll.PeerShut)
	if c.wire != nil {
		events |= epoll.Out // as in TLSConn.adopt
	}
	if err := lp.in.Add(fd, events, int32(fd), c.shard); err != nil {
		_ = c.Close()
	}
	return true
}

// takeDescriptor moves the descriptor from the net.Conn to the loop.
func (c *Conn) takeDescriptor() (fd int, ok bool) {
	if c.wire != nil {
		return c.detachWire(c.wire)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cutPending || c.nc == nil {
		return 0, false
	}
	if fd, ok = c.detachNet(c.nc); ok {
		c.nc, c.transport, c.sock, c.readWaker, c.fd = nil, nil, nil, nil, fd
	}
	return fd, ok
}

// detachNet takes the descriptor of a net.Conn, which is closed.
func (c *Conn) detachNet(nc net.Conn) (fd int, ok bool) {
	if fd, ok = send.Detach(nc); !ok { // it may have been cut
		return 0, false
	}
	if c.lane.owned.slot(fd) == nil {
		_ = unix.Close(fd)
		return 0, false
	}
	_ = nc.Close()
	return fd, true
}

// toNetConn makes a net.Conn of a descriptor that was detached. It returns false if the
// system has no descriptor left for that, or the connection was cut.
func (c *Conn) toNetConn(fd int) bool {
	f := os.NewFile(uintptr(fd), "connection")
	nc, err := net.FileConn(f)
	_ = f.Close()
	if c.wire != nil {
		return c.wireToNetConn(nc, err)
	}
	if err != nil {
		return false
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

// closeOwned closes the descriptor, if a loop owns the connection.
func (c *Conn) closeOwned() (was bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd == noFD {
		return false
	}
	c.lane.owned.slot(c.fd).Store(nil)
	if c.wire != nil {
		c.wire.gone()
	}
	_ = unix.Close(c.fd) // epoll forgets it, as there is no duplicate
	c.fd = noFD
	return true
}

// queued returns how many bytes are in the socket that the client has not taken.
func (c *Conn) queued() (n int, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd != noFD {
		return send.QueuedOn(c.fd)
	}
	return send.Queued(c.transport)
}

// acked returns how many bytes the client has acknowledged since it connected.
func (c *Conn) acked() (n uint64, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd != noFD {
		return send.AckedOn(c.fd)
	}
	return send.Acked(c.transport)
}

// shutdown ends a loop's connection from another goroutine: the loop reads the end of the
// stream and closes it.
func shutdown(fd int) { _ = unix.Shutdown(fd, unix.SHUT_RDWR) }

// shutWrite closes the sending side of a loop's connection.
func (c *Conn) shutWrite() error { return unix.Shutdown(c.fd, unix.SHUT_WR) }

// isOwned reports whether a loop owns the connection.
func (c *Conn) isOwned() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fd != noFD
}
