package client

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"
)

// serveSocket upgrades connections and leaves each to a function. early is
// sent together with the head.
func serveSocket(t *testing.T, early []byte, each func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wait.Go(func() {
				defer conn.Close()
				var head bytes.Buffer
				if _, err := ws.Upgrade(readWriter{conn, &head}); err != nil {
					return
				}
				head.Write(early)
				conn.Write(head.Bytes())
				each(conn)
			})
		}
	})
	t.Cleanup(func() { l.Close(); wait.Wait() })
	return "ws://" + l.Addr().String()
}

// readFrame reads one frame of what a test sends.
func readFrame(r io.Reader) (ws.Frame, error) {
	h, err := ws.ReadHeader(r)
	if err != nil {
		return ws.Frame{}, err
	}
	f := ws.Frame{Header: h, Payload: make([]byte, h.Length)}
	_, err = io.ReadFull(r, f.Payload)
	return f, err
}

// echo sends every message back as it came, and agrees to close.
func echo(conn net.Conn) {
	for {
		f, err := readFrame(conn)
		if err != nil {
			return
		}
		f = ws.UnmaskFrameInPlace(f)
		ws.WriteFrame(conn, f)
		if f.Header.OpCode == ws.OpClose {
			return
		}
	}
}

func TestEcho(t *testing.T) {
	for name, message := range map[string][]byte{
		"default": nil,
		"binary":  {0xff, 0, 1},
		"long":    bytes.Repeat([]byte("millrace"), 100_000),
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, Options{Protocol: "websocket", URL: serveSocket(t, nil, echo), Message: message})
			if message == nil {
				message = []byte("Hello, echod!\n")
			}
			for range 3 {
				var tee bytes.Buffer
				a, err := c.Do(t.Context(), 0, &tee)
				if err != nil {
					t.Fatal(err)
				}
				if a.Status != http.StatusSwitchingProtocols || a.Body != int64(len(message)) || a.Bytes <= a.Body || !bytes.Equal(tee.Bytes(), message) {
					t.Errorf("%+v and %d bytes handed on, of %d", a, tee.Len(), len(message))
				}
			}
		})
	}
}

func TestEchoTLS(t *testing.T) {
	seen := make(chan string, 2)
	url := serveTLS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.URL.Path + " " + r.Host + " " + r.Header.Get("X-Own")
		conn, _, _, err := ws.UpgradeHTTP(r, w)
		if err != nil {
			return
		}
		defer conn.Close()
		echo(conn)
	}))
	o := Options{
		Protocol: "websocket", URL: strings.Replace(url, "https:", "wss:", 1), Insecure: true,
		Header: http.Header{"Host": {"own.example"}, "X-Own": {"yes"}},
		Paths:  []string{"/a", "/b"},
	}
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, path := range o.Paths { // each connection has the next one
		c, err := d.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Do(t.Context(), 1, nil); err != nil {
			t.Error(err)
		}
		if s, want := <-seen, path+" own.example yes"; s != want {
			t.Errorf("the server saw %q, want %q", s, want)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// frames are what a server may send.
func frames(of ...ws.Frame) []byte {
	var b bytes.Buffer
	for _, f := range of {
		ws.WriteFrame(&b, f)
	}
	return b.Bytes()
}

const text = "Hello, echod!\n"

func TestMessages(t *testing.T) {
	piece := func(op ws.OpCode, fin bool, text string) ws.Frame { return ws.NewFrame(op, fin, []byte(text)) }
	ping := ws.NewPingFrame([]byte("alive?"))
	masked := ws.MaskFrame(ws.NewTextFrame([]byte(text)))
	flood := bytes.Repeat(frames(ws.NewPongFrame(nil)), maxControl+1)
	for _, c := range []struct {
		name string
		send []byte
		kind error // nil: it is the message
		says string
	}{
		{"whole", frames(ws.NewTextFrame([]byte(text))), nil, ""},
		{"in pieces", frames(piece(ws.OpText, false, "Hello"), piece(ws.OpContinuation, false, ""), piece(ws.OpContinuation, true, ", echod!\n")), nil, ""},
		{"ping between", frames(ping, piece(ws.OpText, false, "Hello"), ping, piece(ws.OpContinuation, true, ", echod!\n")), nil, ""},
		{"pong between", frames(ws.NewPongFrame(nil), ws.NewTextFrame([]byte(text))), nil, ""},
		{"different", frames(ws.NewTextFrame([]byte("Hello, echod?\n"))), ErrProtocol, "different"},
		{"short", frames(ws.NewTextFrame([]byte("Hello"))), ErrProtocol, "5 bytes instead of 14"},
		{"long", frames(ws.NewTextFrame([]byte(text + "!"))), ErrProtocol, "longer"},
		{"long in pieces", frames(piece(ws.OpText, false, text), piece(ws.OpContinuation, true, "!")), ErrProtocol, "longer"},
		{"binary", frames(ws.NewBinaryFrame([]byte(text))), ErrProtocol, "another kind"},
		{"masked", frames(masked), ErrProtocol, "masked"},
		{"continuation of nothing", frames(piece(ws.OpContinuation, true, text)), ErrProtocol, "frame"},
		{"text within text", frames(piece(ws.OpText, false, "Hello"), piece(ws.OpText, true, text)), ErrProtocol, "frame"},
		{"reserved bits", append([]byte{0xf1, byte(len(text))}, text...), ErrProtocol, "frame"},
		{"long ping", frames(ws.NewPingFrame(make([]byte, 126))), ErrProtocol, "frame"},
		{"flood", flood, ErrProtocol, "control frames"},
		{"goodbye", frames(ws.NewCloseFrame(ws.NewCloseFrameBody(1013, "try later"))), ErrClosed, `1013 "try later"`},
		{"goodbye without a word", frames(ws.NewCloseFrame(nil)), ErrClosed, "without a reason"},
		{"half a frame", frames(ws.NewTextFrame([]byte(text)))[:9], ErrClosed, ""},
		{"nothing", nil, ErrClosed, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			url := serveSocket(t, nil, func(conn net.Conn) {
				if _, err := readFrame(conn); err != nil {
					return
				}
				conn.Write(c.send)
				conn.(*net.TCPConn).CloseWrite()
				io.Copy(io.Discard, conn)
			})
			conn := dial(t, Options{Protocol: "websocket", URL: url})
			_, err := conn.Do(t.Context(), 0, nil)
			if c.kind == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			onlyWraps(t, err, c.kind)
			if err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q in it", err, c.says)
			}
			_, err = conn.Do(t.Context(), 0, nil)
			onlyWraps(t, err, ErrClosed)
		})
	}
}

// TestPong shows that a ping is answered with what it carried.
func TestPong(t *testing.T) {
	pong := make(chan ws.Frame, 1)
	url := serveSocket(t, nil, func(conn net.Conn) {
		f, err := readFrame(conn)
		if err != nil {
			return
		}
		ws.WriteFrame(conn, ws.NewPingFrame([]byte("alive?")))
		if p, err := readFrame(conn); err == nil {
			pong <- ws.UnmaskFrame(p)
		}
		ws.WriteFrame(conn, ws.UnmaskFrame(f))
		echo(conn)
	})
	c := dial(t, Options{Protocol: "websocket", URL: url})
	if _, err := c.Do(t.Context(), 0, nil); err != nil {
		t.Fatal(err)
	}
	if p := <-pong; p.Header.OpCode != ws.OpPong || string(p.Payload) != "alive?" {
		t.Errorf("the ping was answered with %+v", p)
	}
}

// TestEarlyFrames has a ping arrive in the packet of the upgrade's answer.
func TestEarlyFrames(t *testing.T) {
	url := serveSocket(t, frames(ws.NewPingFrame([]byte("early"))), echo)
	c := dial(t, Options{Protocol: "websocket", URL: url})
	for range 2 {
		if _, err := c.Do(t.Context(), 0, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGoodbye looks at the closing handshake from the server's side.
func TestGoodbye(t *testing.T) {
	last := make(chan ws.Frame, 1)
	url := serveSocket(t, nil, func(conn net.Conn) {
		f, err := readFrame(conn)
		if err != nil {
			return
		}
		last <- ws.UnmaskFrame(f)
		ws.WriteFrame(conn, ws.NewCloseFrame(nil))
	})
	c := dial(t, Options{Protocol: "websocket", URL: url})
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	f := <-last
	if code, _ := ws.ParseCloseFrameData(f.Payload); f.Header.OpCode != ws.OpClose || code != ws.StatusNormalClosure {
		t.Errorf("the last frame was %+v", f)
	}
	_, err := c.Do(t.Context(), 0, nil)
	onlyWraps(t, err, ErrClosed)
}

func TestSilentSocket(t *testing.T) {
	url := serveSocket(t, nil, func(conn net.Conn) { io.Copy(io.Discard, conn) })
	c := dial(t, Options{Protocol: "websocket", URL: url})
	shorten(c, 20*time.Millisecond)
	_, err := c.Do(t.Context(), 0, nil)
	onlyWraps(t, err, ErrTimeout)
}

// TestNoUpgrade meets a server that says nothing useful to the upgrade.
func TestNoUpgrade(t *testing.T) {
	for _, answer := range []string{"", "HTTP/1.1 101 Switching Protocols\r\n\r\n", "220 mail\r\n\r\n", "HTTP/1.1 101 x\r\nX: " + strings.Repeat("x", MaxHead)} {
		err := dialError(t, Options{Protocol: "websocket", URL: strings.Replace(serveBytes(t, answer), "http:", "ws:", 1)})
		onlyWraps(t, err, ErrConnect)
	}
}

// FuzzWebSocketAnswer looks for frames that break more than themselves.
func FuzzWebSocketAnswer(f *testing.F) {
	f.Add(frames(ws.NewTextFrame([]byte(text))))
	f.Add(frames(ws.NewPingFrame([]byte("x")), ws.NewFrame(ws.OpText, false, []byte("Hello")), ws.NewFrame(ws.OpContinuation, true, []byte(", echod!\n"))))
	f.Add(frames(ws.NewCloseFrame(ws.NewCloseFrameBody(1000, "bye"))))
	f.Add([]byte{0x81, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	t, err := parseTarget(&Options{Protocol: "websocket", URL: "ws://x"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(test *testing.T, b []byte) {
		conn := &canned{in: bytes.NewReader(b)}
		c := newWebSocketDialer(t).over(conn)
		defer c.Close()
		var tee bytes.Buffer
		a, err := c.Do(test.Context(), 0, &tee)
		if err == nil && (tee.String() != text || a.Body != int64(len(text)) || a.Bytes > int64(len(b))) {
			test.Errorf("%q: %+v with %q", b, a, tee.String())
		}
	})
}

// A Messenger sends what it likes and receives what others sent, fragmented or
// with pings in between.
func TestMessenger(t *testing.T) {
	url := serveSocket(t, nil, func(conn net.Conn) {
		f, err := readFrame(conn)
		if f = ws.UnmaskFrameInPlace(f); err != nil || string(f.Payload) != "subscribe" || f.Header.OpCode != ws.OpText {
			t.Errorf("got %+v, %v", f.Header, err)
		}
		fragment := ws.NewTextFrame([]byte("one "))
		fragment.Header.Fin = false
		rest := ws.NewFrame(ws.OpContinuation, true, []byte("message"))
		if _, err := conn.Write(frames(fragment, ws.NewPingFrame([]byte("alive")), rest, ws.NewTextFrame([]byte("two")))); err != nil {
			t.Error(err)
		}
		if pong, err := readFrame(conn); err != nil || pong.Header.OpCode != ws.OpPong {
			t.Errorf("got %+v, %v", pong.Header, err)
		}
	})
	d, err := New(Options{Protocol: "websocket", URL: url})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := d.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	m := conn.(Messenger)
	if err := m.Send(t.Context(), []byte("subscribe")); err != nil {
		t.Fatal(err)
	}
	var buffer []byte
	for _, want := range []string{"one message", "two"} {
		if buffer, err = m.Receive(t.Context(), buffer); err != nil || string(buffer) != want {
			t.Fatalf("got %q, %v; want %q", buffer, err, want)
		}
	}
	if _, err := m.Receive(t.Context(), buffer); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}
