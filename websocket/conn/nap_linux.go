package conn

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// napper waits for connections that have a goroutine of their own when they
// are not quiet. TLS cannot be read by a loop, but a loop sees that there is
// something to read: until then nobody needs a stack for it, which is more than
// a third of what such a connection takes.
type napper struct {
	epoll *os.File
	raw   syscall.RawConn
	fd    int
	after time.Duration // napAfter; a test's own

	mu    sync.Mutex // also for own.napping and own.nap
	conns []*Conn    // by their number
	gens  []uint32
	free  []uint32
}

// napEvents is how many connections are woken at once.
const napEvents = 64

// newNapper returns nil where the system has no descriptors left: nobody naps then.
func newNapper() *napper {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil
	}
	_ = unix.SetNonblock(fd, true) // for Go's poller; see loop
	n := &napper{epoll: os.NewFile(uintptr(fd), "epoll"), fd: fd, after: napAfter}
	if n.raw, err = n.epoll.SyscallConn(); err == nil {
		err = n.epoll.SetReadDeadline(time.Time{})
	}
	if err != nil {
		_ = n.epoll.Close()
		return nil
	}
	return n
}

// run is the napper's goroutine. It is started by NewEngine and ends with close.
func (n *napper) run() {
	_ = n.raw.Read(func(uintptr) bool {
		var events [napEvents]unix.EpollEvent
		for {
			k, err := unix.EpollWait(n.fd, events[:], 0)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || k == 0 {
				return false
			}
			for _, e := range events[:k] {
				if c := n.at(uint32(e.Fd), uint32(e.Pad)); c != nil {
					n.rouse(c.own)
				}
			}
		}
	})
}

func (n *napper) at(number, gen uint32) *Conn {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gens[number] != gen {
		return nil // woken a moment ago
	}
	return n.conns[number]
}

// enter begins to wait for a connection. It reports false where that is not
// possible.
func (n *napper) enter(c *Conn, bed syscall.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.free) == 0 {
		n.conns, n.gens = append(n.conns, nil), append(n.gens, 0)
		n.free = append(n.free, uint32(len(n.conns)-1))
	}
	number := n.free[len(n.free)-1]
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: int32(number), Pad: int32(n.gens[number])}
	if err := control(bed, func(fd int) error { return unix.EpollCtl(n.fd, unix.EPOLL_CTL_ADD, fd, &event) }); err != nil {
		return false
	}
	n.free = n.free[:len(n.free)-1]
	n.conns[number] = c
	c.own.napping, c.own.nap = true, number
	return true
}

// rouse has a connection read on, if it naps: because something came, or
// because it was closed, which its reader has to find out.
func (n *napper) rouse(o *own) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !o.napping {
		return
	}
	c := n.conns[o.nap]
	o.napping = false
	n.conns[o.nap] = nil
	n.gens[o.nap]++
	n.free = append(n.free, o.nap)
	if bed := o.bed(); bed != nil { // of one that was closed it fails: it is not watched any more
		_ = control(bed, func(fd int) error { return unix.EpollCtl(n.fd, unix.EPOLL_CTL_DEL, fd, nil) })
	}
	go o.read(c) // ends with finish or another nap; Close waits for the former
}

func control(nc syscall.Conn, f func(fd int) error) error {
	raw, err := nc.SyscallConn()
	if err != nil {
		return fmt.Errorf("reaching a descriptor: %w", err)
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return fmt.Errorf("reaching a descriptor: %w", err)
	}
	return failed
}

// close ends run. Nobody naps any more.
func (n *napper) close() { _ = n.epoll.Close() }
