package load

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A raw server answers request n (from 1, of each connection) with whatever
// answer writes. It closes the connection when answer returns false.
type raw struct {
	net.Listener
	answer func(c net.Conn, n int) bool
	wg     sync.WaitGroup
	mu     sync.Mutex
	conns  []net.Conn
}

func serveRaw(t *testing.T, answer func(c net.Conn, n int) bool) *raw {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &raw{Listener: l, answer: answer}
	s.wg.Go(s.accept)
	t.Cleanup(s.stop)
	return s
}

func (s *raw) url() string { return "http://" + s.Addr().String() }

func (s *raw) accept() {
	for {
		c, err := s.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns = append(s.conns, c)
		s.mu.Unlock()
		s.wg.Go(func() {
			defer c.Close()
			r := bufio.NewReader(c)
			for n := 1; ; n++ {
				if _, err := http.ReadRequest(r); err != nil || !s.answer(c, n) {
					return
				}
			}
		})
	}
}

// stop closes the listener and all connections, and waits.
func (s *raw) stop() {
	s.Close()
	s.mu.Lock()
	for _, c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

const fine = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"

// Answers in pieces, each sent by itself, are the same answers. On a connection
// some come whole in between, by the known head.
func TestAnswersInPieces(t *testing.T) {
	for name, text := range map[string]string{
		"length":  fine,
		"chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nA: b\r\n\r\n",
		"interim": "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + fine,
	} {
		t.Run(name, func(t *testing.T) {
			s := serveRaw(t, func(c net.Conn, n int) bool {
				if at := n - 2; at > 0 && at < len(text) {
					c.Write([]byte(text[:at]))
					runtime.Gosched()
					c.Write([]byte(text[at:]))
				} else if at == len(text) {
					for i := range text {
						c.Write([]byte(text[i : i+1]))
					}
				} else {
					c.Write([]byte(text))
				}
				return true
			})
			requests := uint64(len(text) + 4)
			r := exactly(t, Config{URL: s.url(), Connections: 1, Requests: requests})
			if r.Body != 5*requests || r.Bytes != uint64(len(text))*requests || r.Connect.Count() != 1 {
				t.Errorf("%d bytes of bodies, %d of all, %d connections", r.Body, r.Bytes, r.Connect.Count())
			}
		})
	}
}

// What is wrong with every third answer is counted as that, and the rest is as
// ever.
func TestWrongAnswers(t *testing.T) {
	for _, c := range []struct {
		name, text string
		kind       func(e *Errors) *uint64
		counted    bool // among the requests too
		goesOn     bool // the connection
	}{
		{"cut head", "HTTP/1.1 200 OK\r\nConte", func(e *Errors) *uint64 { return &e.Closed }, false, false},
		{"cut body", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", func(e *Errors) *uint64 { return &e.Closed }, false, false},
		{"nothing", "", func(e *Errors) *uint64 { return &e.Closed }, false, false},
		{"cut chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", func(e *Errors) *uint64 { return &e.Closed }, false, false},
		{"not HTTP", "hello\r\n", func(e *Errors) *uint64 { return &e.Protocol }, false, false},
		{"a byte too many", fine + "!", func(e *Errors) *uint64 { return &e.Protocol }, false, false},
		{"two answers", fine + fine, func(e *Errors) *uint64 { return &e.Protocol }, false, false},
		{"another length", "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello!", func(e *Errors) *uint64 { return &e.Unexpected }, true, true},
		{"another status", "HTTP/1.1 201 OK\r\nContent-Length: 5\r\n\r\nhello", func(e *Errors) *uint64 { return &e.Unexpected }, true, true},
		{"another length, chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhell\r\n0\r\n\r\n", func(e *Errors) *uint64 { return &e.Unexpected }, true, true},
		{"another length, to the end", "HTTP/1.1 200 OK\r\n\r\nhello, you", func(e *Errors) *uint64 { return &e.Unexpected }, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serveRaw(t, func(conn net.Conn, n int) bool {
				if n%3 != 0 {
					conn.Write([]byte(fine))
					return true
				}
				conn.Write([]byte(c.text))
				return c.goesOn
			})
			r, err := Run(t.Context(), Config{URL: s.url(), Connections: 1, Requests: 12, Duration: 30 * time.Second, Alike: true})
			if err != nil {
				t.Fatal(err)
			}
			consistent(t, r)
			got := *c.kind(&r.Errors)
			*c.kind(&r.Errors) = 0
			whole := uint64(12) // all that were sent, or those that were answered
			if !c.counted {
				whole -= got
			}
			if got < 4 || r.Errors.Sum() != 0 || r.Requests != whole {
				t.Errorf("%d of its kind, others %+v, %d requests", got, r.Errors, r.Requests)
			}
			if right := r.Latency.Count(); right != 12-got || right < 4 {
				t.Errorf("%d latencies", right)
			}
			if r.Answers[0].Status != 200 || r.Answers[0].Length != 5 {
				t.Errorf("the first answer is %+v", r.Answers[0])
			}
		})
	}
}

// A body that ends with the connection is an answer.
func TestAnswersToTheEnd(t *testing.T) {
	s := serveRaw(t, func(c net.Conn, _ int) bool {
		c.Write([]byte("HTTP/1.0 200 OK\r\n\r\nhello"))
		return false
	})
	if r := exactly(t, Config{URL: s.url(), Connections: 2, Requests: 10}); r.Body != 50 || r.Connect.Count() < 10 {
		t.Errorf("%d bytes of bodies, %d connections", r.Body, r.Connect.Count())
	}
}

// Bytes that come before the request that they might answer are not an answer.
func TestBytesThatNobodyAskedFor(t *testing.T) {
	s := serveRaw(t, func(c net.Conn, n int) bool {
		c.Write([]byte(fine))
		return true
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer l.Close()
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("220 smtp.example.org ESMTP\r\n"))
			wg.Go(func() {
				defer c.Close()
				c.SetReadDeadline(time.Now().Add(5 * time.Second))
				c.Read(make([]byte, 1000))
			})
		}
	})
	r, err := Run(t.Context(), Config{URL: "http://" + l.Addr().String(), Connections: 1, Duration: 100 * time.Millisecond})
	if err == nil || r.Requests != 0 || !strings.Contains(err.Error(), "220 smtp") {
		t.Errorf("a mail server: %v, %+v", err, r.Errors)
	}
	exactly(t, Config{URL: s.url(), Connections: 1, Requests: 5})
}

// A request that does not fit into the socket's buffers at once is sent as
// there is room.
func TestLongRequests(t *testing.T) {
	var long atomic.Int64
	s := serveRaw(t, func(c net.Conn, _ int) bool {
		long.Add(1)
		c.Write([]byte(fine))
		return true
	})
	// More than the buffers of both sides hold, and the server reads slowly.
	header := http.Header{"X-Long": {strings.Repeat("x", 8<<20)}}
	r := exactly(t, Config{URL: s.url(), Connections: 1, Requests: 2, Header: header})
	if long.Load() != 2 || r.Connect.Count() != 1 {
		t.Errorf("%d requests came, over %d connections", long.Load(), r.Connect.Count())
	}
}

// A target that says nothing is given up after the timeout, each time, and the
// connection opened anew.
func TestTimeouts(t *testing.T) {
	s := serveRaw(t, func(c net.Conn, n int) bool {
		if n%2 == 1 {
			c.Write([]byte(fine))
		}
		return true
	})
	r, err := Run(t.Context(), Config{URL: s.url(), Connections: 4, Requests: 12, Timeout: 50 * time.Millisecond, Duration: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	consistent(t, r)
	// Unless this machine is too slow for 50 ms, every second one.
	if r.Requests+r.Errors.Timeout != 12 || r.Errors.Timeout < 4 || r.Errors.Sum() != r.Errors.Timeout {
		t.Errorf("%d requests, errors %+v", r.Requests, r.Errors)
	}
}

// A target that never answers leaves a result, and an error.
func TestSilentTarget(t *testing.T) {
	s := serveRaw(t, func(net.Conn, int) bool { return true })
	r, err := Run(t.Context(), Config{URL: s.url(), Connections: 4, Duration: 50 * time.Millisecond})
	if err == nil || r.Unanswered != 4 || r.Requests != 0 || r.Errors.Sum() != 0 || r.InFlight < 2 || r.InFlight > 4.001 {
		t.Errorf("error %v, %+v", err, r)
	}
}

// A target that dies is counted, its place is knocked at now and then, and when
// it is back the load goes on.
func TestTargetDiesAndComesBack(t *testing.T) {
	var dying, died, back atomic.Bool
	unanswered := make(chan struct{}, 1)
	answer := func(c net.Conn, _ int) bool {
		if dying.Load() {
			select {
			case unanswered <- struct{}{}:
			default:
			}
			return false
		}
		c.Write([]byte(fine))
		return true
	}
	s := serveRaw(t, answer)
	address := s.Addr().String()
	var (
		second *raw
		since  uint64
	)
	ctx, enough := context.WithCancel(t.Context())
	r, err := Run(ctx, Config{
		URL: s.url(), Connections: 20, Duration: time.Minute, // far more than it takes
		Progress: func(tick Tick) {
			switch {
			case tick.Requests > 0 && !died.Load():
				dying.Store(true)
				<-unanswered
				s.stop()
				dying.Store(false)
				died.Store(true)
			case died.Load() && tick.Errors.Sum() > 0 && !back.Load() && tick.Open == 0:
				l, err := net.Listen("tcp", address)
				if err != nil {
					return // somebody else has it for now
				}
				second = &raw{Listener: l, answer: answer}
				second.wg.Go(second.accept)
				back.Store(true)
			case back.Load():
				if since += tick.Requests; since > 0 {
					enough()
				}
			}
		},
	})
	if second != nil {
		second.stop()
	}
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	consistent(t, r)
	if !back.Load() || since == 0 || r.Errors.Closed == 0 || r.Errors.Connect == 0 {
		t.Errorf("back: %v, answered since: %d, errors %+v", back.Load(), since, r.Errors)
	}
	// 32 at a time, after 10, 20, 40 … 500 ms.
	if most := 32 * (7 + 2*uint64(r.Took.Seconds()+1)); r.Errors.Connect > most {
		t.Errorf("it was knocked at %d times", r.Errors.Connect)
	}
}

// More source addresses than one are used in turn.
func TestSources(t *testing.T) {
	var mu sync.Mutex
	from := map[string]int{}
	s := serveRaw(t, func(c net.Conn, n int) bool {
		if n == 1 {
			mu.Lock()
			from[c.RemoteAddr().(*net.TCPAddr).IP.String()]++
			mu.Unlock()
		}
		c.Write([]byte(fine))
		return true
	})
	exactly(t, Config{URL: s.url(), Connections: 9, Sources: 3, Requests: 900})
	mu.Lock()
	defer mu.Unlock()
	if len(from) != 3 || from["127.0.0.2"] != 3 || from["127.0.0.4"] != 3 {
		t.Errorf("connections came from %v", from)
	}
}

// A UNIX socket whose backlog is full is waited for, up to the timeout: TCP does
// so by itself.
func TestFullBacklog(t *testing.T) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no UNIX socket here: %v", err)
	}
	defer unix.Close(fd)
	path := filepath.Join(t.TempDir(), "s")
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 1); err != nil { // and never accepts
		t.Fatal(err)
	}
	r, err := Run(t.Context(), Config{URL: "unix:" + path, Connections: 5, Timeout: 50 * time.Millisecond, Duration: 10 * time.Millisecond})
	if !errors.Is(err, ErrNoAnswer) || r.Connect.Count() == 0 || r.Connect.Count() > 4 || r.Errors.Connect == 0 {
		t.Errorf("error %v; %d connections, errors %+v", err, r.Connect.Count(), r.Errors)
	}
}
