package conn

import (
	"io"
	"testing"
	"time"

	"millrace/internal/process/servertest"
	"millrace/websocket/frame"
)

// clog sends to one end of a pipe until the other, which does not read, takes
// no more and output waits in the middle.
func clog(t *testing.T, s *Settings, from *peer, b []byte) {
	t.Helper()
	go func() {
		for {
			if _, err := from.Write(b); err != nil {
				return
			}
		}
	}()
	last := uint64(0)
	servertest.Eventually(t, "output waits", func() bool {
		n := s.Meters.BytesIn.Load() + s.Meters.BytesOut.Load()
		stands := n == last && n > 0
		last = n
		time.Sleep(20 * time.Millisecond)
		return stands
	})
}

// TestPipeClientResets: a client that is gone is noticed while the upstream
// does not take what it had said.
func TestPipeClientResets(t *testing.T) {
	drivers(t, func(t *testing.T, r *rig) {
		if r.hide {
			t.Skip("a goroutine that writes does not read: the write timeout is for this")
		}
		s := &Settings{}
		front, back, released := r.joined(s, [2][]byte{})
		clog(t, s, front, packet(frame.Binary, true, false, make([]byte, 1<<16)))
		_ = front.SetLinger(0)
		front.Close()
		servertest.Eventually(t, "released", func() bool { return released.Load() == 1 && s.Open() == 0 })
		back.wantEnd()
		if n := s.Meters.QueuedBytes.Load(); n != 0 {
			t.Errorf("%d bytes wait in the end", n)
		}
	})
}

// TestPipeUpstreamResets: an upstream that dies while it does not read what
// the client says.
func TestPipeUpstreamResets(t *testing.T) {
	drivers(t, func(t *testing.T, r *rig) {
		s := &Settings{}
		front, back, released := r.joined(s, [2][]byte{})
		clog(t, s, front, packet(frame.Binary, true, false, make([]byte, 1<<16)))
		_ = back.SetLinger(0)
		back.Close()
		front.wantCode(frame.ServiceRestart)
		front.Close()
		servertest.Eventually(t, "released", func() bool { return released.Load() == 1 && s.Open() == 0 })
		if n := s.Meters.QueuedBytes.Load(); n != 0 {
			t.Errorf("%d bytes wait in the end", n)
		}
		if n := reasons(&s.Meters.Closed); n["server 1012"] != 1 || len(n) != 1 {
			t.Errorf("closes are counted as %v", n)
		}
	})
}

// TestPipeUpstreamStuck: an upstream that takes nothing for too long.
func TestPipeUpstreamStuck(t *testing.T) {
	t.Parallel()
	drivers(t, func(t *testing.T, r *rig) {
		s := &Settings{WriteTimeout: 2 * tickTime}
		front, _, released := r.joined(s, [2][]byte{})
		clog(t, s, front, packet(frame.Binary, true, false, make([]byte, 1<<16)))
		front.wantCode(frame.ServiceRestart)
		front.Close()
		servertest.Eventually(t, "released", func() bool { return released.Load() == 1 && s.Open() == 0 })
	})
}

// TestPipeUpstreamDiesBehind: what an upstream had said before it died comes
// to a client that reads late, and then that it is gone.
func TestPipeUpstreamDiesBehind(t *testing.T) {
	drivers(t, func(t *testing.T, r *rig) {
		s := &Settings{}
		front, back, released := r.joined(s, [2][]byte{})
		message := server(frame.Binary, make([]byte, 1<<16))
		clog(t, s, back, message)
		_ = back.SetLinger(0)
		back.Close()
		time.Sleep(50 * time.Millisecond)
		n := 0
		for {
			op, _, err := front.message()
			if err != nil {
				break // it had died within a frame, which most of the time is so
			}
			if op == frame.Close {
				break
			}
			n++
		}
		if n == 0 {
			t.Error("nothing came")
		}
		front.Close()
		servertest.Eventually(t, "released", func() bool { return released.Load() == 1 && s.Open() == 0 })
	})
}

// TestPipeIdle: nobody says anything.
func TestPipeIdle(t *testing.T) {
	t.Parallel()
	drivers(t, func(t *testing.T, r *rig) {
		s := &Settings{Idle: 2 * tickTime}
		front, back, released := r.joined(s, [2][]byte{})
		began := time.Now()
		for range 3 {
			time.Sleep(tickTime)
			back.send(server(frame.Text, nil))
			front.want(frame.Text, "")
		}
		front.wantClose(frame.Timeout)
		if d := time.Since(began); d < 3*tickTime+tickTime {
			t.Errorf("closed after %s", d)
		}
		back.wantEnd()
		servertest.Eventually(t, "released", func() bool { return released.Load() == 1 && s.Open() == 0 })
		if n := reasons(&s.Meters.Closed); n["server 3008"] != 1 || len(n) != 1 {
			t.Errorf("closes are counted as %v", n)
		}
	})
}

// TestPipeLeaveSilent: a client that never answers does not keep anybody.
func TestPipeLeaveSilent(t *testing.T) {
	drivers(t, func(t *testing.T, r *rig) {
		s := &Settings{}
		_, back, released := r.joined(s, [2][]byte{})
		front2, back2, _ := r.joined(s, [2][]byte{})
		back2.send(server(frame.Text, []byte("half a frame"))[:5])
		if _, err := io.ReadFull(front2, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		r.engine.Leave(s, frame.GoingAway, time.Second, 50*time.Millisecond)
		if released.Load() != 1 || s.Open() != 0 {
			t.Errorf("%d are open", s.Open())
		}
		back.wantEnd()
		if n := reasons(&s.Meters.Closed); n["server 1001"] != 1 {
			t.Errorf("closes are counted as %v", n)
		}
	})
}

// wantCode skips everything before a close frame with this code.
func (p *peer) wantCode(code frame.Code) {
	p.Helper()
	for {
		op, b, err := p.message()
		if err != nil {
			p.Fatalf("waiting for close code %d: %v", code, err)
		}
		if op != frame.Close {
			continue
		}
		if got, reason, err := frame.ParseClose(b); err != nil || got != code {
			p.Fatalf("closed with %d %q (%v), want %d", got, reason, err, code)
		}
		return
	}
}
