package lane

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// counted is what a server puts below TLS.
type counted struct {
	net.Conn
	uncounted int
}

func (c *counted) Uncount() { c.uncounted++ }

// hijack has net/http hand a connection over.
func hijack(t *testing.T, b *bench, nc net.Conn, gone func()) *Conn {
	t.Helper()
	c, ok := FromNet(b.lane.NewConn(nc, b.scope, gone))
	if !ok {
		t.Fatal("no connection of the lane")
	}
	OnState(c, http.StateActive)
	OnState(c, http.StateHijacked)
	return c
}

// TestRelease: a connection that was released is the server's no more.
func TestRelease(t *testing.T) {
	b := newBench(t, patient)
	server, client := socketPair(t)
	gone := 0
	c := hijack(t, b, server, func() { gone++ })
	c.readAhead = []byte("early")
	raw, early := Release(c)
	if raw != server || string(early) != "early" {
		t.Errorf("released as %T, with %q", raw, early)
	}
	if b.lane.Open() != 0 || gone != 1 {
		t.Errorf("%d are open, %d were given back; want 0 and 1", b.lane.Open(), gone)
	}
	if again, early := Release(c); again != net.Conn(c) || early != nil {
		t.Errorf("released twice: %T, %q", again, early)
	}
	if err := c.Close(); !errors.Is(err, net.ErrClosed) || gone != 1 {
		t.Errorf("net/http's Close: %v, %d were given back", err, gone)
	}
	c.cut() // by whoever had it in a list
	b.lane.Close()
	if _, err := io.WriteString(raw, "still open"); err != nil {
		t.Error(err)
	}
	line := make([]byte, 10)
	if _, err := io.ReadFull(client, line); err != nil || string(line) != "still open" {
		t.Errorf("got %q, %v", line, err)
	}
}

// TestReleaseBelowTLS: who counts connections below TLS is told.
func TestReleaseBelowTLS(t *testing.T) {
	b := newBench(t, patient)
	defer b.lane.Close()
	server, _ := socketPair(t)
	under := &counted{Conn: server}
	c := hijack(t, b, under, nil)
	if Release(c); under.uncounted != 1 {
		t.Errorf("uncounted %d times", under.uncounted)
	}
}

// TestReleaseOthers: only what was hijacked can be released.
func TestReleaseOthers(t *testing.T) {
	b := newBench(t, patient)
	defer b.lane.Close()
	server, _ := socketPair(t)
	if raw, early := Release(server); raw != server || early != nil {
		t.Errorf("a connection that the lane does not know became %T, %q", raw, early)
	}
	c := b.lane.NewConn(server, b.scope, nil)
	if raw, _ := Release(c); raw != net.Conn(c) || b.lane.Open() != 1 {
		t.Errorf("one that net/http still has became %T", raw)
	}
}

// TestReleaseWhileCut: a connection is either cut before it is released, or not
// at all.
func TestReleaseWhileCut(t *testing.T) {
	b := newBench(t, patient)
	defer b.lane.Close()
	for range 200 {
		server, client := socketPair(t)
		c := hijack(t, b, server, nil)
		var released atomic.Bool
		var all sync.WaitGroup
		all.Go(b.lane.CloseAll)
		all.Go(func() {
			raw, _ := Release(c)
			_, before := raw.Write([]byte("a"))
			released.Store(true)
			all.Go(func() {
				_, after := raw.Write([]byte("b"))
				if (before == nil) != (after == nil) {
					t.Errorf("cut after it was released: %v, then %v", before, after)
				}
			})
		})
		all.Wait()
		server.Close()
		client.Close()
	}
}

// TestReleaseThroughHTTP takes the way of a WebSocket.
func TestReleaseThroughHTTP(t *testing.T) {
	b := newBench(t, patient)
	took := make(chan []byte, 1)
	client, stop := b.pipeServer(func(w http.ResponseWriter, _ *http.Request) {
		nc, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		ahead, _ := buf.Reader.Peek(buf.Reader.Buffered())
		raw, early := Release(nc)
		took <- append(append([]byte(nil), ahead...), early...)
		_ = raw.SetDeadline(time.Time{})
		_, _ = io.WriteString(raw, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
	})
	defer stop()
	_, _ = io.WriteString(client, "GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nearly")
	line, err := bufio.NewReader(client).ReadString('\n')
	if err != nil || line != "HTTP/1.1 101 Switching Protocols\r\n" {
		t.Errorf("got %q, %v", line, err)
	}
	if early := <-took; string(early) != "early" {
		t.Errorf("what came early is %q", early)
	}
	if b.lane.Open() != 0 {
		t.Error("the lane still has it")
	}
}
