package websocket_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"millrace/internal/process/servertest"
	"millrace/internal/upstream"
	"millrace/proxy"
	"millrace/websocket"
	"millrace/websocket/conn"
)

// patience is how long a test waits for anything. It is never reached but by a
// test that fails.
const patience = time.Minute

// front is one of the ways to reach the echo.
type front struct {
	name    string
	addr    string
	url     string
	tls     *tls.Config // nil: plain
	h2      bool
	number  int // among all ways
	handler *websocket.Handler
}

// serve starts a server for a handler.
func serve(t *testing.T, name string, secure bool, h *websocket.Handler) front {
	t.Helper()
	f := front{name: name, handler: h}
	protocol := "h1"
	if secure {
		protocol = "tls"
	}
	s := servertest.Serve(t, protocol, h, func(s *httptest.Server) {
		if !secure {
			return
		}
		cert := servertest.Make(t, "echo", "echo.example")
		s.EnableHTTP2 = extended()
		// Less than a connection has, or one stream that stands still is enough
		// to stop the others of its connection.
		s.Config.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 256 << 10}
		s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, CurvePreferences: []tls.CurveID{tls.X25519}}
		f.tls = &tls.Config{RootCAs: servertest.Pool(cert), ServerName: "echo.example"}
	})
	f.addr, f.url = s.Listener.Addr().String(), s.URL
	return f
}

// newHandler makes a handler that ends with the test.
func newHandler(t *testing.T, e *conn.Engine, o websocket.Options, pool *upstream.Pool) *websocket.Handler {
	t.Helper()
	h, err := websocket.New(o, websocket.Deps{Engine: e, Pool: pool, ErrorLog: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func newEngine(t *testing.T) *conn.Engine {
	e := conn.NewEngine(nil)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// through starts a proxy in front of one of the others.
func (f front) through(t *testing.T, e *conn.Engine, name string, secure bool) front {
	t.Helper()
	to := upstream.Options{To: []string{f.url}}
	to.TLS.Insecure = f.tls != nil
	o := websocket.Options{Proxy: &proxy.Options{Options: to}}
	pool, err := upstream.New(o.ProxyOptions().Options, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	return serve(t, name, secure, newHandler(t, e, o, pool))
}

func echoOptions() websocket.Options { return websocket.Options{Echo: &websocket.Echo{}} }

// allFronts are all ways to an echo.
func allFronts(t *testing.T, o websocket.Options) []front {
	t.Helper()
	e := newEngine(t)
	plain := serve(t, "plain", false, newHandler(t, e, o, nil))
	secure := serve(t, "tls", true, newHandler(t, e, o, nil))
	if extended() {
		secure.name, secure.h2 = "h2", true
		joined := plain.through(t, e, "h2, proxy", true)
		joined.h2 = true
		return []front{secure, joined}
	}
	return []front{
		plain, secure,
		plain.through(t, e, "proxy", false),
		plain.through(t, e, "tls, proxy", true),
		secure.through(t, e, "proxy, tls", false),
	}
}

// manyCases is from how many on each case is run over some of the ways only.
const manyCases = 150

// has reports whether case i of n is run over this way. Where there are few, all
// are; of many, and over HTTP/2, each over every second way, and over the plain
// one; under the race detector over every fourth.
func (f front) has(i, n int) bool {
	switch {
	case underRace:
		return i%4 == f.number%4
	case f.h2, n > manyCases && f.number > 0:
		return i%2 == f.number%2
	}
	return true
}

// onAll runs a test over all ways at once.
func onAll(t *testing.T, o websocket.Options, f func(t *testing.T, f front)) {
	for i, way := range allFronts(t, o) {
		way.number = i
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			f(t, way)
		})
	}
}

// connect is a connection on which nothing was said.
func (f front) connect(t testing.TB) net.Conn {
	t.Helper()
	var nc net.Conn
	var err error
	if f.tls != nil {
		nc, err = tls.Dial("tcp", f.addr, f.tls)
	} else {
		nc, err = net.Dial("tcp", f.addr)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(patience))
	return nc
}

// sampleKey is the key of RFC 6455, 1.3, and its answer.
const (
	sampleKey    = "dGhlIHNhbXBsZSBub25jZQ=="
	sampleAnswer = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
)

// request is a handshake with more fields.
func request(more ...string) string {
	s := "GET /echo HTTP/1.1\r\nHost: echo.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + sampleKey + "\r\n"
	for _, field := range more {
		s += field + "\r\n"
	}
	return s + "\r\n"
}

// open does the handshake, with early right behind it.
func (f front) open(t testing.TB, early []byte, more ...string) *client {
	t.Helper()
	if f.h2 {
		s := f.dialH2(t).open(false, more...)
		if s.status() != "200" {
			t.Fatalf("the handshake is answered with %s", s.status())
		}
		_ = s.SetDeadline(time.Now().Add(patience))
		return s.client()
	}
	nc := f.connect(t)
	go func() { _, _ = nc.Write(append([]byte(request(more...)), early...)) }() // early may be more than sockets hold
	c := &client{T: t, Conn: nc, r: bufio.NewReaderSize(nc, 64<<10)}
	res, err := http.ReadResponse(c.r, &http.Request{Method: http.MethodGet})
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Sec-Websocket-Accept") != sampleAnswer {
		t.Fatalf("the handshake is answered with %s %v", res.Status, res.Header)
	}
	c.answer = res.Header
	c.inflates = strings.HasPrefix(res.Header.Get("Sec-Websocket-Extensions"), "permessage-deflate")
	return c
}

// The opcodes, in the tests' own words.
const (
	opMore   = 0x0
	opText   = 0x1
	opBinary = 0x2
	opClose  = 0x8
	opPing   = 0x9
	opPong   = 0xA
)

const (
	fin  = 0x80
	rsv1 = 0x40
	rsv2 = 0x20
	rsv3 = 0x10
)

// masked is a frame as a client sends it; first is its first byte.
func masked(first byte, payload string) []byte {
	return withMask(first, payload, rand.Uint32())
}

func withMask(first byte, payload string, mask uint32) []byte {
	b := make([]byte, 0, len(payload)+14)
	switch n := len(payload); {
	case n < 126:
		b = append(b, first, 0x80|byte(n))
	case n < 1<<16:
		b = append(b, first, 0x80|126, byte(n>>8), byte(n))
	default:
		b = append(b, first, 0x80|127, 0, 0, 0, 0, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	key := [4]byte{byte(mask >> 24), byte(mask >> 16), byte(mask >> 8), byte(mask)}
	b = append(b, key[:]...)
	for i := range len(payload) {
		b = append(b, payload[i]^key[i&3])
	}
	return b
}

// closing is a close frame's payload.
func closing(code int, reason string) string {
	return string([]byte{byte(code >> 8), byte(code)}) + reason
}

func join(frames ...[]byte) []byte { return bytes.Join(frames, nil) }

// event is a whole message or a control frame.
type event struct {
	op      byte
	payload string
}

func (e event) String() string {
	if e.op == opClose && len(e.payload) >= 2 {
		return fmt.Sprintf("close %d %q", int(e.payload[0])<<8|int(e.payload[1]), e.payload[2:])
	}
	if len(e.payload) > 60 {
		return fmt.Sprintf("opcode %d, %d bytes, %q…", e.op, len(e.payload), e.payload[:60])
	}
	return fmt.Sprintf("opcode %d %q", e.op, e.payload)
}

// client is strict in what it takes, and sends whatever it is told to.
type client struct {
	T testing.TB
	net.Conn
	r        *bufio.Reader
	answer   http.Header
	inflates bool

	message  []byte // begun
	op       byte
	deflated bool
	closed   bool
}

// errUnfair is what a server must never do.
var errUnfair = errors.New("the server does not keep to the protocol")

func unfair(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errUnfair, fmt.Sprintf(format, args...))
}

// frame reads one frame, as RFC 6455, 5.2, wants it of a server.
func (c *client) frame() (first byte, payload []byte, err error) {
	var head [10]byte
	if _, err := io.ReadFull(c.r, head[:1]); err != nil {
		return 0, nil, err
	}
	if _, err := io.ReadFull(c.r, head[1:2]); err != nil {
		return 0, nil, unfair("it ends within a header: %v", err)
	}
	first, length := head[0], int64(head[1]&0x7f)
	more := 0
	switch length {
	case 126:
		more = 2
	case 127:
		more = 8
	}
	if _, err := io.ReadFull(c.r, head[2:2+more]); err != nil {
		return 0, nil, unfair("it ends within a header: %v", err)
	}
	if more > 0 {
		length = 0
		for _, b := range head[2 : 2+more] {
			length = length<<8 | int64(b)
		}
	}
	switch {
	case head[1]&0x80 != 0:
		return 0, nil, unfair("its frames are masked")
	case length < 0, more == 2 && length < 126, more == 8 && length < 1<<16:
		return 0, nil, unfair("the length %d takes %d bytes", length, more)
	case first&(rsv2|rsv3) != 0, first&rsv1 != 0 && (!c.inflates || first&0xf != opText && first&0xf != opBinary):
		return 0, nil, unfair("reserved bits are set: %#x", first)
	case first&8 != 0 && (length > 125 || first&fin == 0):
		return 0, nil, unfair("control frame %#x of %d bytes", first, length)
	case length > 1<<26:
		return 0, nil, unfair("a frame of %d bytes", length)
	case c.closed:
		return 0, nil, unfair("a frame behind the close frame: %#x", first)
	}
	payload = make([]byte, length)
	if _, err := io.ReadFull(c.r, payload); err != nil {
		return 0, nil, unfair("it ends within a frame: %v", err)
	}
	return first, payload, nil
}

// next reads a message, or a control frame that comes between. The end is
// io.EOF; a reset is not.
func (c *client) next() (event, error) {
	for {
		first, payload, err := c.frame()
		if err != nil {
			return event{}, err
		}
		op := first & 0xf
		switch op {
		case opClose:
			c.closed = true
			return event{op, string(payload)}, checkClose(payload)
		case opPing, opPong:
			return event{op, string(payload)}, nil
		case opText, opBinary:
			if c.op != 0 {
				return event{}, unfair("a message begins within another")
			}
			c.op, c.deflated, c.message = op, first&rsv1 != 0, payload
		case opMore:
			if c.op == 0 {
				return event{}, unfair("a continuation of nothing")
			}
			c.message = append(c.message, payload...)
		default:
			return event{}, unfair("opcode %d", op)
		}
		if first&fin == 0 {
			continue
		}
		whole := event{c.op, string(c.message)}
		if c.deflated {
			if whole.payload, err = inflate(whole.payload); err != nil {
				return event{}, unfair("what it has compressed: %v", err)
			}
		}
		c.op, c.message = 0, nil
		if whole.op == opText && strings.ToValidUTF8(whole.payload, "") != whole.payload {
			return event{}, unfair("its text is not UTF-8")
		}
		return whole, nil
	}
}

func checkClose(payload []byte) error {
	switch {
	case len(payload) == 1:
		return unfair("a close frame of one byte")
	case strings.ToValidUTF8(string(payload), "") != string(payload) && strings.ToValidUTF8(string(payload[2:]), "") != string(payload[2:]):
		return unfair("a reason that is not UTF-8")
	}
	return nil
}

// want reads one event.
func (c *client) want(e event) {
	c.T.Helper()
	got, err := c.next()
	if err != nil {
		c.T.Fatalf("waiting for %v: %v", e, err)
	}
	if got != e {
		c.T.Fatalf("got %v, want %v", got, e)
	}
}

// wantClosed expects a close frame with this code (0: without one), answers it
// if the server was first, and expects the end, which is not a reset.
func (c *client) wantClosed(code int, answer bool) {
	c.T.Helper()
	e, err := c.next()
	if err != nil {
		c.T.Fatalf("waiting for the close frame with %d: %v", code, err)
	}
	want := closing(code, "")
	if code == 0 {
		want = ""
	}
	if e.op != opClose || len(e.payload) < len(want) || e.payload[:len(want)] != want || code == 0 && e.payload != "" {
		c.T.Fatalf("got %v, want a close frame with %d", e, code)
	}
	if answer {
		c.write(masked(fin|opClose, want))
	}
	c.wantEnd()
}

func (c *client) wantEnd() {
	c.T.Helper()
	if e, err := c.next(); !errors.Is(err, io.EOF) {
		c.T.Fatalf("instead of the end: %v, error %v", e, err)
	}
	c.Close()
}

func (c *client) write(b []byte) {
	c.T.Helper()
	if _, err := c.Write(b); err != nil {
		c.T.Errorf("sending %d bytes: %v", len(b), err)
	}
}

// chopped writes so many bytes at a time; 0 is all at once.
func (c *client) chopped(b []byte, chop int) error {
	for len(b) > 0 {
		n := len(b)
		if chop > 0 {
			n = min(n, chop)
		}
		if _, err := c.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
