package epoll

import (
	"fmt"
	"sync"
	"syscall"
)

// Parker waits for connections without a goroutine for each. What is behind TLS
// cannot be read by a loop, but it shows when there is something to read. Until
// then such a connection needs no stack, which is more than a third of its memory.
type Parker struct {
	poller *Poller

	mu   sync.Mutex   // also for Place
	all  []parkedConn // by their number
	gens []uint32
	free []uint32
}

type parkedConn struct {
	who Parked
	at  *Place
}

// parkEvents is how many connections are woken at once.
const parkEvents = 64

// NewParker returns nil where the system has no descriptors left: nothing is
// parked then. All methods take nil.
func NewParker() *Parker {
	p, err := NewPoller()
	if err != nil {
		return nil
	}
	return &Parker{poller: p}
}

// Run is the parker's goroutine. It ends with Close.
func (p *Parker) Run() {
	if p == nil {
		return
	}
	var events [parkEvents]Event
	p.poller.Run(func() (done bool) {
		for {
			k := p.poller.Poll(events[:])
			if k == 0 {
				return false
			}
			for i := range k {
				p.ready(uint32(events[i].Key()), events[i].Generation())
			}
		}
	})
}

func (p *Parker) ready(number, gen uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gens[number] == gen { // else it was woken a moment ago
		p.leave(number)
	}
}

// Enter begins to wait for a connection; at is its place. It reports false where
// that is not possible, as with one that is closed.
func (p *Parker) Enter(at *Place, who Parked) bool {
	if p == nil {
		return false
	}
	sock := who.Socket()
	if sock == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 {
		p.all, p.gens = append(p.all, parkedConn{}), append(p.gens, 0)
		p.free = append(p.free, uint32(len(p.all)-1))
	}
	number := p.free[len(p.free)-1]
	watch := func(fd int) error {
		return p.poller.Add(fd, In|PeerShut|OneShot, int32(number), p.gens[number])
	}
	if err := control(sock, watch); err != nil {
		return false
	}
	p.free = p.free[:len(p.free)-1]
	p.all[number] = parkedConn{who, at}
	at.number, at.in = number, true
	return true
}

// Leave wakes a connection, if it is parked: because it was closed, for example,
// which its reader has to find out.
func (p *Parker) Leave(at *Place) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if at.in {
		p.leave(at.number)
	}
}

// Parked is how many connections are parked.
func (p *Parker) Parked() int {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.all) - len(p.free)
}

func (p *Parker) leave(number uint32) {
	g := p.all[number]
	g.at.in = false
	p.all[number] = parkedConn{}
	p.gens[number]++
	p.free = append(p.free, number)
	if sock := g.who.Socket(); sock != nil { // of one that was closed it fails: it is not watched any more
		_ = control(sock, p.poller.Remove)
	}
	g.who.Awake()
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

// Close ends Run. Nobody is parked any more.
func (p *Parker) Close() {
	if p != nil {
		_ = p.poller.Close()
	}
}
