package conn

import (
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/internal/process/servertest"
	"millrace/websocket/frame"
)

// scripted is an App whose methods do what the test says.
type scripted struct {
	open, message func(c *Conn)
	leaving       func(c *Conn)
	closed        func(c *Conn)
	done          chan frame.Code
}

func call(f func(c *Conn), c *Conn) {
	if f != nil {
		f(c)
	}
}

func (a *scripted) Open(c *Conn) { call(a.open, c) }

func (a *scripted) Message(c *Conn, _ frame.Opcode, _ []byte) { call(a.message, c) }

func (a *scripted) Leaving(c *Conn, _ frame.Code, _ time.Duration) { call(a.leaving, c) }

func (a *scripted) Closed(c *Conn, code frame.Code) {
	defer func() { a.done <- code }()
	call(a.closed, c)
}

// quiet is a rig whose panics are nobody's business.
func (r *rig) quiet() *rig {
	q := &rig{T: r.T, hide: r.hide}
	q.start()
	q.engine.errors = slog.New(slog.DiscardHandler)
	return q
}

// TestPanics: a mistake in any method of an App costs its connection, and
// nothing else.
func TestPanics(t *testing.T) {
	mistake := func(*Conn) { panic("as asked") }
	for name, app := range map[string]*scripted{
		"open":    {open: mistake},
		"message": {message: mistake},
		"leaving": {leaving: mistake},
		"closed":  {closed: mistake},
		"late": {message: func(c *Conn) {
			c.Send(frame.Text, []byte(strings.Repeat("x", 100_000)))
			c.Deliver(binary(1000, 'x'))
			panic("with output")
		}},
		"do": {open: func(c *Conn) { c.Handle().Do(mistake) }},
	} {
		t.Run(name, func(t *testing.T) {
			drivers(t, func(t *testing.T, r *rig) {
				r = r.quiet()
				app := *app
				app.done = make(chan frame.Code, 1)
				s := &Settings{App: &app, MaxMessage: 100}
				p := r.connect(s, nil, frame.Params{})
				_, _ = p.Write(text("x"))
				switch name {
				case "leaving":
					r.engine.Leave(s, frame.GoingAway, 0, 0)
				case "closed":
					_, _ = p.Write(packet(frame.Close, true, false, nil))
					_, _ = io.Copy(io.Discard, p.TCPConn)
					p.Close()
				}
				<-app.done
				_, _ = io.Copy(io.Discard, p.TCPConn)
				nothingLeft(t, s)
				servertest.Eventually(t, "it is gone", func() bool { return s.Open() == 0 })
				good := r.connect(&Settings{App: &echoApp{}, MaxMessage: 100}, nil, frame.Params{})
				good.send(text("fine"))
				good.want(frame.Text, "fine")
			})
		})
	}
}

// TestPanicPosted: a mistake in what somebody has posted ends nothing.
func TestPanicPosted(t *testing.T) {
	r := (&rig{T: t}).quiet()
	for i := range r.engine.Runners() {
		r.engine.Post(i, func() { panic("as asked") })
		done := make(chan struct{})
		r.engine.Post(i, func() { close(done) })
		<-done
	}
}

// TestCloseInOpen: an App may send and close at once.
func TestCloseInOpen(t *testing.T) {
	drivers(t, func(t *testing.T, r *rig) {
		app := &scripted{done: make(chan frame.Code, 1), open: func(c *Conn) {
			c.Send(frame.Text, []byte("go away"))
			c.Close(frame.PolicyViolation, "not you")
			c.Send(frame.Text, []byte("too late"))
			c.Close(frame.Normal, "")
		}}
		s := &Settings{App: app, MaxMessage: 100}
		p := r.connect(s, text("early"), frame.Params{})
		p.want(frame.Text, "go away")
		p.wantClose(frame.PolicyViolation)
		if code := <-app.done; code != frame.PolicyViolation {
			t.Errorf("the App was told %d", code)
		}
		if n := reasons(&s.Meters.Closed); n["server 1008"] != 1 || len(n) != 1 {
			t.Errorf("closes are counted as %v", n)
		}
	})
}

// TestNoReset: what a client sends behind its close frame does not take the
// answer from it.
func TestNoReset(t *testing.T) {
	drivers(t, func(t *testing.T, r *rig) {
		app := &echoApp{done: make(chan frame.Code, 1)}
		s := &Settings{App: app, MaxMessage: 1 << 20}
		p := r.connect(s, nil, frame.Params{})
		p.send(packet(frame.Close, true, false, []byte{0x03, 0xe8}), make([]byte, 300_000))
		time.Sleep(20 * time.Millisecond)
		p.want(frame.Close, "\x03\xe8")
		if n, err := io.Copy(io.Discard, p.TCPConn); n != 0 || err != nil {
			t.Errorf("behind the answer come %d bytes, and %v", n, err)
		}
		p.Close()
		if code := <-app.done; code != frame.Normal {
			t.Errorf("the App was told %d", code)
		}
	})
}

// TestCloseUnanswered: a client that does not answer our close frame is waited
// for, but not for ever; and what it sends meanwhile is still heard.
func TestCloseUnanswered(t *testing.T) {
	t.Parallel()
	drivers(t, func(t *testing.T, r *rig) {
		app := &scripted{done: make(chan frame.Code, 1)}
		var mu sync.Mutex
		heard := 0
		app.message = func(c *Conn) {
			mu.Lock()
			defer mu.Unlock()
			if heard++; heard == 1 {
				c.Close(frame.Normal, "enough")
			} else {
				c.Send(frame.Text, []byte("never seen"))
			}
		}
		s := &Settings{App: app, MaxMessage: 100, Ping: time.Hour}
		p := r.connect(s, nil, frame.Params{})
		p.send(text("1"))
		p.want(frame.Close, "\x03\xe8enough")
		p.send(text("2"), text("3"))
		if code := <-app.done; code != frame.Normal {
			t.Errorf("the App was told %d", code)
		}
		p.wantEnd()
		mu.Lock()
		defer mu.Unlock()
		if heard != 3 {
			t.Errorf("%d messages were heard", heard)
		}
	})
}

// TestLateHandle: who comes too late is not called, even if another connection
// has the place by then.
func TestLateHandle(t *testing.T) {
	drivers(t, func(t *testing.T, r *rig) {
		app := &handleApp{opened: make(chan Handle, 1)}
		app.done = make(chan frame.Code, 1)
		s := &Settings{App: app, MaxMessage: 100}
		var old []Handle
		for range 10 {
			p := r.connect(s, nil, frame.Params{})
			h := <-app.opened
			do(h, func(c *Conn) {})
			for _, o := range old {
				o.Do(func(*Conn) { t.Error("called for one that is gone") })
			}
			old = append(old, h)
			p.Close()
			<-app.done
			h.Do(func(*Conn) { t.Error("called after the end") })
		}
		done := make(chan struct{})
		for i := range r.engine.Runners() {
			r.engine.Post(i, func() { done <- struct{}{} })
			<-done
		}
	})
}

// TestStall: input that waits for output is counted, and given back.
func TestStall(t *testing.T) {
	drivers(t, func(t *testing.T, r *rig) {
		big := make([]byte, 300_000)
		app := &scripted{done: make(chan frame.Code, 1), message: func(c *Conn) { c.Send(frame.Binary, big) }}
		s := &Settings{App: app, MaxMessage: 1000, Budget: NewBudget(1 << 20)}
		p := r.connect(s, nil, frame.Params{})
		const messages = 100
		var all []byte
		for range messages {
			// A message is under way all the time that others wait.
			all = append(all, packet(frame.Ping, true, false, nil)...)
			all = append(all, packet(frame.Binary, false, false, make([]byte, 50))...)
			all = append(all, packet(frame.Ping, true, false, nil)...)
			all = append(all, packet(frame.Continuation, true, false, make([]byte, 50))...)
		}
		go func() { _, _ = p.Write(all) }()
		for n := 0; n < messages; {
			op, b, err := p.message()
			if err != nil {
				t.Fatal(err)
			}
			if op == frame.Binary {
				if n++; len(b) != len(big) {
					t.Fatalf("got %d bytes", len(b))
				}
			}
		}
		nothingLeft(t, s)
		if left := s.Budget.left.Load(); left != 1<<20 {
			t.Errorf("%d bytes of the budget are left", left)
		}
	})
}

// TestEmptyFragments: some fragments without content cost nothing.
func TestEmptyFragments(t *testing.T) {
	drivers(t, func(t *testing.T, r *rig) {
		for name, settings := range apps() {
			t.Run(name, func(t *testing.T) {
				r := &rig{T: t, hide: r.hide}
				s := settings(nil)
				p := r.connect(s, nil, frame.Params{})
				p.send(packet(frame.Binary, false, false, nil))
				empty := packet(frame.Continuation, false, false, nil)
				var many []byte
				for range maxSlight - 10 {
					many = append(many, empty...)
				}
				p.send(many)
				p.send(packet(frame.Ping, true, false, nil))
				p.want(frame.Pong, "")
				if n := s.Meters.HeldBytes.Load(); n != 0 {
					t.Errorf("%d bytes are held", n)
				}
				p.send(packet(frame.Continuation, true, false, []byte("end")))
				p.want(frame.Binary, "end")
			})
		}
	})
}

// TestPingFlood: who floods us with pings and reads no pong is not read from
// any more, and costs no memory.
func TestPingFlood(t *testing.T) {
	drivers(t, func(t *testing.T, r *rig) {
		app := &echoApp{done: make(chan frame.Code, 1)}
		s := &Settings{App: app, MaxMessage: 100, WriteTimeout: 2 * tickTime}
		p := r.connect(s, nil, frame.Params{})
		var many []byte
		for range 1000 {
			many = append(many, packet(frame.Ping, true, false, make([]byte, 125))...)
		}
		for {
			if _, err := p.Write(many); err != nil {
				break
			}
			if n := s.Meters.QueuedBytes.Load(); n > 4*stallAt {
				t.Fatalf("%d bytes wait", n)
			}
		}
		<-app.done
		nothingLeft(t, s)
	})
}

// TestStarve: one that sends all the time does not keep another from its turn.
func TestStarve(t *testing.T) {
	r := &rig{T: t}
	s := &Settings{App: &echoApp{}, MaxMessage: 100}
	stop := make(chan struct{})
	var busy sync.WaitGroup
	for range 4 {
		p := r.connect(s, nil, frame.Params{})
		busy.Go(func() {
			var many []byte
			for range 1000 {
				many = append(many, packet(frame.Pong, true, false, nil)...)
			}
			for {
				select {
				case <-stop:
					return
				default:
					if _, err := p.Write(many); err != nil {
						return
					}
				}
			}
		})
	}
	quiet := r.connect(s, nil, frame.Params{})
	for range 20 {
		for i := range r.engine.Runners() {
			for range 100 {
				r.engine.Post(i, func() {})
			}
		}
		quiet.send(text("still there?"))
		quiet.want(frame.Text, "still there?")
	}
	close(stop)
	busy.Wait()
}
