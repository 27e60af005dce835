package h3_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/quicvarint"
	"go.uber.org/goleak"

	"millrace/internal/lane"
	"millrace/internal/observe/meter"
	"millrace/internal/process/servertest"
	"millrace/internal/route/site"
	"millrace/internal/server"
	"millrace/internal/server/h3"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// rig is a server that speaks HTTP/3.
type rig struct {
	t      *testing.T
	addr   *net.UDPAddr
	meters *meter.Meters
	srv    *server.Server
	tls    *tls.Config // of clients
	socket *quic.Transport
}

// pages are a small page, one that waits for its client to go, one that reads what it is
// sent, and a large one.
func pages() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "page") })
	mux.HandleFunc("/wait", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/upload", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) {
		piece := make([]byte, 64<<10)
		for range 1 << 10 {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	})
	return mux
}

func start(t *testing.T, limits server.Options) *rig {
	t.Helper()
	c := servertest.Make(t, "localhost", "localhost")
	cert, key := servertest.Files(t, c, t.TempDir())
	m := meter.New()
	r := &rig{t: t, meters: m, tls: &tls.Config{RootCAs: servertest.Pool(c), ServerName: "localhost", NextProtos: []string{http3.NextProtoH3}}}
	table := site.NewTable()
	table.Add(site.New(1, []*site.Route{{Pattern: "/", Handler: pages(), Job: m.Job("test")}}), nil)
	srv, err := server.New(server.Setup{
		TLS:    server.TLSOptions{Listen: []string{"127.0.0.1:0"}, Cert: cert, Key: key, HTTP3: true},
		Limits: limits, HTTP3: h3.Open, Plain: site.NewTable(), Secure: table,
	}, lane.Options{}, m, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r.srv = srv
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(context.Background()) }() // the cleanup waits
	t.Cleanup(func() {
		srv.Close()
		<-ended
	})
	if r.addr, err = net.ResolveUDPAddr("udp", strings.TrimPrefix(srv.Addrs()[0], "https://")); err != nil {
		t.Fatal(err)
	}
	r.socket = r.newSocket()
	return r
}

// newSocket is one that a client dials from.
func (r *rig) newSocket() *quic.Transport {
	r.t.Helper()
	pc, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		r.t.Fatal(err)
	}
	tr := &quic.Transport{Conn: pc}
	r.t.Cleanup(func() { _, _ = tr.Close(), pc.Close() })
	return tr
}

func (r *rig) dial(config *quic.Config) (*quic.Conn, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	return r.socket.Dial(ctx, r.addr, r.tls, config)
}

// client is a connection that speaks HTTP/3.
type client struct {
	*quic.Conn
	h3 *http3.ClientConn
}

func (r *rig) client(config *quic.Config) *client {
	r.t.Helper()
	qc, err := r.dial(config)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = qc.CloseWithError(0, "") })
	return &client{qc, (&http3.Transport{DisableCompression: true}).NewClientConn(qc)}
}

func (c *client) get(ctx context.Context, path string, header http.Header) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://localhost"+path, nil)
	if err != nil {
		return nil, err
	}
	if header != nil {
		q.Header = header
	}
	return c.h3.RoundTrip(q)
}

// page asks for a page, which must come.
func (c *client) page(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp, err := c.get(ctx, "/", nil)
	if err != nil {
		t.Errorf("a page: %v", err)
		return
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "page" {
		t.Errorf("a page: %s %q, %v", resp.Status, text, err)
	}
}

// half is the beginning of a request: a HEADERS frame of 1000 bytes, of which only
// some come.
func (c *client) half(t *testing.T) *quic.Stream {
	t.Helper()
	str, err := c.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	frame := quicvarint.Append(quicvarint.Append(nil, 1), 1000) // RFC 9114, 7.2.2
	if _, err := str.Write(append(frame, "some"...)); err != nil {
		t.Fatal(err)
	}
	return str
}

// heap is what is in use after a collection.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// A header that does not come is waited for as long as header_timeout says, and
// its client's other requests are answered. Those that do not begin at all end
// with it, too.
func TestHeaderTimeout(t *testing.T) {
	r := start(t, server.Options{HeaderTimeout: 300 * time.Millisecond})
	c := r.client(nil)
	var halves []*quic.Stream
	for range 5 {
		halves = append(halves, c.half(t))
	}
	c.page(t)
	for _, str := range halves {
		_ = str.SetReadDeadline(time.Now().Add(patience))
		_, err := str.Read(make([]byte, 1))
		end, ok := errors.AsType[*quic.StreamError](err)
		if !ok || end.ErrorCode != quic.StreamErrorCode(http3.ErrCodeRequestIncomplete) {
			t.Errorf("half a request: %v", err)
		}
	}
	servertest.Eventually(t, "five headers are counted", func() bool { return r.meters.HTTP3Refused.Headers.Load() == 5 })
	for range 80 { // more than may be on their way at once
		c.half(t)
	}
	servertest.Eventually(t, "all are counted", func() bool { return r.meters.HTTP3Refused.Headers.Load() == 85 })
	c.page(t)
}

// A client gets no more streams than it may have at once.
func TestStreams(t *testing.T) {
	r := start(t, server.Options{})
	c := r.client(nil)
	for n := 0; ; n++ {
		if _, err := c.OpenStream(); err != nil {
			if _, ok := errors.AsType[*quic.StreamLimitReachedError](err); !ok || n != 100 {
				t.Errorf("after %d streams: %v", n, err)
			}
			return
		}
	}
}

// A session is resumed, but nothing is taken before its handshake is over.
func TestNo0RTT(t *testing.T) {
	r := start(t, server.Options{})
	tickets := &counted{ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	r.tls = r.tls.Clone()
	r.tls.ClientSessionCache = tickets
	r.client(nil).page(t)
	servertest.Eventually(t, "there is a ticket", func() bool { return tickets.put.Load() > 0 })
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	c, err := r.socket.DialEarly(ctx, r.addr, r.tls, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseWithError(0, "")
	select {
	case <-c.HandshakeComplete():
	case <-ctx.Done():
		t.Fatal("no handshake")
	}
	if s := c.ConnectionState(); !s.TLS.DidResume || s.Used0RTT {
		t.Errorf("resumed %v, with 0-RTT %v", s.TLS.DidResume, s.Used0RTT)
	}
}

// counted counts the tickets that come.
type counted struct {
	tls.ClientSessionCache
	put atomic.Int64
}

// Put implements [tls.ClientSessionCache].
func (c *counted) Put(key string, state *tls.ClientSessionState) {
	c.ClientSessionCache.Put(key, state)
	c.put.Add(1)
}

// A header that is too long is answered with 431, and the connection goes on.
func TestHeaderBytes(t *testing.T) {
	r := start(t, server.Options{HeaderBytes: 8 << 10})
	c := r.client(nil)
	for _, n := range []int{4 << 10, 9 << 10, 200 << 10} {
		resp, err := c.get(t.Context(), "/", http.Header{"X-Long": {strings.Repeat("x", n)}})
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		_ = resp.Body.Close()
		want := http.StatusRequestHeaderFieldsTooLarge
		if n < 8<<10 {
			want = http.StatusOK
		}
		if resp.StatusCode != want {
			t.Errorf("%d bytes: %s", n, resp.Status)
		}
	}
	c.page(t)
}

// An address has as many connections as it may. One more takes the place of one
// that is idle, or is refused.
func TestConnectionsPerAddress(t *testing.T) {
	r := start(t, server.Options{ConnectionsPerAddress: 4})
	idle := r.client(nil)
	idle.page(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var busy sync.WaitGroup
	for range 3 {
		c := r.client(nil)
		busy.Go(func() { _, _ = c.get(ctx, "/wait", nil) })
	}
	servertest.Eventually(t, "an idle connection makes room", func() bool { // when it has been idle for a while
		c, err := r.dial(nil)
		if err != nil {
			return false
		}
		go func() { _, _ = (&client{c, (&http3.Transport{}).NewClientConn(c)}).get(ctx, "/wait", nil) }() // ends with ctx
		return true
	})
	<-idle.Context().Done()
	refused := r.meters.Rejected.Load()
	servertest.Eventually(t, "four are busy", func() bool { return r.meters.HTTP3Requests.Load() >= 5 })
	_, err := r.dial(nil)
	if end, ok := errors.AsType[*quic.TransportError](err); !ok || end.ErrorCode != quic.ConnectionRefused {
		t.Errorf("a fifth connection: %v", err)
	}
	if r.meters.Rejected.Load() == refused {
		t.Error("it is not counted")
	}
	cancel()
	busy.Wait()
}

// A client that asks and takes it back, over and over, is cut off and counted, and
// costs the others nothing.
func TestRapidReset(t *testing.T) {
	for name, reset := range map[string]func(t *testing.T, c *client){
		"whole requests": func(t *testing.T, c *client) {
			ctx, cancel := context.WithCancel(t.Context())
			str, err := c.h3.OpenRequestStream(ctx)
			if err == nil {
				q, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://localhost/wait", nil)
				_ = str.SendRequestHeader(q)
				str.CancelRead(quic.StreamErrorCode(http3.ErrCodeRequestCanceled))
				str.CancelWrite(quic.StreamErrorCode(http3.ErrCodeRequestCanceled))
			}
			cancel()
		},
		"parts of requests": func(_ *testing.T, c *client) {
			str, err := c.OpenStreamSync(c.Context())
			if err == nil {
				_, _ = str.Write([]byte{1})
				str.CancelRead(quic.StreamErrorCode(http3.ErrCodeRequestCanceled))
				str.CancelWrite(quic.StreamErrorCode(http3.ErrCodeRequestCanceled))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, server.Options{})
			good := r.client(nil)
			good.page(t)
			before := heap()
			c, sent := r.client(nil), 0
			for ; c.Context().Err() == nil && sent < 100_000; sent++ {
				reset(t, c)
				if sent%100 == 0 {
					good.page(t)
				}
			}
			end, ok := errors.AsType[*quic.ApplicationError](context.Cause(c.Context()))
			if !ok || end.ErrorCode != quic.ApplicationErrorCode(http3.ErrCodeExcessiveLoad) {
				t.Errorf("after %d resets: %v", sent, context.Cause(c.Context()))
			}
			if n := r.meters.HTTP3Refused.Resets.Load() + r.meters.HTTP3Refused.Requests.Load(); n != 1 {
				t.Errorf("%d connections are counted", n)
			}
			if grown := heap() - before; grown > 16<<20 {
				t.Errorf("%d MiB are held after %d resets", grown>>20, sent)
			}
			good.page(t)
		})
	}
}

// deaf is a socket that sends and hears nothing.
type deaf struct {
	net.PacketConn
	closed chan struct{}
	once   sync.Once
}

func (d *deaf) ReadFrom([]byte) (int, net.Addr, error) {
	<-d.closed
	return 0, nil, net.ErrClosed
}

func (d *deaf) Close() error {
	d.once.Do(func() { close(d.closed) })
	return d.PacketConn.Close()
}

// listening notes Retry packets.
type listening struct {
	net.PacketConn
	mu      sync.Mutex
	retries int
}

func (l *listening) ReadFrom(p []byte) (int, net.Addr, error) {
	n, from, err := l.PacketConn.ReadFrom(p)
	if n > 0 && p[0]&0xf0 == 0xf0 { // RFC 9000, 17.2.5
		l.mu.Lock()
		l.retries++
		l.mu.Unlock()
	}
	return n, from, err
}

// With many handshakes under way new clients must prove their address, which they
// can. Handshakes that do not go on end with handshake_timeout.
func TestRetryUnderLoad(t *testing.T) {
	r := start(t, server.Options{HandshakeTimeout: 6 * time.Second})
	open := func() (*listening, error) {
		pc, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l := &listening{PacketConn: pc}
		tr := &quic.Transport{Conn: l}
		defer func() { _, _ = tr.Close(), pc.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		c, err := tr.Dial(ctx, r.addr, r.tls, nil)
		if err == nil {
			_ = c.CloseWithError(0, "")
		}
		return l, err
	}
	if l, err := open(); err != nil || l.retries != 0 {
		t.Fatalf("nothing happens, and %d Retry packets: %v", l.retries, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var stalled sync.WaitGroup
	for range 120 {
		pc, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		d := &deaf{PacketConn: pc, closed: make(chan struct{})}
		tr := &quic.Transport{Conn: d}
		stalled.Go(func() {
			_, _ = tr.Dial(ctx, r.addr, r.tls, nil)
			_, _ = d.Close(), tr.Close()
		})
	}
	servertest.Eventually(t, "the handshakes are under way", func() bool { return r.meters.HTTP3Connections.Load() >= 100 })
	if l, err := open(); err != nil || l.retries == 0 { // one for each of its first packets
		t.Errorf("under load: %d Retry packets, %v", l.retries, err)
	}
	if n := r.meters.HTTP3Connections.Load(); n > 110 {
		t.Errorf("%d connections of clients that have not proved their address", n)
	}
	cancel()
	stalled.Wait()
	servertest.Eventually(t, "the stalled handshakes are over", func() bool { return r.meters.HTTP3Connections.Load() == 0 })
	if l, err := open(); err != nil || l.retries != 0 {
		t.Errorf("afterwards: %d Retry packets, %v", l.retries, err)
	}
}

// 500 clients that take next to nothing of a large answer, and send their requests
// slowly, hold little memory and nobody up, and are cut off in time.
func TestSlowClients(t *testing.T) {
	const slow = 500
	r := start(t, server.Options{WriteTimeout: 2 * time.Second, HeaderTimeout: 2 * time.Second, StalledStreams: 4 * slow})
	good := r.client(nil)
	good.page(t)
	before := heap()
	narrow := &quic.Config{InitialStreamReceiveWindow: 2 << 10, MaxStreamReceiveWindow: 2 << 10, InitialConnectionReceiveWindow: 4 << 10, MaxConnectionReceiveWindow: 4 << 10}
	answers := make(chan *http.Response, slow)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var opening sync.WaitGroup
	for range slow / 10 {
		opening.Go(func() {
			for n := 0; n < 10 && ctx.Err() == nil; {
				qc, err := r.dial(narrow)
				if err != nil {
					continue // refused: too many at one moment
				}
				c := &client{qc, (&http3.Transport{DisableCompression: true}).NewClientConn(qc)}
				resp, err := c.get(ctx, "/large", nil)
				if err != nil {
					continue
				}
				answers <- resp // nobody reads it
				c.half(t)
				n++
			}
		})
	}
	opened := make(chan struct{})
	go func() { opening.Wait(); close(opened) }()
	for waiting := true; waiting; {
		good.page(t)
		select {
		case <-opened:
			waiting = false
		default:
		}
	}
	if n := r.meters.HTTP3Connections.Load(); n < slow {
		t.Errorf("%d connections of %d", n, slow)
	}
	good.page(t)
	grown := heap() - before
	t.Logf("%d KiB for each slow client and its connection here", grown>>10/slow)
	if grown > slow*400<<10 {
		t.Errorf("%d slow clients hold %d MiB, those of the clients here among it", slow, grown>>20)
	}
	servertest.Eventually(t, "half requests have ended", func() bool { return r.meters.HTTP3Refused.Headers.Load() == slow })
	close(answers)
	for resp := range answers {
		if _, err := io.Copy(io.Discard, resp.Body); err == nil {
			t.Error("a whole answer came to a client that had read nothing of it for too long")
			return
		}
		_ = resp.Body.Close()
	}
	good.page(t)
}

// A small buffer is told, with what to type.
func TestSmallBuffers(t *testing.T) {
	var b bytes.Buffer
	pc, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	if err := errors.Join(pc.SetReadBuffer(4096), pc.SetWriteBuffer(4096)); err != nil {
		t.Skip(err)
	}
	h3.CheckBuffers(pc, slog.New(slog.NewTextHandler(&b, nil)))
	if runtime.GOOS == "linux" && !strings.Contains(b.String(), "sysctl -w net.core.rmem_max=7500000") {
		t.Errorf("it says %q", b.String())
	}
}
