package conn

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unsafe"

	"millrace/websocket/frame"
)

func TestSize(t *testing.T) {
	if n := unsafe.Sizeof(Conn{}); n > 128 {
		t.Errorf("a quiet connection has %d bytes, want at most 128", n)
	}
}

// apps are the two ways to take messages: in pieces, and whole.
func apps() map[string]func(done chan frame.Code) *Settings {
	return map[string]func(chan frame.Code) *Settings{
		"pieces": func(done chan frame.Code) *Settings {
			a := &echoStream{}
			a.done = done
			return &Settings{App: a}
		},
		"whole": func(done chan frame.Code) *Settings {
			return &Settings{App: &echoApp{done: done}, MaxMessage: 1 << 20}
		},
	}
}

func TestEcho(t *testing.T) {
	drivers(t, func(t *testing.T, r *rig) {
		for name, settings := range apps() {
			t.Run(name, func(t *testing.T) {
				done := make(chan frame.Code, 1)
				r := &rig{T: t, hide: r.hide}
				p := r.connect(settings(done), text("early"), frame.Params{})
				p.want(frame.Text, "early")
				p.send(text("one"), text(""), packet(frame.Binary, true, false, []byte{0xff, 0}))
				p.want(frame.Text, "one")
				p.want(frame.Text, "")
				p.want(frame.Binary, "\xff\x00")
				big := strings.Repeat("größer ", 20_000)
				p.send(text(big))
				p.want(frame.Text, big)
				// In fragments, with control frames between, byte by byte.
				all := bytes.Join([][]byte{
					packet(frame.Text, false, false, []byte("frag")), packet(frame.Ping, true, false, []byte("hey")),
					packet(frame.Continuation, false, false, nil), packet(frame.Continuation, true, false, []byte("mént")),
				}, nil)
				for i := range all {
					p.send(all[i : i+1])
				}
				for range 4 {
					op, b, err := p.message()
					if err != nil {
						t.Fatal(err)
					}
					if op == frame.Text {
						if string(b) != "fragmént" {
							t.Errorf("got %q", b)
						}
						break
					}
					if op != frame.Pong || string(b) != "hey" {
						// A pong between our own fragments ends message(): read on.
						t.Fatalf("got opcode %d %q", op, b)
					}
					if name == "pieces" { // the fragments before the pong were read by message already
						if _, rest, err := p.message(); err != nil || !strings.HasSuffix("fragmént", string(rest)) {
							t.Fatalf("got %q, %v", rest, err)
						}
						break
					}
				}
				p.send(packet(frame.Close, true, false, []byte{0x03, 0xe8}))
				p.wantCloseOnly(frame.Normal)
				if code := <-done; code != frame.Normal {
					t.Errorf("the App was told %d", code)
				}
			})
		}
	})
}

// wantCloseOnly expects the answer to our own close frame, and the end.
func (p *peer) wantCloseOnly(code frame.Code) {
	p.Helper()
	op, b, err := p.message()
	if err != nil || op != frame.Close {
		p.Fatalf("got opcode %d, %v; want a close frame", op, err)
	}
	if got, _, _ := frame.ParseClose(b); got != code {
		p.Fatalf("closed with %d, want %d", got, code)
	}
	p.wantEnd()
	p.Close() // for which the engine waits
}

func TestViolations(t *testing.T) {
	unmasked := frame.Header{Fin: true, Op: frame.Text, Length: 1}.Append(nil)
	for name, c := range map[string]struct {
		bytes [][]byte
		code  frame.Code
	}{
		"unmasked":             {[][]byte{unmasked, {'a'}}, frame.ProtocolError},
		"not compressed":       {[][]byte{packet(frame.Text, true, true, []byte("a"))}, frame.ProtocolError},
		"reserved opcode":      {[][]byte{packet(3, true, false, nil)}, frame.ProtocolError},
		"continuation first":   {[][]byte{packet(frame.Continuation, true, false, nil)}, frame.ProtocolError},
		"text within text":     {[][]byte{packet(frame.Text, false, false, []byte("a")), text("b")}, frame.ProtocolError},
		"fragmented ping":      {[][]byte{packet(frame.Ping, false, false, nil)}, frame.ProtocolError},
		"long ping":            {[][]byte{packet(frame.Ping, true, false, make([]byte, 126))}, frame.ProtocolError},
		"bad text":             {[][]byte{text("a\xff")}, frame.InvalidPayload},
		"half a character":     {[][]byte{text("a\xc3")}, frame.InvalidPayload},
		"bad text in the next": {[][]byte{packet(frame.Text, false, false, []byte("a\xc3")), packet(frame.Continuation, false, false, []byte("a"))}, frame.InvalidPayload},
		"close with one byte":  {[][]byte{packet(frame.Close, true, false, []byte{1})}, frame.ProtocolError},
		"close with 1005":      {[][]byte{packet(frame.Close, true, false, []byte{0x03, 0xed})}, frame.ProtocolError},
		"close with bad text":  {[][]byte{packet(frame.Close, true, false, []byte{0x03, 0xe8, 0xff})}, frame.InvalidPayload},
		"too big":              {[][]byte{text(strings.Repeat("a", 1<<20+1))[:14]}, frame.TooBig},
		"too big together":     {[][]byte{packet(frame.Text, false, false, make([]byte, 1<<19)), packet(frame.Continuation, false, false, make([]byte, 1<<19+1))}, frame.TooBig},
	} {
		t.Run(name, func(t *testing.T) {
			drivers(t, func(t *testing.T, r *rig) {
				for app, settings := range apps() {
					if strings.HasPrefix(name, "too big") && app == "pieces" {
						continue // there is no limit
					}
					t.Run(app, func(t *testing.T) {
						done := make(chan frame.Code, 1)
						r := &rig{T: t, hide: r.hide}
						p := r.connect(settings(done), nil, frame.Params{})
						p.send(c.bytes...)
						p.wantClose(c.code)
						if got := <-done; got != c.code {
							t.Errorf("the App was told %d", got)
						}
					})
				}
			})
		})
	}
}

// TestStream echoes far more than anything holds, to a client that reads
// slowly, and holds the memory that waits against the bound.
func TestStream(t *testing.T) {
	drivers(t, func(t *testing.T, r *rig) {
		s := apps()["pieces"](nil)
		p := r.connect(s, nil, frame.Params{})
		const size = 24 << 20
		sent := make(chan error, 1)
		go func() {
			h := frame.Header{Fin: true, Op: frame.Binary, Masked: true, Length: size}
			b := h.Append(nil)
			for range size / (1 << 16) {
				b = append(b, make([]byte, 1<<16)...)
				if _, err := p.Write(b); err != nil {
					sent <- err
					return
				}
				b = b[:0]
			}
			sent <- nil
		}()
		var most int64
		got := int64(0)
		for got < size {
			h, payload, err := p.frame()
			if err != nil {
				t.Fatal(err)
			}
			got += int64(len(payload))
			if h.Fin != (got == size) {
				t.Fatalf("fin is %v after %d bytes", h.Fin, got)
			}
			most = max(most, s.Meters.QueuedBytes.Load())
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		if most > 256<<10 {
			t.Errorf("%d bytes waited for a slow client", most)
		}
		for s.Meters.QueuedBytes.Load() != 0 { // it ends, or the test times out
			time.Sleep(time.Millisecond)
		}
	})
}

func TestCompressed(t *testing.T) {
	params := frame.Params{On: true, Window: 15}
	drivers(t, func(t *testing.T, r *rig) {
		for name, settings := range apps() {
			t.Run(name, func(t *testing.T) {
				r := &rig{T: t, hide: r.hide}
				s := settings(nil)
				s.CompressFrom = 10
				s.MaxMessage = 1 << 20
				p := r.connect(s, nil, params)
				message := strings.Repeat("once more, ", 1000)
				packed := params.Deflate(nil, []byte(message))
				p.send(packet(frame.Text, false, true, packed[:10]), packet(frame.Continuation, true, false, packed[10:]))
				h, _, err := p.frame()
				if err != nil || !h.Rsv1 {
					t.Fatalf("the answer is not compressed: %+v, %v", h, err)
				}
				p.send(packet(frame.Text, true, true, params.Deflate(nil, []byte("short"))))
				p.want(frame.Text, "short")
				bomb := params.Deflate(nil, make([]byte, 1<<20+1))
				p.send(packet(frame.Binary, true, true, bomb))
				p.wantClose(frame.TooBig)
			})
		}
	})
}

// TestDeliver has a client that does not read: it costs its queue, and is told.
func TestDeliver(t *testing.T) {
	drivers(t, func(t *testing.T, r *rig) {
		for name, overflow := range map[string]Overflow{"disconnect": Disconnect, "drop": DropOldest} {
			t.Run(name, func(t *testing.T) {
				r := &rig{T: t, hide: r.hide}
				app := &handleApp{opened: make(chan Handle, 1)}
				app.done = make(chan frame.Code, 1)
				s := &Settings{App: app, MaxMessage: 1 << 20, Queue: 1 << 20, QueueLength: 10, Overflow: overflow}
				p := r.connect(s, nil, frame.Params{})
				h := <-app.opened
				message := frame.Prepare(frame.Binary, make([]byte, 64<<10), 0)
				done := make(chan struct{})
				for i := range 400 {
					h.Do(func(c *Conn) {
						c.Deliver(message)
						if i == 399 {
							close(done)
						}
					})
				}
				if overflow == DropOldest {
					<-done
				}
				if n := s.Meters.QueuedMessages.Load(); n > 10 {
					t.Errorf("%d messages wait, want at most 10", n)
				}
				if overflow == Disconnect {
					p.wantClose(frame.TryAgainLater)
					if code := <-app.done; code != frame.TryAgainLater {
						t.Errorf("the App was told %d", code)
					}
					return
				}
				h.Do(func(c *Conn) { c.Deliver(frame.Prepare(frame.Text, []byte("last"), 0)) })
				n := 0
				for {
					op, b, err := p.message()
					if err != nil {
						t.Fatal(err)
					}
					if op == frame.Text {
						if string(b) != "last" {
							t.Errorf("got %q", b)
						}
						break
					}
					n++
				}
				if n == 0 || n >= 400 {
					t.Errorf("%d of 400 messages came", n)
				}
			})
		}
	})
}

type handleApp struct {
	echoApp
	opened chan Handle
}

func (a *handleApp) Open(c *Conn) { a.opened <- c.Handle() }

func TestKeepAlive(t *testing.T) {
	t.Parallel()
	drivers(t, func(t *testing.T, r *rig) {
		app := &echoApp{done: make(chan frame.Code, 1)}
		s := &Settings{App: app, MaxMessage: 100, Ping: tickTime, PongTimeout: 2 * tickTime}
		p := r.connect(s, nil, frame.Params{})
		for range 1 {
			p.want(frame.Ping, "")
			p.send(packet(frame.Pong, true, false, nil))
		}
		p.want(frame.Ping, "") // and from here on it is silent
		if code := <-app.done; code != frame.Abnormal {
			t.Errorf("the App was told %d", code)
		}
		p.wantEnd()
	})
}

func TestIdle(t *testing.T) {
	t.Parallel()
	drivers(t, func(t *testing.T, r *rig) {
		p := r.connect(&Settings{App: &echoApp{}, MaxMessage: 100, Idle: 2 * tickTime}, nil, frame.Params{})
		p.wantClose(frame.Timeout)
	})
}

// TestWriteTimeout has a client that never reads.
func TestWriteTimeout(t *testing.T) {
	t.Parallel()
	drivers(t, func(t *testing.T, r *rig) {
		app := &echoStream{}
		app.done = make(chan frame.Code, 1)
		p := r.connect(&Settings{App: app, WriteTimeout: tickTime}, nil, frame.Params{})
		go func() {
			b := packet(frame.Binary, true, false, make([]byte, 1<<20))
			for {
				if _, err := p.Write(b); err != nil {
					return
				}
			}
		}()
		if code := <-app.done; code != frame.TooBig {
			t.Errorf("the App was told %d", code)
		}
	})
}

// TestSendsBeforeItReads: who sends everything before it reads gets a close
// frame in good order, at the end of the frame that has begun to go.
func TestSendsBeforeItReads(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		app     App
		max     int64
		message []byte
		times   int
		code    frame.Code
	}{
		"a large message":      {&echoStream{}, 0, packet(frame.Binary, true, false, make([]byte, large)), 1, frame.TooBig},
		"many small ones":      {&echoStream{}, 0, packet(frame.Binary, true, false, make([]byte, 1000)), large / 1000, frame.PolicyViolation},
		"many whole ones":      {&echoApp{}, 1 << 20, packet(frame.Binary, true, false, make([]byte, 30_000)), large / 30_000, frame.PolicyViolation},
		"against the protocol": {&echoStream{}, 0, append(packet(frame.Binary, false, false, make([]byte, large)), text("x")...), 1, frame.TooBig},
	} {
		t.Run(name, func(t *testing.T) {
			drivers(t, func(t *testing.T, r *rig) {
				r.small = true
				s := &Settings{App: c.app, MaxMessage: c.max, WriteTimeout: tickTime}
				p := r.connect(s, nil, frame.Params{})
				for range c.times {
					p.send(c.message)
				}
				p.wantClose(c.code)
				nothingLeft(t, s)
			})
		})
	}
}

// TestFailsBeforeItReads: what goes wrong while output waits is told as well.
func TestFailsBeforeItReads(t *testing.T) {
	t.Parallel()
	drivers(t, func(t *testing.T, r *rig) {
		r.small = true
		app := &handleApp{opened: make(chan Handle, 1)}
		p := r.connect(&Settings{App: app, MaxMessage: 100, WriteTimeout: time.Minute}, nil, frame.Params{})
		message := packet(frame.Binary, true, false, make([]byte, large))
		do(<-app.opened, func(c *Conn) {
			c.Send(frame.Binary, message)
			c.fail(&faults[noMessage])
		})
		p.send(message)
		p.wantClose(frame.ProtocolError)
	})
}

// TestTooSlowWithinAFrame: a client that is too slow gets the rest of the frame
// that has begun to go, and the close frame behind it.
func TestTooSlowWithinAFrame(t *testing.T) {
	t.Parallel()
	r := &rig{T: t, small: true} // which writes at once: what a goroutine writes has begun a moment later
	app := &handleApp{opened: make(chan Handle, 1)}
	p := r.connect(&Settings{App: app, MaxMessage: 100, QueueLength: 1}, nil, frame.Params{})
	do(<-app.opened, func(c *Conn) {
		c.Send(frame.Binary, make([]byte, large))
		c.Deliver(binary(10, 1))
		c.Deliver(binary(10, 2))
	})
	if op, b, err := p.message(); err != nil || op != frame.Binary || len(b) != large {
		t.Fatalf("got opcode %d with %d bytes, error %v", op, len(b), err)
	}
	p.wantClose(frame.TryAgainLater)
}

func TestLeave(t *testing.T) {
	drivers(t, func(t *testing.T, r *rig) {
		app := &leaverApp{}
		s := &Settings{App: app, MaxMessage: 100}
		polite, silent := r.connect(s, nil, frame.Params{}), r.connect(s, nil, frame.Params{})
		for _, p := range []*peer{polite, silent} { // the engine has them
			p.send(text("x"))
			p.want(frame.Text, "x")
		}
		gone := make(chan struct{})
		go func() {
			r.engine.Leave(s, frame.ServiceRestart, time.Second, 100*time.Millisecond)
			close(gone)
		}()
		polite.want(frame.Text, "leaving")
		polite.wantClose(frame.ServiceRestart)
		<-gone
		if n := s.Open(); n != 0 {
			t.Errorf("%d are still open", n)
		}
		silent.wantEnd()
	})
}

type leaverApp struct{ echoApp }

func (a *leaverApp) Leaving(c *Conn, _ frame.Code, _ time.Duration) {
	c.Send(frame.Text, []byte("leaving"))
}

// TestPanic: an App's mistake costs one connection.
func TestPanic(t *testing.T) {
	drivers(t, func(t *testing.T, r *rig) {
		s := &Settings{App: panicApp{}, MaxMessage: 100}
		p := r.connect(s, nil, frame.Params{})
		other := r.connect(s, nil, frame.Params{})
		p.send(text("panic"))
		p.wantEnd()
		other.send(text("fine"))
		other.want(frame.Text, "fine")
	})
}

type panicApp struct{}

func (panicApp) Open(*Conn)               {}
func (panicApp) Closed(*Conn, frame.Code) {}
func (panicApp) Message(c *Conn, op frame.Opcode, data []byte) {
	if string(data) == "panic" {
		panic("as asked")
	}
	c.Send(op, data)
}

// TestBudget: many halves of messages may not take more than all together may.
func TestBudget(t *testing.T) {
	drivers(t, func(t *testing.T, r *rig) {
		s := &Settings{App: &echoApp{}, MaxMessage: 1 << 20, Budget: NewBudget(1 << 20)}
		half := packet(frame.Binary, false, false, make([]byte, 600<<10))
		first := r.connect(s, nil, frame.Params{})
		first.send(half, packet(frame.Ping, true, false, nil))
		first.want(frame.Pong, "")
		second := r.connect(s, nil, frame.Params{})
		second.send(half)
		second.wantClose(frame.TryAgainLater)
		first.send(packet(frame.Continuation, true, false, nil))
		first.want(frame.Binary, string(make([]byte, 600<<10)))
		if n := s.Meters.HeldBytes.Load(); n != 0 {
			t.Errorf("%d bytes are held in the end", n)
		}
	})
}

// TestSplit sends the same conversation in all kinds of pieces.
func TestSplit(t *testing.T) {
	var all []byte
	want := ""
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 200 {
		s := strings.Repeat(string(rune('a'+i%26)), random.IntN(300))
		want += s + "\n"
		all = append(all, text(s+"\n")...)
	}
	drivers(t, func(t *testing.T, r *rig) {
		for name, settings := range apps() {
			t.Run(name, func(t *testing.T) {
				r := &rig{T: t, hide: r.hide}
				for range 10 {
					p := r.connect(settings(nil), nil, frame.Params{})
					go func() {
						for b := all; len(b) > 0; {
							n := min(len(b), 1+rand.IntN(700))
							if _, err := p.Write(b[:n]); err != nil {
								return
							}
							b = b[n:]
						}
					}()
					got := ""
					for len(got) < len(want) {
						_, b, err := p.message()
						if err != nil {
							t.Fatal(err)
						}
						got += string(b)
					}
					if got != want {
						t.Fatal("the echo differs")
					}
					p.Close()
				}
			})
		}
	})
}
