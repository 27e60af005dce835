package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	"millrace/internal/lane"
	"millrace/internal/process/servertest"
	"millrace/internal/upstream"
	"millrace/internal/wire/message"
)

// TestTripDoubted: where the server has closed the connection that a loop has taken,
// the request goes out on another one, and it is the answer on that one which is
// put in doubt by what comes behind it.
func TestTripDoubted(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	conns := map[int]net.Conn{} // by the client's port
	var running, both sync.WaitGroup
	both.Add(2)
	t.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	const answer = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1\r\n\r\nx"
	running.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns[c.RemoteAddr().(*net.TCPAddr).Port] = c
			mu.Unlock()
			running.Go(func() {
				r := bufio.NewReader(c)
				for n := 0; ; n++ {
					if _, err := http.ReadRequest(r); err != nil {
						return
					}
					if n == 0 { // two at once, for two connections
						both.Done()
						both.Wait()
					}
					_, _ = io.WriteString(c, strings.Repeat(answer, 1+n)) // behind the second is one that nobody has asked for
				}
			})
		}
	})
	pool, err := upstream.New(upstream.Options{To: []string{"http://" + ln.Addr().String()}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var asking sync.WaitGroup
	for range 2 {
		asking.Go(func() {
			resp, err := pool.Do(t.Context(), &upstream.Request{Path: "/"}, nil)
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		})
	}
	asking.Wait()
	if len(conns) != 2 {
		t.Fatalf("%d connections: the test does not do what it is for", len(conns))
	}
	h, err := New(Options{}, pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	var head message.Request
	if !head.Parse("GET /x HTTP/1.1\r\nHost: a\r\n\r\n") {
		t.Fatal("no request")
	}
	q := &lane.ForwardRequest{Head: &head, Scope: new(lane.Scope), Client: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}}
	var trip RoundTrip
	doubted := 0
	out := h.Outgoing(&head)
	out.OnSuspect = func() { doubted++ }
	if !h.Begin(&trip, q, out) {
		t.Fatal("there was no connection")
	}
	fd, _, _ := trip.Line(nil)
	local, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	closed := conns[local.(*syscall.SockaddrInet4).Port]
	mu.Unlock()
	_ = closed.Close()
	servertest.Eventually(t, "its end arrives", func() bool {
		n, _, err := syscall.Recvfrom(fd, make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return n == 0 && err == nil
	})
	if !trip.Ask(out, nil) {
		t.Fatal("the request was not sent on the other connection")
	}
	buf, taken := make([]byte, 64<<10), lane.Incomplete
	servertest.Eventually(t, "the answer is there", func() bool {
		_, _, taken = trip.Answer(buf)
		return taken != lane.Incomplete
	})
	if taken != lane.Complete {
		t.Fatalf("the answer is %v", taken)
	}
	trip.End()
	trip.Release()
	if doubted != 1 {
		t.Errorf("the answer was put in doubt %d times, want once", doubted)
	}
}
