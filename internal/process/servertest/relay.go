package servertest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Relay is the network between a client and a server. A test can cut it.
type Relay struct {
	to       string
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex
	state relayState
	conns map[net.Conn]struct{}
}

type relayState int

const (
	relayPasses relayState = iota
	relayRefuses
	relayLoses
)

// NewRelay passes connections on to the TCP address to, until the test's end.
func NewRelay(t testing.TB, to string) *Relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{to: to, listener: l, conns: map[net.Conn]struct{}{}}
	r.running.Go(r.accept)
	t.Cleanup(func() {
		_ = l.Close()
		r.set(relayRefuses)
		r.running.Wait()
	})
	return r
}

// Addr is where clients connect to.
func (r *Relay) Addr() string { return r.listener.Addr().String() }

// Refuse closes all connections, and each new one.
func (r *Relay) Refuse() { r.set(relayRefuses) }

// Lose has nothing pass any more, of new connections neither, as if packets were lost. What
// was on its way does not arrive later either: Heal closes those connections.
func (r *Relay) Lose() { r.set(relayLoses) }

// Heal has new connections pass again.
func (r *Relay) Heal() { r.set(relayPasses) }

func (r *Relay) set(s relayState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = s
	if s == relayLoses {
		return
	}
	for c := range r.conns {
		_ = c.Close()
	}
	clear(r.conns)
}

func (r *Relay) accept() {
	for {
		from, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		switch r.state {
		case relayRefuses:
			_ = from.Close()
		case relayLoses:
			r.conns[from] = struct{}{} // until it heals
		default:
			if to, err := net.Dial("tcp", r.to); err != nil {
				_ = from.Close()
			} else {
				r.conns[from], r.conns[to] = struct{}{}, struct{}{}
				r.running.Go(func() { r.pass(from, to) })
				r.running.Go(func() { r.pass(to, from) })
			}
		}
		r.mu.Unlock()
	}
}

// pass copies one direction while nothing is lost.
func (r *Relay) pass(from, to net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if r.loses() {
			_, _ = io.Copy(io.Discard, from) // to its end
			return
		}
		if n > 0 {
			_, werr := to.Write(buf[:n])
			if err == nil {
				err = werr
			}
		}
		if err != nil {
			_ = from.Close()
			_ = to.Close()
			return
		}
	}
}

func (r *Relay) loses() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state == relayLoses
}
