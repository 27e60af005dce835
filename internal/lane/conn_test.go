package lane

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/observe/meter"
	"millrace/internal/route/site"
)

// bench is a lane with one site under which "/" is hot.
type bench struct {
	lane   *Lane
	scope  *Scope
	meters *meter.Meters
}

func newBench(tb testing.TB, s Settings) *bench {
	tb.Helper()
	m := meter.New()
	b := &bench{scope: &Scope{}, meters: m}
	sites := site.NewTable()
	sites.Add(site.New(1, nil), nil)
	b.scope.Sites.Store(sites)
	b.lane = New(Options{}, s, []*Scope{b.scope}, m)
	r := newResponse(answerOf("hello\n"), Rule{}, m.Job("test"))
	b.lane.table.put(key{1, "/", false}, demands{}, variant{response: r})
	return b
}

var patient = Settings{Header: time.Hour, Body: time.Hour, Write: time.Hour, Idle: time.Hour}

const hotRequest = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

// socketPair is a connection over a UNIX socket.
func socketPair(tb testing.TB) (server, client net.Conn) {
	tb.Helper()
	ln, err := net.Listen("unix", filepath.Join(tb.TempDir(), "s"))
	if err != nil {
		tb.Fatal(err)
	}
	defer ln.Close()
	if client, err = net.Dial("unix", ln.Addr().String()); err != nil {
		tb.Fatal(err)
	}
	if server, err = ln.Accept(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _, _ = server.Close(), client.Close() })
	return server, client
}

// hotCostsNothing asks for a hot answer many times and counts the allocations
// of the whole process.
func hotCostsNothing(t *testing.T, client net.Conn) {
	t.Helper()
	in, out := []byte(hotRequest), make([]byte, 4096)
	round := func() {
		if _, err := client.Write(in); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Read(out); err != nil {
			t.Fatal(err)
		}
	}
	// The average over many, rounded down: the date once a second may cost some.
	if n := testing.AllocsPerRun(2000, round); n != 0 {
		t.Errorf("%v allocations for each request", n)
	}
}

// A hot request costs no allocation, from the socket to the socket.
func TestHotRequestAllocates(t *testing.T) {
	b := newBench(t, patient)
	defer b.lane.Close()
	server, client := socketPair(t)
	c := b.lane.NewConn(server, b.scope, nil)
	done := make(chan error, 1)
	go func() { // ends when the client closes
		_, err := c.Read(make([]byte, 4096))
		done <- err
	}()
	hotCostsNothing(t, client)
	_ = client.Close()
	if err := <-done; !errors.Is(err, io.EOF) {
		t.Errorf("Read ends with %v", err)
	}
	_ = c.Close()
}

// countingConn answers one Read with everything and counts the writes.
type countingConn struct {
	net.Conn
	in     *strings.Reader
	writes int
	bytes  int
}

func (c *countingConn) Read(p []byte) (int, error) { return c.in.Read(p) }
func (c *countingConn) Write(p []byte) (int, error) {
	c.writes++
	c.bytes += len(p)
	return len(p), nil
}
func (c *countingConn) Close() error         { return nil }
func (c *countingConn) RemoteAddr() net.Addr { return nil }

// Requests that came together are answered together.
func TestPipelineIsAnsweredInFewWrites(t *testing.T) {
	b := newBench(t, patient)
	defer b.lane.Close()
	const n = 100
	nc := &countingConn{in: strings.NewReader(strings.Repeat(hotRequest, n))}
	c := b.lane.NewConn(nc, b.scope, nil)
	if _, err := c.Read(make([]byte, 4096)); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	answers := int(b.meters.Job("test").Fast.Requests())
	if answers != n || nc.writes > 2 {
		t.Errorf("%d answers in %d writes, want %d in at most 2", answers, nc.writes, n)
	}
	_ = c.Close()
}

// A client that pipelines and never reads makes the server hold one batch, not
// an answer for each request.
func TestPipelineOfOneThatNeverReads(t *testing.T) {
	b := newBench(t, patient)
	defer b.lane.Close()
	r := newResponse(answerOf(strings.Repeat("x", 15<<10)), Rule{}, b.meters.Job("test"))
	b.lane.table.put(key{1, "/", false}, demands{}, variant{response: r})
	server, client := socketPair(t)
	c := b.lane.NewConn(server, b.scope, nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = c.Read(make([]byte, 4096))
	}()
	_ = client.SetWriteDeadline(time.Now().Add(300 * time.Millisecond)) // the pipe must fill up
	n, _ := io.WriteString(client, strings.Repeat(hotRequest, 100_000))
	asked, answered := n/len(hotRequest), int(b.meters.Job("test").Fast.Requests())
	if answered > 2000 || answered >= asked {
		t.Errorf("%d of %d requests were answered into nowhere", answered, asked)
	}
	_ = client.Close()
	<-done
	_ = c.Close()
}

// pipeServer is net/http behind the lane on one end of a net.Pipe, to be used
// in a bubble of synctest.
func (b *bench) pipeServer(h http.HandlerFunc) (client net.Conn, stop func()) {
	near, far := net.Pipe()
	conns := make(chan net.Conn, 1)
	conns <- b.lane.NewConn(near, b.scope, nil)
	srv := &http.Server{
		Handler:   h,
		ConnState: OnState,
		ConnContext: func(ctx context.Context, nc net.Conn) context.Context {
			c, _ := FromNet(nc)
			return WithConn(ctx, c)
		},
	}
	ln := &chanListener{conns: conns}
	go func() { _ = srv.Serve(ln) }()
	return far, func() {
		_ = srv.Close()
		_ = far.Close()
		b.lane.Close()
	}
}

// chanListener accepts what is in the channel, until Close.
type chanListener struct {
	conns chan net.Conn
	once  sync.Once
}

func (l *chanListener) Accept() (net.Conn, error) {
	if nc, ok := <-l.conns; ok {
		return nc, nil
	}
	return nil, net.ErrClosed
}

func (l *chanListener) Close() error {
	l.once.Do(func() { close(l.conns) })
	return nil
}

func (*chanListener) Addr() net.Addr { return &net.UnixAddr{} }

// cutAfter returns how long the connection lives from now on.
func cutAfter(c net.Conn) time.Duration {
	began := time.Now()
	_, _ = io.Copy(io.Discard, c)
	return time.Since(began)
}

// The lane's clock, to the millisecond. Every deadline is met within a quarter
// of the shortest timeout.
func TestDeadlines(t *testing.T) {
	s := Settings{Header: 20 * time.Second, Body: 30 * time.Second, Write: 40 * time.Second, Idle: 50 * time.Second}
	const slack = time.Second
	ask := func(t *testing.T, c net.Conn, text string) {
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); err != nil {
			t.Fatal(err)
		}
	}
	slowRequest := strings.Replace(hotRequest, "/", "/slow", 1)
	for name, c := range map[string]struct {
		do   func(t *testing.T, c net.Conn)
		want time.Duration
	}{
		"new":       {func(*testing.T, net.Conn) {}, s.Idle},
		"hot":       {func(t *testing.T, c net.Conn) { ask(t, c, hotRequest) }, s.Idle},
		"slow":      {func(t *testing.T, c net.Conn) { ask(t, c, slowRequest) }, s.Idle},
		"half head": {func(_ *testing.T, c net.Conn) { _, _ = io.WriteString(c, "GET / HT") }, s.Header},
		"dribbled head": {func(_ *testing.T, c net.Conn) {
			for range 15 {
				_, _ = io.WriteString(c, "GET /xxxxxxxxxxxxxx"[:1])
				time.Sleep(time.Second)
			}
		}, s.Header - 15*time.Second},
		"half head after hot": {func(t *testing.T, c net.Conn) {
			ask(t, c, hotRequest)
			time.Sleep(s.Idle / 2)
			_, _ = io.WriteString(c, "GET / HT")
		}, s.Header},
		"half slow head": {func(_ *testing.T, c net.Conn) { _, _ = io.WriteString(c, "POST / HTTP/1.1\r\nX: y\r\n") }, s.Header},
		"stalled body": {func(_ *testing.T, c net.Conn) {
			_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx")
			time.Sleep(s.Body * 3 / 4)
			_, _ = io.WriteString(c, "y")
		}, s.Body},
		"stalled chunks": {func(_ *testing.T, c net.Conn) {
			_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nx")
		}, s.Body},
		"busy for long": {func(t *testing.T, c net.Conn) {
			for range 20 {
				time.Sleep(s.Idle * 3 / 4)
				ask(t, c, hotRequest)
			}
		}, s.Idle},
		"long handler": {func(t *testing.T, c net.Conn) { ask(t, c, strings.Replace(hotRequest, "/", "/long", 1)) }, s.Idle},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, s)
				client, stop := b.pipeServer(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/long" {
						time.Sleep(10 * time.Minute)
					}
					_, _ = io.Copy(io.Discard, r.Body)
					_, _ = io.WriteString(w, "slow")
				})
				c.do(t, client)
				if got := cutAfter(client); got < c.want-slack || got > c.want+2*slack {
					t.Errorf("cut after %v, want %v", got, c.want)
				}
				stop()
			})
		})
	}
}

// Nobody reads: the write timeout ends it, for both lanes.
func TestWriteDeadline(t *testing.T) {
	s := Settings{Header: 20 * time.Second, Body: 30 * time.Second, Write: 40 * time.Second, Idle: 3 * time.Second}
	for _, path := range []string{"/", "/slow"} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, s)
			client, stop := b.pipeServer(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "slow") })
			began := time.Now()
			if _, err := io.WriteString(client, strings.Replace(hotRequest, "/", path, 1)); err != nil {
				t.Fatal(err)
			}
			for b.lane.Open() > 0 {
				time.Sleep(100 * time.Millisecond)
			}
			if d := time.Since(began); d < s.Write || d > s.Write+2*time.Second {
				t.Errorf("%s: cut after %v", path, d)
			}
			stop()
		})
	}
}

func TestDrainLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, patient)
		client, stop := b.pipeServer(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "slow") })
		b.lane.Drain()
		if got := cutAfter(client); got < drainLinger || got > 3*drainLinger {
			t.Errorf("an idle connection lives for %v in a drain", got)
		}
		near, far := net.Pipe()
		late := b.lane.NewConn(near, b.scope, nil) // accepted during the drain
		go func() {
			_, _ = late.Read(make([]byte, 4096))
			_ = late.Close()
		}()
		if got := cutAfter(far); got < drainLinger || got > 3*drainLinger {
			t.Errorf("a late connection lives for %v in a drain", got)
		}
		stop()
	})
}

// As long as others may be asked instead, an idle connection stays open until its
// client asks once more, and then the answer is the last; or for the idle timeout.
func TestDrainWaitsForTheNextRequest(t *testing.T) {
	for _, path := range []string{"/", "/slow"} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, Settings{Header: time.Hour, Body: time.Hour, Write: time.Hour, Idle: 75 * time.Second})
			client, stop := b.pipeServer(func(w http.ResponseWriter, r *http.Request) {
				if b.lane.LastAnswer(r) {
					w.Header().Set("Connection", "close")
				}
				_, _ = io.WriteString(w, "slow")
			})
			in := bufio.NewReader(client)
			for _, last := range []bool{false, true} {
				if _, err := io.WriteString(client, strings.Replace(hotRequest, "/", path, 1)); err != nil {
					t.Fatal(err)
				}
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadAll(resp.Body); err != nil || resp.Close != last {
					t.Errorf("%s: the last answer: %v, %v", path, resp.Close, err)
				}
				if !last {
					b.lane.DrainRequests()
					time.Sleep(70 * time.Second)
				}
			}
			if _, err := in.ReadByte(); err != io.EOF {
				t.Errorf("%s: behind the last answer: %v", path, err)
			}
			near, far := net.Pipe()
			late := b.lane.NewConn(near, b.scope, nil)
			go func() {
				_, _ = late.Read(make([]byte, 4096))
				_ = late.Close()
			}()
			if got := cutAfter(far); got < 75*time.Second || got > 77*time.Second {
				t.Errorf("an idle connection lives for %v", got)
			}
			stop()
		})
	}
}

// Whatever ends a connection, its end is told once.
func TestCloseOnce(t *testing.T) {
	b := newBench(t, patient)
	defer b.lane.Close()
	server, _ := socketPair(t)
	gone := 0
	c := b.lane.NewConn(server, b.scope, func() { gone++ })
	var wg sync.WaitGroup
	var closed sync.Map
	for i := range 8 {
		wg.Go(func() { closed.Store(i, c.Close()) })
	}
	wg.Wait()
	if gone != 1 || b.lane.Open() != 0 || b.meters.Connections.Load() != 0 {
		t.Errorf("told %d times, %d open, %d counted", gone, b.lane.Open(), b.meters.Connections.Load())
	}
}
