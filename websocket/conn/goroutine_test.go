package conn

import (
	"bytes"
	"io"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"millrace/internal/observe/meter"
	"millrace/internal/process/servertest"
	"millrace/websocket/frame"
)

// gate is a stream whose writes wait until the test lets them go. What it is
// to read comes from a channel.
type gate struct {
	in chan []byte

	mu      sync.Mutex
	changed sync.Cond
	open    int // writes that may still go; -1: all
	waiting int // writes that wait
	wrote   bytes.Buffer
	writes  int
	closed  bool
	done    chan struct{}
}

func newGate(open int) *gate {
	g := &gate{in: make(chan []byte), open: open, done: make(chan struct{})}
	g.changed.L = &g.mu
	return g
}

func (g *gate) Read(p []byte) (int, error) {
	select {
	case b := <-g.in:
		if len(b) > len(p) {
			panic("the test sends more than is read at once")
		}
		return copy(p, b), nil
	case <-g.done:
		return 0, io.EOF
	}
}

func (g *gate) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting++
	g.changed.Broadcast()
	for g.open == 0 && !g.closed {
		g.changed.Wait()
	}
	g.waiting--
	if g.closed {
		return 0, os.ErrClosed
	}
	if g.open > 0 {
		g.open--
	}
	g.writes++
	g.wrote.Write(p)
	g.changed.Broadcast()
	return len(p), nil
}

func (g *gate) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.closed = true
		close(g.done)
	}
	g.changed.Broadcast()
	return nil
}

// until waits for a state of the gate.
func (g *gate) until(t *testing.T, what string, f func() bool) {
	t.Helper()
	servertest.Eventually(t, what, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return f()
	})
}

// stuck waits until somebody is about to write.
func (g *gate) stuck(t *testing.T) {
	t.Helper()
	g.until(t, "a write waits", func() bool { return g.waiting > 0 })
}

// let lets n more writes go.
func (g *gate) let(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = n
	g.changed.Broadcast()
}

// frames are those that were written, to the last byte.
func (g *gate) frames(t *testing.T) (list []string) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	list, rest := split(g.wrote.Bytes())
	if len(rest) > 0 {
		t.Errorf("%d bytes behind %d frames are not a frame", len(rest), len(list))
	}
	return list
}

// split takes frames apart: each is its opcode and its payload.
func split(b []byte) (list []string, rest []byte) {
	for len(b) > 0 {
		h, n, err := frame.Parse(b)
		if err != nil || n == 0 || h.Masked || int64(len(b)-n) < h.Length {
			return list, b
		}
		end := n + int(h.Length)
		list = append(list, string(rune('0'+h.Op))+string(b[n:end]))
		b = b[end:]
	}
	return list, nil
}

// gated is a connection with a goroutine whose client reads as the test says.
func gated(t *testing.T, s *Settings, open int) (*Engine, *gate, Handle) {
	t.Helper()
	e := NewEngine(nil)
	t.Cleanup(func() { _ = e.Close() })
	g := newGate(open)
	app := &handleApp{opened: make(chan Handle, 1)}
	if s.App == nil {
		s.App = app
	} else if h, ok := s.App.(*handleApp); ok {
		app = h
	}
	served := make(chan struct{})
	go func() {
		_ = e.Serve(g, s, frame.Params{}, nil)
		close(served)
	}()
	t.Cleanup(func() {
		_ = g.Close()
		<-served
		nothingLeft(t, s)
	})
	return e, g, <-app.opened
}

// nothingLeft waits until the gauges say that nothing waits and nothing is held.
func nothingLeft(t *testing.T, s *Settings) {
	t.Helper()
	servertest.Eventually(t, "nothing waits and nothing is held", func() bool {
		m := s.Meters
		return m.QueuedBytes.Load() == 0 && m.QueuedMessages.Load() == 0 && m.HeldBytes.Load() == 0
	})
}

// do calls f in the connection's turn and waits for it.
func do(h Handle, f func(c *Conn)) {
	done := make(chan struct{})
	h.Do(func(c *Conn) {
		defer close(done)
		f(c)
	})
	<-done
}

func binary(n int, fill byte) *frame.Prepared {
	return frame.Prepare(frame.Binary, bytes.Repeat([]byte{fill}, n), 0)
}

// TestTooSlowWhileWriting: what is on its way when a client is found to be too
// slow goes out whole, and behind it comes the close frame.
func TestTooSlowWhileWriting(t *testing.T) {
	s := &Settings{QueueLength: 3}
	_, g, h := gated(t, s, 0)
	do(h, func(c *Conn) { c.Deliver(binary(20, 'a')) })
	g.stuck(t)
	do(h, func(c *Conn) {
		for _, b := range "bcde" {
			c.Deliver(binary(10, byte(b)))
		}
	})
	do(h, func(*Conn) {}) // tooSlow was posted before
	g.let(-1)
	g.until(t, "the close frame", func() bool { return bytes.Contains(g.wrote.Bytes(), []byte("too slow")) })
	list := g.frames(t)
	if len(list) != 2 || list[0] != "2aaaaaaaaaaaaaaaaaaaa" {
		t.Errorf("got %q, want the message that was on its way, and a close frame", list)
	}
}

// TestTooSlowAndQuick: a client that is found to be too slow, and reads on
// before it is told, is told all the same.
func TestTooSlowAndQuick(t *testing.T) {
	s := &Settings{QueueLength: 2}
	e, g, h := gated(t, s, 0)
	do(h, func(c *Conn) { c.Deliver(binary(20, 'a')) })
	g.stuck(t)
	block, blocked := make(chan struct{}), make(chan struct{})
	e.Post(e.Runners()-1, func() { close(blocked); <-block })
	<-blocked
	for range 4 {
		h.c.Deliver(binary(10, 'b')) // any goroutine may, where the connection has one
	}
	g.let(-1)
	servertest.Eventually(t, "all was written", func() bool { return s.Meters.QueuedBytes.Load() == 0 })
	close(block)
	g.until(t, "the close frame", func() bool { return bytes.Contains(g.wrote.Bytes(), []byte("too slow")) })
	g.frames(t)
}

// TestDropOldestWhileWriting: what is on its way cannot be dropped any more.
func TestDropOldestWhileWriting(t *testing.T) {
	s := &Settings{QueueLength: 2, Overflow: DropOldest}
	_, g, h := gated(t, s, 0)
	do(h, func(c *Conn) { c.Deliver(binary(300, 'a')) })
	g.stuck(t)
	do(h, func(c *Conn) {
		for _, b := range "bcdef" {
			c.Deliver(binary(int(b), byte(b)))
		}
	})
	g.let(-1)
	servertest.Eventually(t, "all was written", func() bool { return s.Meters.QueuedBytes.Load() == 0 })
	list := g.frames(t)
	if len(list) != 2 || len(list[0]) != 301 || list[1][1] != 'f' {
		t.Errorf("got %d frames, want the one that was on its way and the newest", len(list))
	}
	if n := reasons(&s.Meters.Dropped)[droppedOldest]; n != 4 {
		t.Errorf("%d were dropped, want 4", n)
	}
}

// TestOrder: what is said in a turn goes out in the order in which it was said.
func TestOrder(t *testing.T) {
	drivers(t, func(t *testing.T, r *rig) {
		s := &Settings{MaxMessage: 100, App: orderApp{}}
		p := r.connect(s, nil, frame.Params{})
		for range 20 {
			p.send(text("go"))
			for _, want := range []string{"1", "2", "3", "4"} {
				p.want(frame.Text, want)
			}
		}
		p.send(text("end"))
		p.want(frame.Text, "1")
		p.wantClose(frame.Normal) // nothing follows
	})
}

type orderApp struct{}

func (orderApp) Open(*Conn)               {}
func (orderApp) Closed(*Conn, frame.Code) {}
func (orderApp) Message(c *Conn, _ frame.Opcode, data []byte) {
	c.Send(frame.Text, []byte("1"))
	if string(data) == "end" {
		c.Close(frame.Normal, "")
		c.Deliver(frame.Prepare(frame.Text, []byte("2"), 0))
		return
	}
	c.Deliver(frame.Prepare(frame.Text, []byte("2"), 0))
	c.Send(frame.Text, []byte("3"))
	c.Deliver(frame.Prepare(frame.Text, []byte("4"), 0))
}

// TestLargeDelivery: one message may be larger than the queue, when nothing waits.
func TestLargeDelivery(t *testing.T) {
	for _, overflow := range []Overflow{Disconnect, DropOldest} {
		s := &Settings{Queue: 10, QueueLength: 10, Overflow: overflow, MaxMessage: 100}
		_, g, h := gated(t, s, -1)
		do(h, func(c *Conn) { c.Deliver(binary(100, 'a')) })
		g.in <- text("echo")
		g.until(t, "the echo", func() bool { return bytes.HasSuffix(g.wrote.Bytes(), []byte("echo")) })
	}
}

// TestSlowButTaking: a client that takes little at a time is not one that takes
// nothing, even if what it takes is large.
func TestSlowButTaking(t *testing.T) {
	t.Parallel()
	s := &Settings{WriteTimeout: 2 * tickTime}
	_, g, h := gated(t, s, 0)
	const size = 1 << 20
	do(h, func(c *Conn) { c.Deliver(binary(size, 'a')) })
	for range 4 {
		time.Sleep(tickTime)
		g.let(1)
	}
	g.let(-1)
	g.until(t, "the whole message", func() bool { return g.wrote.Len() >= size })
	g.frames(t)
}

// TestStuckLate: a connection that was quiet for long is watched as well as a
// new one when its client stops reading.
func TestStuckLate(t *testing.T) {
	t.Parallel()
	app := &handleApp{opened: make(chan Handle, 1)}
	app.done = make(chan frame.Code, 1)
	_, g, h := gated(t, &Settings{App: app, WriteTimeout: 2 * tickTime}, 0)
	time.Sleep(3 * tickTime)
	do(h, func(c *Conn) { c.Deliver(binary(100, 'a')) })
	g.stuck(t)
	if code := <-app.done; code != frame.PolicyViolation {
		t.Errorf("the App was told %d", code)
	}
}

// TestOpenFirst: nothing is said to an App of a connection before Open.
func TestOpenFirst(t *testing.T) {
	drivers(t, func(t *testing.T, r *rig) {
		app := &firstApp{t: t, state: map[*Conn]string{}}
		s := &Settings{App: app, MaxMessage: 100}
		r.start()
		for range 8 {
			var all sync.WaitGroup
			for range 4 {
				nc, theirs := r.pair()
				all.Go(func() {
					_ = r.engine.Adopt(theirs, nil, s, frame.Params{}, nil)
					_, _ = io.Copy(io.Discard, nc)
					nc.Close()
				})
			}
			r.engine.Leave(s, frame.GoingAway, 0, 0)
			all.Go(func() {
				for s.Open() > 0 {
					r.engine.Leave(s, frame.GoingAway, 0, 0)
				}
			})
			all.Wait()
			for s.Open() > 0 {
				r.engine.Leave(s, frame.GoingAway, 0, 0)
			}
		}
	})
}

type firstApp struct {
	t     *testing.T
	mu    sync.Mutex
	state map[*Conn]string
}

func (a *firstApp) say(c *Conn, what string, after ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Contains(after, a.state[c]) {
		a.state[c] = what
		return
	}
	a.t.Errorf("%s after %q", what, a.state[c])
}

func (a *firstApp) Open(c *Conn)                              { a.say(c, "open", "", "closed") }
func (a *firstApp) Message(c *Conn, _ frame.Opcode, _ []byte) { a.say(c, "message", "open", "message") }

func (a *firstApp) Closed(c *Conn, _ frame.Code) { a.say(c, "closed", "open", "message", "leaving") }

func (a *firstApp) Leaving(c *Conn, _ frame.Code, _ time.Duration) {
	a.say(c, "leaving", "open", "message")
}

// reasons is what was counted, by reason.
func reasons(r *meter.Reasons) map[string]uint64 {
	m := map[string]uint64{}
	r.Each(func(reason string, n uint64) { m[reason] = n })
	return m
}
