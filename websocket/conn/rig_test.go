package conn

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"millrace/websocket/frame"
)

// beside is how many of the tests that call Parallel run at once: they wait for
// the clock most of the time.
const beside = "8"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", beside); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// drivers are the two that every test of behaviour runs over: a plain
// connection, and one whose descriptor cannot be taken.
func drivers(t *testing.T, f func(t *testing.T, r *rig)) {
	for name, hide := range map[string]bool{"loop": false, "goroutine": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, &rig{T: t, hide: hide})
		})
	}
}

// rig makes connections between a test and an engine.
type rig struct {
	*testing.T
	hide   bool
	small  bool // the buffers of sockets are
	once   sync.Once
	engine *Engine
	ln     net.Listener

	accepting sync.Mutex
}

// smallBuffer is what a socket holds for a test that fills it, and large far
// more than all of them.
const (
	smallBuffer = 64 << 10
	large       = 4 << 20
)

func (r *rig) start() {
	r.once.Do(func() {
		r.engine = NewEngine(nil)
		var err error
		if r.ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			r.Fatal(err)
		}
		r.Cleanup(func() {
			r.ln.Close()
			if err := r.engine.Close(); err != nil {
				r.Error(err)
			}
		})
	})
}

// hidden is a connection that is nothing but that.
type hidden struct{ net.Conn }

func (h hidden) CloseWrite() error { return h.Conn.(*net.TCPConn).CloseWrite() }

// pair is a connection: our side of it, and the engine's.
func (r *rig) pair() (ours *net.TCPConn, theirs net.Conn) {
	r.Helper()
	r.start()
	accepted := make(chan net.Conn, 1)
	go func() {
		nc, _ := r.ln.Accept()
		accepted <- nc
	}()
	nc, err := net.Dial("tcp", r.ln.Addr().String())
	if err != nil {
		r.Fatal(err)
	}
	theirs = <-accepted
	if theirs == nil {
		r.Fatal("nothing was accepted")
	}
	r.Cleanup(func() { nc.Close() })
	if r.small {
		for _, side := range []net.Conn{nc, theirs} {
			_ = side.(*net.TCPConn).SetReadBuffer(smallBuffer)
			_ = side.(*net.TCPConn).SetWriteBuffer(smallBuffer)
		}
	}
	if r.hide {
		theirs = hidden{theirs}
	}
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	return nc.(*net.TCPConn), theirs
}

// connect has the engine adopt a connection.
func (r *rig) connect(s *Settings, early []byte, p frame.Params) *peer {
	r.Helper()
	nc, theirs := r.pair()
	if err := r.engine.Adopt(theirs, early, s, p, nil); err != nil {
		r.Fatal(err)
	}
	return &peer{T: r.T, TCPConn: nc}
}

// peer is a client without manners: it sends what it is told.
type peer struct {
	*testing.T
	*net.TCPConn
	buf []byte
}

// packet is one frame of a client.
func packet(op frame.Opcode, fin, rsv1 bool, payload []byte) []byte {
	h := frame.Header{Fin: fin, Rsv1: rsv1, Op: op, Masked: true, Mask: [4]byte{1, 2, 3, 4}, Length: int64(len(payload))}
	b := append(h.Append(nil), payload...)
	frame.Mask(b[len(b)-len(payload):], h.Mask, 0)
	return b
}

func text(s string) []byte { return packet(frame.Text, true, false, []byte(s)) }

func (p *peer) send(b ...[]byte) {
	p.Helper()
	if _, err := p.Write(bytes.Join(b, nil)); err != nil {
		p.Fatalf("sending: %v", err)
	}
}

// frame reads the next frame.
func (p *peer) frame() (frame.Header, []byte, error) {
	for {
		h, n, err := frame.Parse(p.buf)
		if err != nil {
			return h, nil, err
		}
		if n > 0 && int64(len(p.buf)-n) >= h.Length {
			payload := bytes.Clone(p.buf[n : n+int(h.Length)])
			p.buf = p.buf[n+int(h.Length):]
			return h, payload, nil
		}
		var b [64 << 10]byte
		k, err := p.Read(b[:])
		p.buf = append(p.buf, b[:k]...)
		if err != nil {
			return h, nil, err
		}
	}
}

// message reads a whole message, or the control frame before it.
func (p *peer) message() (frame.Opcode, []byte, error) {
	var op frame.Opcode
	var all []byte
	for {
		h, payload, err := p.frame()
		if err != nil {
			return 0, nil, err
		}
		if h.Op.IsControl() {
			return h.Op, payload, nil
		}
		if h.Op != frame.Continuation {
			op = h.Op
		}
		if all = append(all, payload...); h.Fin {
			if h.Rsv1 {
				all, err = frame.Inflate(nil, all, 1<<26)
			}
			return op, all, err
		}
	}
}

func (p *peer) want(op frame.Opcode, payload string) {
	p.Helper()
	got, b, err := p.message()
	if err != nil {
		p.Fatalf("waiting for %q: %v", short(payload), err)
	}
	if got != op || string(b) != payload {
		p.Fatalf("got opcode %d %q, want %d %q", got, short(string(b)), op, short(payload))
	}
}

func short(s string) string { return s[:min(len(s), 80)] }

// wantClose expects a close frame with this code and then the end.
func (p *peer) wantClose(code frame.Code) {
	p.Helper()
	p.wantCode(code)
	p.send(packet(frame.Close, true, false, []byte{byte(code >> 8), byte(code)}))
	p.wantEnd()
	p.Close()
}

func (p *peer) wantEnd() {
	p.Helper()
	if _, err := io.Copy(io.Discard, p.TCPConn); err != nil && !isReset(err) {
		p.Fatalf("waiting for the end: %v", err)
	}
}

func isReset(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && !ne.Timeout()
}

// echoApp is a Streamer that sends everything back.
type echoApp struct {
	mu     sync.Mutex
	opened int
	closed []frame.Code
	done   chan frame.Code // if not nil
}

func (a *echoApp) Open(*Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.opened++
}

func (a *echoApp) Message(c *Conn, op frame.Opcode, data []byte) { c.Send(op, data) }

func (a *echoApp) Closed(_ *Conn, code frame.Code) {
	a.mu.Lock()
	a.closed = append(a.closed, code)
	a.mu.Unlock()
	if a.done != nil {
		a.done <- code
	}
}

type echoStream struct{ echoApp }

func (a *echoStream) Piece(c *Conn, op frame.Opcode, data []byte, first, last bool) {
	c.SendPiece(op, data, first, last)
}
