package conn

import (
	"fmt"
	"sync"
	"syscall"
	"time"

	"millrace/internal/epoll"
)

// parker waits for connections that have a goroutine only while they are busy. A
// loop cannot read TLS, but it sees when there is something to read. Until then
// such a connection needs no stack, which is more than a third of its memory.
type parker struct {
	poller *epoll.Poller
	after  time.Duration // parkAfter; a test's own

	mu    sync.Mutex // also for goroutineDriver.parked and place
	conns []*Conn    // by their number
	gens  []uint32
	free  []uint32
}

// parkEvents is how many connections are woken at once.
const parkEvents = 64

// newParker returns nil where the system has no descriptors left: nothing is parked then.
func newParker() *parker {
	p, err := epoll.NewPoller()
	if err != nil {
		return nil
	}
	return &parker{poller: p, after: parkAfter}
}

// run is the parker's goroutine. It is started by NewEngine and ends with close.
func (n *parker) run() {
	var events [parkEvents]epoll.Event
	n.poller.Run(func() (done bool) {
		for {
			k := n.poller.Poll(events[:])
			if k == 0 {
				return false
			}
			for i := range k {
				if c := n.at(uint32(events[i].Key()), events[i].Generation()); c != nil {
					n.wake(c.driver)
				}
			}
		}
	})
}

func (n *parker) at(number, gen uint32) *Conn {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gens[number] != gen {
		return nil // woken a moment ago
	}
	return n.conns[number]
}

// enter begins to wait for a connection. It reports false where that is not
// possible.
func (n *parker) enter(c *Conn, sock syscall.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.free) == 0 {
		n.conns, n.gens = append(n.conns, nil), append(n.gens, 0)
		n.free = append(n.free, uint32(len(n.conns)-1))
	}
	number := n.free[len(n.free)-1]
	watch := func(fd int) error {
		return n.poller.Add(fd, epoll.In|epoll.PeerShut|epoll.OneShot, int32(number), n.gens[number])
	}
	if err := control(sock, watch); err != nil {
		return false
	}
	n.free = n.free[:len(n.free)-1]
	n.conns[number] = c
	c.driver.parked, c.driver.place = true, number
	return true
}

// wake has a connection read on, if it is parked: because something came, or
// because it was closed, which its reader has to find out.
func (n *parker) wake(o *goroutineDriver) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !o.parked {
		return
	}
	c := n.conns[o.place]
	o.parked = false
	n.conns[o.place] = nil
	n.gens[o.place]++
	n.free = append(n.free, o.place)
	if sock := o.watchable(); sock != nil { // of one that was closed it fails: it is not watched any more
		_ = control(sock, n.poller.Remove)
	}
	go o.read(c) // ends with finish or when it is parked again; Close waits for the former
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

// close ends run. Nothing is parked any more.
func (n *parker) close() { _ = n.poller.Close() }
