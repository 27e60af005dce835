package conn

import (
	"crypto/tls"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"millrace/internal/process/servertest"
	"millrace/websocket/frame"
)

// certificate is one that nobody has signed.
func certificate(tb testing.TB) *tls.Config {
	tb.Helper()
	return &tls.Config{Certificates: []tls.Certificate{servertest.Make(tb, "test", "test")}}
}

// secure is a pair of connections over TLS, after their handshake: the client and
// the server.
func secure(tb testing.TB, config *tls.Config, ours, theirs net.Conn) (_, _ *tls.Conn) {
	tb.Helper()
	client := tls.Client(ours, &tls.Config{InsecureSkipVerify: true, ServerName: "test"})
	server := tls.Server(theirs, config)
	done := make(chan error, 1)
	go func() { done <- server.Handshake() }()
	if err := client.Handshake(); err != nil {
		tb.Fatal(err)
	}
	if err := <-done; err != nil {
		tb.Fatal(err)
	}
	return client, server
}

// tlsPeer is a client over TLS.
type tlsPeer struct {
	*peer
	tls *tls.Conn
}

func (p *tlsPeer) Write(b []byte) (int, error) { return p.tls.Write(b) }

func (r *rig) connectTLS(s *Settings) *tlsPeer {
	r.Helper()
	ours, theirs := r.pair()
	client, server := secure(r.T, certificate(r.T), ours, theirs)
	if err := r.engine.Adopt(server, nil, s, frame.Params{}, nil); err != nil {
		r.Fatal(err)
	}
	return &tlsPeer{&peer{T: r.T, TCPConn: ours}, client}
}

// read reads frames until one of a message's end.
func (p *tlsPeer) read() (frame.Opcode, string) {
	p.Helper()
	all := ""
	var op frame.Opcode
	for {
		for {
			h, n, err := frame.Parse(p.buf)
			if err != nil {
				p.Fatal(err)
			}
			if n == 0 || int64(len(p.buf)-n) < h.Length {
				break
			}
			all += string(p.buf[n : n+int(h.Length)])
			p.buf = p.buf[n+int(h.Length):]
			if h.Op != frame.Continuation {
				op = h.Op
			}
			if h.Fin {
				return op, all
			}
		}
		var b [32 << 10]byte
		n, err := p.tls.Read(b[:])
		if p.buf = append(p.buf, b[:n]...); err != nil && n == 0 {
			p.Fatalf("reading: %v", err)
		}
	}
}

func TestTLS(t *testing.T) {
	for name, settings := range apps() {
		t.Run(name, func(t *testing.T) {
			done := make(chan frame.Code, 1)
			r := &rig{T: t}
			p := r.connectTLS(settings(done))
			for _, s := range []string{"", "a", strings.Repeat("b", 250), strings.Repeat("c", 1000), strings.Repeat("d", 300_000)} {
				go func() { _, _ = p.Write(text(s)) }()
				if op, got := p.read(); op != frame.Text || got != s {
					t.Fatalf("got %d bytes for %d", len(got), len(s))
				}
			}
			_, _ = p.Write(packet(frame.Close, true, false, []byte{0x03, 0xe8}))
			if op, _ := p.read(); op != frame.Close {
				t.Errorf("got opcode %d", op)
			}
			if n, err := p.tls.Read(make([]byte, 1)); n != 0 || err == nil || err.Error() != "EOF" {
				t.Errorf("the end is %d, %v; want TLS's own farewell", n, err)
			}
			p.tls.Close()
			if code := <-done; code != frame.Normal {
				t.Errorf("the App was told %d", code)
			}
		})
	}
}

// TestTLSStuck: nobody waits for the farewell of TLS where the client does not read.
func TestTLSStuck(t *testing.T) {
	r := &rig{T: t}
	app := &handleApp{opened: make(chan Handle, 1)}
	app.done = make(chan frame.Code, 1)
	s := &Settings{App: app, MaxMessage: 100, Queue: 1 << 20, QueueLength: 50}
	p := r.connectTLS(s)
	h := <-app.opened
	rw := h.c.driver.rw
	if !takesMore(rw) {
		t.Error("a client that reads is not told")
	}
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for s.Meters.Dropped.Each(func(string, uint64) {}); len(reasons(&s.Meters.Dropped)) == 0; {
			do(h, func(c *Conn) { c.Deliver(binary(64<<10, 'a')) })
		}
	}()
	<-stop
	if takesMore(rw) {
		t.Error("a client that does not read would be waited for")
	}
	r.engine.Leave(s, frame.GoingAway, 0, 0)
	if n := s.Open(); n != 0 {
		t.Errorf("%d are open", n)
	}
	if code := <-app.done; code != frame.TryAgainLater {
		t.Errorf("the App was told %d", code)
	}
	nothingLeft(t, s)
	p.Close()
}

// BenchmarkIdleTLS is what a quiet connection over TLS takes, but for what the
// system has of it.
func BenchmarkIdleTLS(b *testing.B) {
	const conns = 1000
	config := certificate(b)
	for b.Loop() {
		e := NewEngine(nil)
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		s := &Settings{App: &echoApp{}, MaxMessage: 1 << 16, Ping: time.Hour}
		var clients []*rawClient
		before := inUse()
		for range conns {
			clients = append(clients, idleClient(b, e, ln, config, s))
		}
		time.Sleep(parkAfter + 2*tickTime) // until they are quiet
		heap, stack := inUse().minus(before)
		b.ReportMetric(float64(heap)/conns, "heap-B/conn")
		b.ReportMetric(float64(stack)/conns, "stack-B/conn")
		for _, c := range clients {
			c.close()
		}
		ln.Close()
		_ = e.Close()
	}
}

// idleClient connects and says something of the length of a subscription with
// a token. Of the client's side nothing is kept but the descriptor.
func idleClient(b *testing.B, e *Engine, ln net.Listener, config *tls.Config, s *Settings) *rawClient {
	ours, theirs := pairOf(b, ln)
	client, server := secure(b, config, ours, theirs)
	if err := e.Adopt(server, nil, s, frame.Params{}, nil); err != nil {
		b.Fatal(err)
	}
	message := strings.Repeat("x", 700)
	if _, err := client.Write(text(message)); err != nil {
		b.Fatal(err)
	}
	for n := 0; n < 704; {
		k, err := client.Read(make([]byte, 1024))
		if n += k; err != nil {
			b.Fatal(err)
		}
	}
	return keepOpen(b, ours)
}

type memory struct{ heap, stack uint64 }

// inUse is what is in use after a collection.
func inUse() memory {
	for range 3 {
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return memory{m.HeapAlloc, m.StackInuse}
}

func (m memory) minus(n memory) (heap, stack int64) {
	return int64(m.heap - n.heap), int64(m.stack - n.stack)
}
