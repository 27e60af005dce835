package conn

import (
	"strings"
	"testing"
	"time"

	"millrace/websocket/frame"
)

// napping is how many connections nobody has a goroutine for.
func (r *rig) napping() int {
	n := r.engine.strand.napper
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.conns) - len(n.free)
}

// sleepy has connections lie down soon.
func sleepy(t *testing.T) *rig {
	r := &rig{T: t}
	r.start()
	r.engine.strand.napper.after = 20 * time.Millisecond
	return r
}

// TestNap: a quiet TLS connection has no goroutine, and does all that others do.
func TestNap(t *testing.T) {
	r := sleepy(t)
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
		eventually(t, "it naps", func() bool { return r.napping() == 1 })
		say("once")
		say(strings.Repeat("more ", 10_000))
	}
	eventually(t, "it naps", func() bool { return r.napping() == 1 })

	// Half a frame wakes it, and it lies down with that.
	b := text("in two parts")
	_, _ = p.tls.Write(b[:3])
	eventually(t, "it naps again", func() bool { return s.Meters.BytesIn.Load() > 0 && r.napping() == 1 })
	_, _ = p.tls.Write(b[3:])
	if op, got := p.read(); op != frame.Text || got != "in two parts" {
		t.Fatalf("got opcode %d %q", op, got)
	}

	// Others may send to it while it naps.
	eventually(t, "it naps", func() bool { return r.napping() == 1 })
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
	eventually(t, "it naps", func() bool { return r.napping() == 1 })
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
	eventually(t, "it naps", func() bool { return r.napping() == 1 })
	r.engine.Leave(s, frame.ServiceRestart, 0, 50*time.Millisecond) // it never answers
	if code := <-app.done; code != frame.ServiceRestart {
		t.Errorf("closed with %d", code)
	}
	if n := r.napping(); n != 0 {
		t.Errorf("%d nap in the end", n)
	}
}

// TestNapStorm has many that lie down and wake all the time, and are cut in
// between: none may be forgotten.
func TestNapStorm(t *testing.T) {
	r := sleepy(t)
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
				time.Sleep(15*time.Millisecond + time.Duration(i*k)*200*time.Microsecond) // just when it lies down
			}
			if i%2 == 0 {
				p.TCPConn.Close()
			}
		}()
	}
	for range clients {
		<-done
	}
	eventually(t, "the half is closed", func() bool { return s.Open() == clients/2 })
	r.engine.Leave(s, frame.GoingAway, 0, 0)
	if n := s.Open(); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// TestNapClose: the engine's end wakes who naps.
func TestNapClose(t *testing.T) {
	r := sleepy(t)
	s := apps()["whole"](make(chan frame.Code, 2))
	r.connectTLS(s)
	r.connectTLS(s)
	eventually(t, "both nap", func() bool { return r.napping() == 2 })
	if err := r.engine.Close(); err != nil {
		t.Fatal(err)
	}
	if n := s.Open(); n != 0 {
		t.Errorf("%d are left", n)
	}
}
