package epoll

import (
	"fmt"
	"sync"
	"syscall"
)

// Parker waits for connections without a goroutine for each: a goroutine's stack is more than a
// third of the memory of an idle connection over TLS. When there is something to read, the
// connection gets a goroutine again, which reads it through TLS.
type Parker struct {
	poller *Poller

	mu   sync.Mutex   // also for the Places
	all  []parkedConn // by their number
	gens []uint32
	free []uint32
}

type parkedConn struct {
	who Parked
	at  *Place
}

// parkEvents is how many events are handled at once.
const parkEvents = 64

// NewParker returns nil if the system has no descriptor left. The methods of nil park nothing.
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
	if p.gens[number] == gen { // else it was woken just now
		p.leave(number)
	}
}

// Enter parks a connection; at is its place. It returns false if that is not possible, for
// instance because it is closed.
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

// Leave wakes a connection if it is parked: for instance one that was closed, so that its
// reader finds out.
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

// Parked returns how many connections are parked.
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
	if sock := g.who.Socket(); sock != nil { // fails if it was closed, and is not watched any more
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

// Close ends Run. Nothing is parked from then on.
func (p *Parker) Close() {
	if p != nil {
		_ = p.poller.Close()
	}
}
