package conn

import (
	"crypto/tls"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/process/servertest"
	"millrace/websocket/frame"
)

// crowd is an App whose connections are delivered to, as a hub does it, while
// everything else happens. What is said in wrong order is a fault of the test.
type crowd struct {
	t *testing.T

	mu     sync.Mutex
	conns  map[*Conn]int // on which runner
	opened int
	closed int
}

func (a *crowd) Open(c *Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, there := a.conns[c]; there {
		a.t.Error("opened twice")
	}
	a.conns[c] = c.Runner()
	a.opened++
}

func (a *crowd) Closed(c *Conn, _ frame.Code) {
	a.mu.Lock()
	if _, there := a.conns[c]; !there {
		a.t.Error("closed without having been opened")
	}
	delete(a.conns, c)
	a.closed++
	a.mu.Unlock()
	c.Send(frame.Text, []byte("too late"))
	c.Close(frame.Normal, "")
}

func (a *crowd) Message(c *Conn, op frame.Opcode, data []byte) {
	switch string(data) {
	case "panic":
		panic("as asked")
	case "bye":
		c.Send(frame.Text, []byte("bye"))
		c.Close(frame.Normal, "as asked")
	case "answer":
		c.Answer(frame.Prepare(frame.Text, []byte("answer"), 0))
	default:
		c.Send(op, data)
	}
}

func (a *crowd) Leaving(c *Conn, _ frame.Code, _ time.Duration) {
	c.Send(frame.Text, []byte("leaving"))
}

// deliver gives p to all on a runner; it is called there. A connection cannot
// close meanwhile on a loop, and may on the strand.
func (a *crowd) deliver(runner int, p *frame.Prepared) {
	a.mu.Lock()
	var list []*Conn
	for c, on := range a.conns {
		if on == runner {
			list = append(list, c)
		}
	}
	a.mu.Unlock()
	for _, c := range list {
		c.Deliver(p)
	}
}

// misbehave is a client.
func misbehave(random *rand.Rand, nc net.Conn, tcp *net.TCPConn) {
	defer nc.Close()
	size := 1 + random.IntN(5000)
	go func() {
		buf := make([]byte, size)
		for {
			if _, err := nc.Read(buf); err != nil {
				return
			}
			if len(buf) < 300 {
				time.Sleep(time.Millisecond)
			}
		}
	}()
	for range 1 + random.IntN(60) {
		var b []byte
		switch random.IntN(14) {
		case 0:
			b = packet(frame.Ping, true, false, []byte("x"))
		case 1:
			b = append(packet(frame.Binary, false, false, make([]byte, random.IntN(3000))), packet(frame.Continuation, true, false, nil)...)
		case 2:
			b = packet(frame.Binary, true, false, make([]byte, 60_000))
		case 3:
			b = text("answer")
		case 4:
			time.Sleep(time.Duration(random.IntN(5)) * time.Millisecond)
		case 5:
			switch random.IntN(24) {
			case 0:
				b = text("panic")
			case 1:
				b = text("bye")
			case 2:
				b = text("\xff")
			case 3:
				b = []byte("GET / HTTP/1.1\r\n\r\n")
			case 4:
				b = packet(frame.Close, true, false, []byte{0x03, 0xe8})
			case 5:
				_ = tcp.SetLinger(0)
				return
			case 6:
				_ = tcp.CloseWrite()
			case 7:
				return
			case 8:
				b = packet(frame.Binary, true, false, make([]byte, 70_000))
			}
		default:
			b = text("message")
		}
		if len(b) > 1 && random.IntN(3) == 0 {
			n := random.IntN(len(b))
			if _, err := nc.Write(b[:n]); err != nil {
				return
			}
			b = b[n:]
		}
		if _, err := nc.Write(b); err != nil {
			return
		}
	}
}

// TestChaos has all kinds of clients do all kinds of things while messages are
// delivered to them, and holds the books against each other in the end.
func TestChaos(t *testing.T) {
	before := descriptors()
	r := &rig{T: t}
	r.start()
	r.engine.errors = slog.New(slog.DiscardHandler) // of the panics
	app := &crowd{t: t, conns: map[*Conn]int{}}
	s := &Settings{
		App: app, MaxMessage: 1 << 16, Queue: 100_000, QueueLength: 40, Ping: tickTime, PongTimeout: 2 * tickTime,
		WriteTimeout: 2 * tickTime, Idle: 6 * tickTime, Budget: NewBudget(1 << 20),
	}
	other := &Settings{App: app, MaxMessage: 1 << 16, Overflow: DropOldest, QueueLength: 5}
	config := certificate(t)
	stop := make(chan struct{})
	var noise sync.WaitGroup
	noise.Go(func() {
		small, large := frame.Prepare(frame.Text, []byte("news"), 0), frame.Prepare(frame.Binary, make([]byte, 20_000), 0)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			for n := range r.engine.Runners() {
				p := small
				if i%20 == 0 {
					p = large
				}
				r.engine.Post(n, func() { app.deliver(n, p) })
			}
		}
	})
	var clients sync.WaitGroup
	var began atomic.Int64
	for i := range 6 {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 7))
			for n := range 25 {
				set := s
				if n%3 == 0 {
					set = other
				}
				began.Add(1)
				r.client(random, config, set)
			}
		})
	}
	clients.Wait()
	r.engine.Leave(other, frame.GoingAway, time.Second, 0)
	r.engine.Leave(s, frame.GoingAway, time.Second, 100*time.Millisecond)
	close(stop)
	noise.Wait()
	nothingLeft(t, s)
	nothingLeft(t, other)
	if int64(app.opened) != began.Load() || app.opened != app.closed {
		t.Errorf("%d clients, %d opened, %d closed", began.Load(), app.opened, app.closed)
	}
	ends := uint64(0)
	for _, set := range []*Settings{s, other} {
		set.Meters.Closed.Each(func(_ string, n uint64) { ends += n })
	}
	if ends != uint64(app.opened) {
		t.Errorf("%d ends are counted of %d: %v, %v", ends, app.opened, reasons(&s.Meters.Closed), reasons(&other.Meters.Closed))
	}
	if left := s.Budget.left.Load(); left != 1<<20 {
		t.Errorf("%d bytes of the budget are left", left)
	}
	if err := r.engine.Close(); err != nil {
		t.Error(err)
	}
	r.ln.Close()
	servertest.Eventually(t, "all descriptors are closed", func() bool { return descriptors() <= before })
}

// client connects one and lets it do what it will.
func (r *rig) client(random *rand.Rand, config *tls.Config, s *Settings) {
	accepted := make(chan net.Conn, 1)
	r.accepting.Lock() // who dials gets the next that is accepted
	go func() {
		nc, _ := r.ln.Accept()
		accepted <- nc
	}()
	ours, err := net.Dial("tcp", r.ln.Addr().String())
	theirs := <-accepted
	r.accepting.Unlock()
	if err != nil || theirs == nil {
		r.Errorf("connecting: %v", err)
		return
	}
	tcp, _ := ours.(*net.TCPConn)
	switch random.IntN(3) {
	case 0:
		theirs = hidden{theirs}
	case 1:
		ours, theirs = secure(r.T, config, ours, theirs)
	}
	if err := r.engine.Adopt(theirs, nil, s, frame.Params{}, nil); err != nil {
		r.Error(err)
	}
	misbehave(random, ours, tcp)
}

func descriptors() int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(list)
}
