package conn

import (
	"strings"
	"testing"
	"time"

	"millrace/internal/process/servertest"
	"millrace/websocket/frame"
)

// parked is how many connections have no goroutine.
func (r *rig) parked() int { return r.engine.strand.parker.Parked() }

// parking has connections parked soon.
func parking(t *testing.T) *rig {
	r := &rig{T: t}
	r.start()
	r.engine.strand.parkAfter = 20 * time.Millisecond
	return r
}

// TestPark: a quiet TLS connection has no goroutine, and does all that others do.
func TestPark(t *testing.T) {
	r := parking(t)
	app := &handleApp{opened: make(chan Handle, 3)}
	app.done = make(chan frame.Code, 3)
	s := &Settings{App: app, MaxMessage: 1 << 20}
	p := r.connectTLS(s)
	h := <-app.opened
	say := func(what string) {
		t.Helper()
		_, _ = p.tls.Write(text(what))
		if op, got := p.read(); op != frame.Text || got != what {
			t.Fatalf("got opcode %d %q, want %q", op, short(got), short(what))
		}
	}
	for range 2 {
		servertest.Eventually(t, "it is parked", func() bool { return r.parked() == 1 })
		say("once")
		say(strings.Repeat("more ", 10_000))
	}
	servertest.Eventually(t, "it is parked", func() bool { return r.parked() == 1 })

	// Half a frame wakes it, and it is parked with that.
	b := text("in two parts")
	_, _ = p.tls.Write(b[:3])
	servertest.Eventually(t, "it is parked again", func() bool { return s.Meters.BytesIn.Load() > 0 && r.parked() == 1 })
	_, _ = p.tls.Write(b[3:])
	if op, got := p.read(); op != frame.Text || got != "in two parts" {
		t.Fatalf("got opcode %d %q", op, got)
	}

	// Others may send to it while it is parked.
	servertest.Eventually(t, "it is parked", func() bool { return r.parked() == 1 })
	h.Do(func(c *Conn) { c.Deliver(frame.Prepare(frame.Text, []byte("good morning"), 0)) })
	if op, got := p.read(); op != frame.Text || got != "good morning" {
		t.Fatalf("got opcode %d %q", op, got)
	}

	// Its end is noticed: the peer's, and our own.
	p.TCPConn.Close()
	if code := <-app.done; code != frame.Abnormal {
		t.Errorf("closed with %d", code)
	}
	p = r.connectTLS(s)
	h = <-app.opened
	servertest.Eventually(t, "it is parked", func() bool { return r.parked() == 1 })
	h.Do(func(c *Conn) { c.Close(frame.GoingAway, "") })
	if op, _ := p.read(); op != frame.Close {
		t.Errorf("got opcode %d", op)
	}
	_, _ = p.tls.Write(packet(frame.Close, true, false, []byte{0x03, 0xe9}))
	p.TCPConn.Close()
	if code := <-app.done; code != frame.GoingAway {
		t.Errorf("closed with %d", code)
	}
	p = r.connectTLS(s)
	<-app.opened
	servertest.Eventually(t, "it is parked", func() bool { return r.parked() == 1 })
	r.engine.Leave(s, frame.ServiceRestart, 0, 50*time.Millisecond) // it never answers
	if code := <-app.done; code != frame.ServiceRestart {
		t.Errorf("closed with %d", code)
	}
	if n := r.parked(); n != 0 {
		t.Errorf("%d are parked in the end", n)
	}
}

// TestParkStorm has many that are parked and woken all the time, and are cut in
// between: none may be forgotten.
func TestParkStorm(t *testing.T) {
	r := parking(t)
	s := apps()["whole"](nil)
	const clients = 20
	done := make(chan struct{})
	for i := range clients {
		p := r.connectTLS(s)
		go func() {
			defer func() { done <- struct{}{} }()
			for k := range 40 {
				if _, err := p.tls.Write(text("x")); err != nil {
					t.Error(err)
					return
				}
				if op, got := p.read(); op != frame.Text || got != "x" {
					t.Errorf("got opcode %d %q", op, got)
					return
				}
				time.Sleep(15*time.Millisecond + time.Duration(i*k)*200*time.Microsecond) // just when it is parked
			}
			if i%2 == 0 {
				p.TCPConn.Close()
			}
		}()
	}
	for range clients {
		<-done
	}
	servertest.Eventually(t, "the half is closed", func() bool { return s.Open() == clients/2 })
	r.engine.Leave(s, frame.GoingAway, 0, 0)
	if n := s.Open(); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// TestParkClose: the engine's end wakes parked connections.
func TestParkClose(t *testing.T) {
	r := parking(t)
	s := apps()["whole"](make(chan frame.Code, 2))
	r.connectTLS(s)
	r.connectTLS(s)
	servertest.Eventually(t, "both are parked", func() bool { return r.parked() == 2 })
	if err := r.engine.Close(); err != nil {
		t.Fatal(err)
	}
	if n := s.Open(); n != 0 {
		t.Errorf("%d are left", n)
	}
}
