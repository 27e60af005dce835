package lane

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/internal/process/servertest"
)

// wired is a client over TLS whose other end a loop owns.
type wired struct {
	*tls.Conn
	raw    *slowNet
	server *TLSConn
	left   chan *TLSConn // the loop gives it up
	gone   chan struct{} // it has ended
}

// slowNet is the client's network. It may hold back what is written, and send it
// byte by byte.
type slowNet struct {
	net.Conn
	mu    sync.Mutex
	held  []byte
	corks int // writes that still pass before the others are held
	byOne bool
}

const neverHeld = 1 << 30

func (n *slowNet) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.corks--; n.corks < 0 {
		n.held = append(n.held, p...)
		return len(p), nil
	}
	if !n.byOne {
		return n.Conn.Write(p)
	}
	for i := range p {
		if _, err := n.Conn.Write(p[i : i+1]); err != nil {
			return i, err
		}
		time.Sleep(50 * time.Microsecond)
	}
	return len(p), nil
}

// send sends what was held back.
func (n *slowNet) send(t *testing.T) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, err := n.Conn.Write(n.held); err != nil {
		t.Fatal(err)
	}
	n.held, n.corks = nil, neverHeld
}

func (b *bench) wired(t *testing.T) *wired {
	t.Helper()
	return b.wiredAs(t, neverHeld, io.Discard, func(*wired) {})
}

// wiredAs holds back what the client writes after so many writes; keys gets the
// connection's secrets. shaken is called when the client has done its handshake.
func (b *bench) wiredAs(t *testing.T, corks int, keys io.Writer, shaken func(*wired), take ...func(*TLSConn)) *wired {
	t.Helper()
	server, client := socketPair(t)
	w := &wired{raw: &slowNet{Conn: client, corks: corks}, left: make(chan *TLSConn, 1), gone: make(chan struct{})}
	w.Conn = tls.Client(w.raw, &tls.Config{InsecureSkipVerify: true, KeyLogWriter: keys})
	_ = w.SetDeadline(time.Now().Add(time.Minute))
	tc := tls.Server(NewWire(server), &tls.Config{Certificates: []tls.Certificate{servertest.Make(t, "lane")}})
	done := make(chan error, 1)
	go func() { done <- tc.Handshake() }()
	if err := w.Handshake(); err != nil {
		t.Fatal(err)
	}
	shaken(w)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	c, ok := b.lane.NewConn(tc, b.scope, func() { close(w.gone) }).(*TLSConn)
	w.server = c
	switch {
	case !ok:
		t.Fatal("no connection over TLS")
	case len(take) > 0:
		take[0](c)
	case !c.Adopt(func() { w.left <- c }):
		t.Fatal("not adopted")
	}
	return w
}

func (w *wired) stays(t *testing.T) {
	t.Helper()
	if len(w.left) != 0 {
		t.Error("the connection has left its loop")
	}
}

// Over TLS a hot request on a loop is answered, however its bytes come, and the
// connection stays.
func TestWire(t *testing.T) {
	b := newBench(t, patient)
	defer b.lane.Close()
	w := b.wired(t)
	for range 3 {
		ask(t, w, hotRequest, "hello\n")
	}
	w.raw.byOne = true
	for range 2 {
		ask(t, w, hotRequest, "hello\n")
	}
	w.raw.byOne = false
	ask(t, w, strings.Repeat(hotRequest, 3), "hello\n")
	w.stays(t)
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	<-w.gone
	w.stays(t)
}

// A request that came with the client's last word of the handshake is answered,
// though nothing comes any more.
func TestWireReadAhead(t *testing.T) {
	b := newBench(t, patient)
	defer b.lane.Close()
	w := b.wiredAs(t, 1, io.Discard, func(w *wired) {
		if _, err := io.WriteString(w, hotRequest); err != nil {
			t.Fatal(err)
		}
		w.raw.send(t)
	})
	buf := make([]byte, 4096)
	if n, err := w.Read(buf); err != nil || !strings.HasSuffix(string(buf[:n]), "hello\n") {
		t.Fatalf("%q, %v", buf[:n], err)
	}
	w.stays(t)
}

// What is not for the lane takes the connection to net/http with exactly the
// bytes that were not answered.
func TestWireLeavesWithItsBytes(t *testing.T) {
	for _, foreign := range []string{
		"GET /other HTTP/1.1\r\nHost: a\r\n\r\n", // not hot
		"GET / HT",                               // not yet whole
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
		strings.Repeat("x", maxHead),
	} {
		t.Run(foreign[:8], func(t *testing.T) {
			b := newBench(t, patient)
			defer b.lane.Close()
			w := b.wired(t)
			ask(t, w, hotRequest, "hello\n")
			ask(t, w, hotRequest+foreign, "hello\n")
			c := <-w.left
			if _, err := io.WriteString(w, "more"); err != nil {
				t.Fatal(err)
			}
			_ = w.CloseWrite()
			c.tracker.lost = true // read as it comes
			got, err := io.ReadAll(c)
			if err != nil || string(got) != foreign+"more" {
				t.Errorf("%q, %v; want %q", got, err, foreign+"more")
			}
			if _, known := c.queued(); !known {
				t.Error("the sweeper cannot see what the client takes")
			}
			if _, err := io.WriteString(c, "answer"); err != nil {
				t.Error(err)
			}
			if c.LocalAddr() == nil || c.RemoteAddr() == nil || wireOf(c.tls.NetConn()).NetConn() == nil {
				t.Error("no addresses, or no connection")
			}
			_ = c.Close()
			if got, err := io.ReadAll(w); err != nil || string(got) != "answer" {
				t.Errorf("the client got %q, %v", got, err)
			}
			<-w.gone
		})
	}
}

// A client that takes nothing for a while gets the rest when it reads on, of
// pipelined answers from memory and of files, and its connection stays.
func TestWireThatReadsLate(t *testing.T) {
	b := newBench(t, patient)
	defer b.lane.Close()
	body := strings.Repeat("x", 60<<10)
	b.lane.table.put(key{1, "/large", false}, demands{}, variant{response: newResponse(answerOf(body), Rule{}, b.meters.Job("test"))})
	huge := strings.Repeat("y", 900<<10)
	b.lane.table.put(key{1, "/huge", false}, demands{}, variant{response: newResponse(answerOf(huge), Rule{}, b.meters.Job("test"))})
	files := strings.Repeat("0123456789", 100<<10)
	requests := strings.Repeat("GET /large HTTP/1.1\r\nHost: a\r\n\r\n", 20) + "GET /huge HTTP/1.1\r\nHost: a\r\n\r\n"
	if b.fileAnswer(t, files).InMemory(0, int64(len(files))) {
		requests += strings.Repeat(fileRequest, 3)
	} else {
		files = ""
	}
	w := b.wired(t)
	other := b.wired(t)
	if _, err := io.WriteString(w, requests); err != nil {
		t.Fatal(err)
	}
	ask(t, other, hotRequest, "hello\n")
	_ = w.CloseWrite()
	got, err := io.ReadAll(w)
	if n := bytes.Count(got, []byte(body)); err != nil || n != 20 || !bytes.Contains(got, []byte(huge)) {
		t.Errorf("%d whole bodies of 20, %v", n, err)
	}
	if n := bytes.Count(got, []byte("\r\n\r\n"+files)); files != "" && n != 3 {
		t.Errorf("%d files of 3", n)
	}
	<-w.gone
	w.stays(t)
}

// A client over TLS that takes nothing is cut off after the write timeout.
func TestWireThatNeverReads(t *testing.T) {
	s := patient
	s.Write = 50 * time.Millisecond
	b := newBench(t, s)
	defer b.lane.Close()
	huge := strings.Repeat("y", 900<<10)
	b.lane.table.put(key{1, "/huge", false}, demands{}, variant{response: newResponse(answerOf(huge), Rule{}, b.meters.Job("test"))})
	w := b.wired(t)
	if _, err := io.WriteString(w, "GET /huge HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-w.gone
}

// A mistake on one connection ends that one, is told, and leaves the others.
func TestWireThatPanics(t *testing.T) {
	var told strings.Builder
	settings := patient
	settings.Errors = slog.New(slog.NewTextHandler(&told, nil))
	b := newBench(t, settings)
	broken := newResponse(answerOf("x"), Rule{}, nil) // no job to count for
	b.lane.table.put(key{1, "/broken", false}, demands{}, variant{response: broken})
	good, bad := b.wired(t), b.wired(t)
	if _, err := io.WriteString(bad, "GET /broken HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-bad.gone
	ask(t, good, hotRequest, "hello\n")
	b.lane.Close() // ends the loops, which write the log
	if !strings.Contains(told.String(), "a connection failed in the fast lane") {
		t.Errorf("the log says %q", told.String())
	}
}

// Bytes that no key has made end their connection, with an alert, and no other.
func TestWireOfNoise(t *testing.T) {
	b := newBench(t, patient)
	defer b.lane.Close()
	for _, noise := range []string{
		"\x17\x03\x03\x00\x20" + strings.Repeat("n", 32),
		"\x17\x03\x03\xff\xff",
		"GET / HTTP/1.1\r\n\r\n",
	} {
		good, bad := b.wired(t), b.wired(t)
		ask(t, bad, hotRequest, "hello\n")
		if _, err := io.WriteString(bad.raw.Conn, noise); err != nil {
			t.Fatal(err)
		}
		var alert *net.OpError
		if _, err := bad.Read(make([]byte, 1)); !errors.As(err, &alert) || alert.Op != "remote error" {
			t.Errorf("after %q: %v, want an alert", noise, err)
		}
		<-bad.gone
		ask(t, good, hotRequest, "hello\n")
		good.stays(t)
	}
}

func TestWireEnds(t *testing.T) {
	t.Run("without a farewell", func(t *testing.T) {
		b := newBench(t, patient)
		defer b.lane.Close()
		w := b.wired(t)
		ask(t, w, hotRequest, "hello\n")
		_ = w.raw.Close()
		<-w.gone
	})
	t.Run("in the middle of a record", func(t *testing.T) {
		b := newBench(t, patient)
		defer b.lane.Close()
		w := b.wired(t)
		if _, err := io.WriteString(w.raw.Conn, "\x17\x03\x03\x00\x20half"); err != nil {
			t.Fatal(err)
		}
		_ = w.raw.Close()
		<-w.gone
	})
	t.Run("when it has been idle, with half a record as well", func(t *testing.T) {
		b := newBench(t, Settings{Header: time.Hour, Body: time.Hour, Write: time.Hour, Idle: 20 * time.Millisecond})
		defer b.lane.Close()
		idle, half := b.wired(t), b.wired(t)
		_, _ = io.WriteString(half.raw.Conn, "\x17\x03\x03\x00\x20half") // it may be gone
		<-idle.gone
		<-half.gone
	})
	t.Run("with the last answer of a drain", func(t *testing.T) {
		b := newBench(t, patient)
		defer b.lane.Close()
		w := b.wired(t)
		b.lane.Drain()
		ask(t, w, hotRequest, "Connection: close\r\n\r\nhello\n")
		if _, err := w.Read(make([]byte, 1)); !errors.Is(err, io.EOF) { // TLS's own farewell
			t.Errorf("%v, want the end", err)
		}
		<-w.gone
	})
	t.Run("to make room", func(t *testing.T) {
		b := newBench(t, patient)
		defer b.lane.Close()
		w := b.wired(t)
		ask(t, w, hotRequest, "hello\n")
		for !b.lane.ShedIdle(nil) { // it counts as idle soon
			time.Sleep(time.Millisecond)
		}
		<-w.gone
	})
	t.Run("with the lane", func(t *testing.T) {
		b := newBench(t, patient)
		w := b.wired(t)
		ask(t, w, hotRequest, "hello\n")
		b.lane.Close()
		<-w.gone
		if n := b.lane.Open(); n != 0 {
			t.Errorf("%d connections are open", n)
		}
	})
}

// A client may change its keys, and ask for new ones of the server, in a message
// that comes in two records, whenever it likes (RFC 8446, 4.6.3).
func TestWireKeyUpdate(t *testing.T) {
	b := newBench(t, patient)
	defer b.lane.Close()
	var keys strings.Builder
	w := b.wiredAs(t, neverHeld, &keys, func(*wired) {})
	c := sealerOf(t, keys.String())
	update := []byte{24, 0, 0, 1, 1} // requested
	for range 3 {
		first, rest := c.record(t, 22, update[:2]), c.record(t, 22, update[2:])
		for _, part := range [][]byte{first[:7], first[7:], rest[:9], rest[9:]} {
			if _, err := w.raw.Write(part); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond) // so that they come one by one, as a rule
		}
		c.next(t)
		if _, err := w.raw.Write(c.record(t, 23, []byte(hotRequest))); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 4096)
		if n, err := w.Read(buf); err != nil || !strings.HasSuffix(string(buf[:n]), "hello\n") {
			t.Fatalf("%q, %v", buf[:n], err)
		}
	}
	w.stays(t)
}

// sealer makes a client's records of TLS 1.3, which crypto/tls makes only in its
// own order.
type sealer struct {
	secret []byte
	aead   cipher.AEAD
	iv     []byte
	seq    uint64
	size   int // of a key
}

// sealerOf reads the client's secret in a log of keys.
func sealerOf(t *testing.T, keys string) *sealer {
	t.Helper()
	for line := range strings.Lines(keys) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "CLIENT_TRAFFIC_SECRET_0" {
			secret, err := hex.DecodeString(f[2])
			if err != nil {
				t.Fatal(err)
			}
			if len(secret) != sha256.Size {
				t.Skip("another suite than AES-128 was agreed on")
			}
			s := &sealer{secret: secret, size: 16}
			s.arm(t)
			return s
		}
	}
	t.Fatal("no secret")
	return nil
}

func (s *sealer) arm(t *testing.T) {
	t.Helper()
	block, err := aes.NewCipher(expand(t, s.secret, "key", s.size))
	if err != nil {
		t.Fatal(err)
	}
	if s.aead, err = cipher.NewGCM(block); err != nil {
		t.Fatal(err)
	}
	s.iv, s.seq = expand(t, s.secret, "iv", s.aead.NonceSize()), 0
}

func (s *sealer) next(t *testing.T) {
	t.Helper()
	s.secret = expand(t, s.secret, "traffic upd", len(s.secret))
	s.arm(t)
}

func (s *sealer) record(t *testing.T, kind byte, payload []byte) []byte {
	t.Helper()
	nonce := bytes.Clone(s.iv)
	for i, b := range binary.BigEndian.AppendUint64(nil, s.seq) {
		nonce[len(nonce)-8+i] ^= b
	}
	s.seq++
	n := len(payload) + 1 + s.aead.Overhead()
	head := []byte{23, 3, 3, byte(n >> 8), byte(n)}
	return s.aead.Seal(bytes.Clone(head), nonce, append(bytes.Clone(payload), kind), head)
}

// expand is HKDF-Expand-Label without a context (RFC 8446, 7.1).
func expand(t *testing.T, secret []byte, label string, n int) []byte {
	t.Helper()
	label = "tls13 " + label
	info := append([]byte{byte(n >> 8), byte(n), byte(len(label))}, label...)
	out, err := hkdf.Expand(sha256.New, secret, string(append(info, 0)), n)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
