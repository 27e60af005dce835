package lane

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"millrace/internal/send"
)

const (
	// loopEvents is how many connections a loop is told of at once.
	loopEvents = 256
	// guestChunk and guestChunks bound the table of guests, by descriptor
	// number: a million, allocated a thousand at a time.
	guestChunk  = 1 << 10
	guestChunks = 1 << 10
)

// loop serves guests: plain connections that have asked for nothing but hot
// answers so far. They have no goroutine and no buffer, only a Conn. All are
// served on the loop's own stack and scratch, which stay in the cache; at a
// thousand connections that is worth a quarter of the time of a goroutine
// each (docs/decisions/0004). The first request that is for
// net/http, and the first answer that has to wait, ends a connection's time as
// a guest for good.
//
// A loop's epoll descriptor is itself waited for through Go's poller, so that
// an idle loop holds no thread.
type loop struct {
	lane    *Lane
	epoll   *os.File
	raw     syscall.RawConn
	fd      int
	events  [loopEvents]unix.EpollEvent
	n       int
	scratch scratch
}

// guests finds a guest by its descriptor.
type guests struct {
	chunks [guestChunks]atomic.Pointer[[guestChunk]atomic.Pointer[Conn]]
}

func (g *guests) slot(fd int) *atomic.Pointer[Conn] {
	if fd < 0 || fd >= guestChunk*guestChunks {
		return nil
	}
	chunk := &g.chunks[fd/guestChunk]
	if chunk.Load() == nil {
		chunk.CompareAndSwap(nil, new([guestChunk]atomic.Pointer[Conn]))
	}
	return &chunk.Load()[fd%guestChunk]
}

// startLoops starts a loop for each core. They end with stopLoops. Where the
// system has no descriptors left for them there are none, and every
// connection has a goroutine.
func (l *Lane) startLoops() {
	for range runtime.GOMAXPROCS(0) {
		lp, err := newLoop(l)
		if err != nil {
			return
		}
		l.loops = append(l.loops, lp)
		l.looping.Go(lp.run)
	}
}

func newLoop(l *Lane) (*loop, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create an epoll descriptor: %w", err)
	}
	// Go's poller takes only descriptors that do not block. This one never
	// does: it is only read with a timeout of zero.
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("prepare an epoll descriptor: %w", err)
	}
	lp := &loop{lane: l, epoll: os.NewFile(uintptr(fd), "epoll"), fd: fd}
	if lp.raw, err = lp.epoll.SyscallConn(); err == nil {
		err = lp.epoll.SetReadDeadline(time.Time{}) // fails where the poller does not take it
	}
	if err != nil {
		_ = lp.epoll.Close()
		return nil, fmt.Errorf("wait for an epoll descriptor: %w", err)
	}
	return lp, nil
}

// stopLoops ends the loops, each when it finds nothing to do: every connection
// must have been cut. Guests that are still open are closed.
func (l *Lane) stopLoops() {
	l.started.Do(func() {}) // none may start any more
	for _, lp := range l.loops {
		_ = lp.epoll.Close()
	}
	l.looping.Wait()
	l.each(func(c *Conn) {
		if c.isGuest() {
			_ = c.Close()
		}
	})
}

// Adopt makes a guest of a plain connection that was just accepted, nc itself
// is closed. It reports false, and leaves nc alone, where that is not possible.
// gone is called once, when the connection is closed; pass when its time as a
// guest is over, in a goroutine of its own: it should call Serve first.
func (l *Lane) Adopt(nc net.Conn, scope *Scope, gone func(), pass func(*Conn)) bool {
	if !l.on() {
		return false
	}
	if l.started.Do(l.startLoops); len(l.loops) == 0 {
		return false
	}
	fd, ok := send.Detach(nc)
	if !ok {
		return false
	}
	slot := l.guests.slot(fd)
	if slot == nil {
		_ = unix.Close(fd)
		return false
	}
	c := &Conn{lane: l, scope: scope, gone: gone, pass: pass, peer: nc.RemoteAddr(), shard: l.serial.Add(1), fd: fd}
	_ = nc.Close()
	c.onReadable = c.readable
	lp := l.loops[int(c.shard)%len(l.loops)]
	slot.Store(c)
	c.awaitFirst()
	l.track(c)
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(fd), Pad: int32(c.shard)}
	if err := unix.EpollCtl(lp.fd, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		_ = c.Close() // the loop is gone, or the system has no room for another
	}
	return true
}

// run is the loop's goroutine. It is started by startLoops; stopLoops waits.
// All is done within the poller's callback: as long as that runs, the
// descriptor cannot be closed, and its number not be given to another file.
func (lp *loop) run() { _ = lp.raw.Read(lp.work) }

// work serves until there is nothing to do: only then may the poller wait,
// which learns of what comes later, but not of what is there.
func (lp *loop) work(uintptr) (done bool) {
	for {
		if lp.poll(); lp.n == 0 {
			return false
		}
		for i := range lp.n {
			lp.serve(&lp.events[i])
		}
		runtime.Gosched() // under load there is always more; let others run
	}
}

// poll asks which guests have something to read, without waiting.
func (lp *loop) poll() {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(lp.fd), uintptr(unsafe.Pointer(&lp.events[0])), loopEvents, 0, 0, 0)
	if lp.n = int(n); errno != 0 {
		lp.n = 0
	}
}

// serve looks at one guest. The watch is level-triggered: what is left in the
// socket will be told again.
func (lp *loop) serve(event *unix.EpollEvent) {
	fd := int(event.Fd)
	c := lp.lane.guests.slot(fd).Load()
	if c == nil || c.shard != uint32(event.Pad) {
		return // closed a moment ago, within the same round of events
	}
	lp.look(c)
}

func (lp *loop) look(c *Conn) {
	defer c.guard()
	s := &lp.scratch
	n, ok, err := send.TryRead(uintptr(c.fd), s.buf[:])
	if !ok {
		return
	}
	if n == 0 || err != nil {
		_ = c.Close()
		return
	}
	used, o := c.answer(s, s.buf[:n], uintptr(c.fd))
	switch {
	case o == waiting && used == n:
	case o == finished:
		_ = c.Close()
	default:
		c.beginHead(n - used)
		c.held = append(c.held, s.buf[used:n]...)
		c.leave(lp)
	}
}

// leave ends a connection's time as a guest.
func (c *Conn) leave(lp *loop) {
	_ = unix.EpollCtl(lp.fd, unix.EPOLL_CTL_DEL, c.fd, nil)
	c.lane.guests.slot(c.fd).Store(nil)
	c.mu.Lock()
	fd := c.fd
	c.fd = noFD
	c.mu.Unlock()
	c.lane.leaving.Go(func() {
		defer c.guard()
		if c.settle(fd) {
			c.pass(c)
		} else {
			_ = c.Close()
		}
	})
}

// settle gives the connection back to package net.
func (c *Conn) settle(fd int) bool {
	f := os.NewFile(uintptr(fd), "guest")
	nc, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		return false // no descriptors left
	}
	sock := send.NewSocket(nc, c.stalled)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nc, c.under, c.sock = nc, nc, sock
	if sock == nil {
		c.wake = newWake()
	}
	return !c.doomed
}

// closeGuest closes a guest's descriptor, if it is one.
func (c *Conn) closeGuest() (was bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd == noFD {
		return false
	}
	c.lane.guests.slot(c.fd).Store(nil)
	_ = unix.Close(c.fd) // leaves the epoll set by itself: there is no other reference
	c.fd = noFD
	return true
}

// shutdown ends a guest's connection from outside its loop, which then finds
// the end of the stream.
func shutdown(fd int) { _ = unix.Shutdown(fd, unix.SHUT_RDWR) }
