package conn

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/process/servertest"
	"millrace/websocket/frame"
)

// joined is a pipe, seen from both of its ends.
func (r *rig) joined(s *Settings, early [2][]byte) (front, back *peer, released *atomic.Int32) {
	r.Helper()
	ourFront, theirFront := r.pair()
	ourBack, theirBack := r.pair()
	released = &atomic.Int32{}
	if err := r.engine.Join(theirFront, early[0], theirBack, early[1], s, func() { released.Add(1) }); err != nil {
		r.Fatal(err)
	}
	return &peer{T: r.T, TCPConn: ourFront}, &peer{T: r.T, TCPConn: ourBack}, released
}

func server(op frame.Opcode, payload []byte) []byte {
	return append(frame.Header{Fin: true, Op: op, Length: int64(len(payload))}.Append(nil), payload...)
}

func TestPipe(t *testing.T) {
	drivers(t, func(t *testing.T, r *rig) {
		s := &Settings{}
		front, back, released := r.joined(s, [2][]byte{text("early"), server(frame.Text, []byte("bird"))})
		front.want(frame.Text, "bird")
		back.want(frame.Text, "\x64\x63\x71\x68\x78") // masked, as it came
		front.send(packet(frame.Ping, true, false, nil))
		back.want(frame.Ping, "")
		back.send(server(frame.Binary, bytes.Repeat([]byte("x"), 300_000)))
		front.want(frame.Binary, strings.Repeat("x", 300_000))
		// The closing handshake is theirs.
		front.send(packet(frame.Close, true, false, []byte{0x03, 0xe9}))
		if op, _, err := back.message(); err != nil || op != frame.Close {
			t.Fatalf("got opcode %d, %v", op, err)
		}
		back.send(server(frame.Close, []byte{0x03, 0xe9}))
		back.Close()
		front.wantCloseOnly(frame.GoingAway)
		front.Close()
		servertest.Eventually(t, "released", func() bool { return released.Load() == 1 && s.Open() == 0 })
	})
}

// TestPipeDeath: an upstream that dies between frames becomes a 1012, one that
// dies within a frame the end of the connection.
func TestPipeDeath(t *testing.T) {
	drivers(t, func(t *testing.T, r *rig) {
		s := &Settings{}
		front, back, released := r.joined(s, [2][]byte{})
		back.send(server(frame.Text, []byte("a")))
		front.want(frame.Text, "a")
		_ = back.SetLinger(0)
		back.Close()
		front.wantClose(frame.ServiceRestart)
		servertest.Eventually(t, "released", func() bool { return released.Load() == 1 && s.Open() == 0 })

		front, back, released = r.joined(s, [2][]byte{})
		back.send(server(frame.Text, make([]byte, 100))[:50])
		back.Close()
		if _, _, err := front.frame(); !errors.Is(err, io.EOF) && !isReset(err) {
			t.Errorf("half a frame ended with %v", err)
		}
		front.Close() // for which the engine waits
		servertest.Eventually(t, "released", func() bool { return released.Load() == 1 && s.Open() == 0 })

		front, back, released = r.joined(s, [2][]byte{})
		front.Close()
		back.wantEnd()
		servertest.Eventually(t, "released", func() bool { return released.Load() == 1 && s.Open() == 0 })
	})
}

// TestPipeBackpressure pumps through a pipe in both directions at once, with
// neither end reading before it has written a lot.
func TestPipeBackpressure(t *testing.T) {
	drivers(t, func(t *testing.T, r *rig) {
		s := &Settings{}
		front, back, _ := r.joined(s, [2][]byte{})
		const size = 4 << 20
		pump := func(to *peer, b []byte) { _, _ = to.Write(b) }
		go pump(front, packet(frame.Binary, true, false, make([]byte, size)))
		go pump(back, server(frame.Binary, make([]byte, size)))
		time.Sleep(50 * time.Millisecond)
		if n := s.Meters.QueuedBytes.Load(); n > 256<<10 {
			t.Errorf("%d bytes wait", n)
		}
		for _, p := range []*peer{front, back} {
			p.want(frame.Binary, string(expect(p == back, size)))
		}
	})
}

// expect is what comes out: masked zeros are the mask again and again.
func expect(masked bool, size int) []byte {
	b := make([]byte, size)
	if masked {
		frame.Mask(b, [4]byte{1, 2, 3, 4}, 0)
	}
	return b
}

func TestPipeLeave(t *testing.T) {
	t.Parallel()
	drivers(t, func(t *testing.T, r *rig) {
		s := &Settings{}
		front, back, _ := r.joined(s, [2][]byte{})
		back.send(server(frame.Text, []byte("whole")), server(frame.Text, []byte("half"))[:3])
		front.want(frame.Text, "whole")
		gone := make(chan struct{})
		go func() {
			r.engine.Leave(s, frame.ServiceRestart, time.Second, 5*time.Second)
			close(gone)
		}()
		time.Sleep(20 * time.Millisecond)
		back.send(server(frame.Text, []byte("half"))[3:], server(frame.Text, []byte("never seen?")))
		front.want(frame.Text, "half")
		front.wantCloseAfterAll(frame.ServiceRestart)
		back.wantEnd()
		<-gone
	})
}

// wantCloseAfterAll skips what was under way.
func (p *peer) wantCloseAfterAll(code frame.Code) {
	p.Helper()
	p.wantClose(code)
}

var _ net.Conn = hidden{}
