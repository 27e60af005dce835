package websocket_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

// TestClosing is section 7.
func TestClosing(t *testing.T) {
	bye := masked(fin|opClose, closing(1000, ""))
	hello := masked(fin|opText, "Hello")
	echoed := event{opText, "Hello"}
	list := []ordeal{
		{name: "a message before", parts: atOnce(hello, bye), want: []event{echoed}, code: 1000, closed: true},
		{name: "two close frames", parts: atOnce(bye, bye), code: 1000, closed: true},
		{name: "two close frames, the second wrong", parts: atOnce(bye, masked(fin|opClose, closing(999, ""))), code: 1000, closed: true},
		{name: "a ping behind", parts: atOnce(bye, masked(fin|opPing, "")), code: 1000, closed: true},
		{name: "a message behind", parts: atOnce(bye, hello), code: 1000, closed: true},
		{name: "a beginning before and an end behind", parts: atOnce(masked(opText, "fragment1"), bye, masked(fin|opMore, "fragment2")), code: 1000, closed: true},
		{
			name: "256 KB before, a ping behind", parts: atOnce(masked(fin|opText, sample(256<<10)), bye, masked(fin|opPing, "")),
			want: []event{{opText, sample(256 << 10)}}, code: 1000, closed: true,
		},
		{name: "nothing in it", parts: atOnce(masked(fin|opClose, "")), code: 0, closed: true},
		{name: "one byte in it", parts: atOnce(masked(fin|opClose, "a")), code: 1002},
		{name: "a code", parts: atOnce(bye), code: 1000, closed: true},
		{name: "a reason", parts: atOnce(masked(fin|opClose, closing(1000, "Hello World!"))), code: 1000, closed: true},
		{name: "a reason of 123 bytes", parts: atOnce(masked(fin|opClose, closing(1000, strings.Repeat("*", 123)))), code: 1000, closed: true},
		{name: "a reason of 123 bytes of Greek", parts: atOnce(masked(fin|opClose, closing(1000, strings.Repeat("κ", 61)+"!"))), code: 1000, closed: true},
		{name: "a reason of 124 bytes", parts: atOnce(masked(fin|opClose, closing(1000, strings.Repeat("*", 124)))), code: 1002},
		{name: "a reason that is not text", parts: atOnce(masked(fin|opClose, closing(1000, "κόσμε\xed\xa0\x80edited"))), code: 1007},
		{name: "a reason that ends within a character", parts: atOnce(masked(fin|opClose, closing(1000, "\xe2\x82"))), code: 1007},
		{name: "a message behind a wrong code", parts: atOnce(masked(fin|opClose, closing(1005, "")), hello), code: 1002},
		{name: "a message behind a fault", parts: atOnce(masked(fin|3, ""), hello), code: 1002},
		{name: "a close frame behind a fault", parts: atOnce(masked(fin|3, ""), bye), code: 1002},
		{name: "a fault behind", parts: atOnce(bye, masked(fin|3, "")), code: 1000, closed: true},
	}
	for _, code := range []int{1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3003, 3008, 3999, 4000, 4999} {
		list = append(list, ordeal{
			name: fmt.Sprintf("code %d", code), parts: atOnce(masked(fin|opClose, closing(code, "good"))), code: code, closed: true,
		})
	}
	for _, code := range []int{0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 32768, 65535} {
		list = append(list, ordeal{
			name: fmt.Sprintf("code %d", code), parts: atOnce(masked(fin|opClose, closing(code, "bad"))), code: 1002,
		})
	}
	var doubled []ordeal
	for _, o := range list {
		if len(o.parts[0].send) < 1000 && !strings.Contains(o.name, "behind") {
			doubled = append(doubled, both(o)...)
		} else {
			doubled = append(doubled, o)
		}
	}
	ordeals(t, doubled)
}

// TestEnd is how the connection below ends: in good order, whatever the client
// still sends (RFC 6455, 7.1.1: the server is the first to close, and a client
// that has something under way must not lose what it has not read by a reset).
func TestEnd(t *testing.T) {
	more := strings.Repeat("x", 1000)
	for name, last := range map[string]struct {
		frame []byte
		code  int
	}{
		"behind a close frame":   {masked(fin|opClose, closing(1001, "bye")), 1001},
		"behind a broken frame":  {masked(fin|rsv2|opText, "x"), 1002},
		"behind a broken text":   {masked(fin|opText, "\xff"), 1007},
		"behind a broken length": {[]byte("\x89\xff"), 1002},
	} {
		t.Run(name, func(t *testing.T) {
			onAll(t, echoOptions(), func(t *testing.T, f front) {
				c := f.open(t, nil)
				var frames [][]byte
				for range 50 {
					frames = append(frames, masked(fin|opText, sample(3000)))
				}
				go c.Write(join(append(frames, last.frame)...))
				for range 50 {
					c.want(event{opText, sample(3000)})
				}
				e, err := c.next()
				if err != nil || e.op != opClose || e.payload[:2] != closing(last.code, "") {
					t.Fatalf("got %v, error %v", e, err)
				}
				for range 30 { // one segment after the other: a closed socket would answer with a reset
					c.write([]byte(more))
				}
				c.wantEnd()
			})
		})
	}
}

// TestEndBelowTLS sees the end of the connection itself, too, not only that of TLS.
func TestEndBelowTLS(t *testing.T) {
	onAll(t, echoOptions(), func(t *testing.T, f front) {
		for name, last := range map[string][]byte{
			"good": masked(fin|opClose, closing(1000, "")),
			"bad":  masked(fin|opText, "\xff"),
		} {
			t.Run(name, func(t *testing.T) {
				c := f.open(t, nil)
				c.write(last)
				for {
					if _, err := c.next(); err != nil {
						break
					}
				}
				below := c.Conn
				if secure, ok := c.Conn.(*tls.Conn); ok {
					below = secure.NetConn()
				}
				if n, err := io.Copy(io.Discard, below); err != nil {
					t.Fatalf("behind TLS: %d bytes, error %v", n, err)
				}
			})
		}
	})
}

// TestHalfClosed is a client that ends its direction right behind its close
// frame: it gets the answer all the same.
func TestHalfClosed(t *testing.T) {
	onAll(t, echoOptions(), func(t *testing.T, f front) {
		c := f.open(t, nil)
		half, ok := c.Conn.(interface{ CloseWrite() error })
		if !ok {
			t.Fatalf("%T has no half", c.Conn)
		}
		c.write(join(masked(fin|opText, "last"), masked(fin|opClose, closing(1000, ""))))
		_ = half.CloseWrite()
		c.want(event{opText, "last"})
		c.wantClosed(1000, false)
	})
}

// TestClientGoes is a client that ends without a close frame: in the middle of
// a frame, of a message, and between them. Nobody else is harmed, and its
// connection is not kept.
func TestClientGoes(t *testing.T) {
	onAll(t, echoOptions(), func(t *testing.T, f front) {
		other := f.open(t, nil)
		for _, sent := range [][]byte{nil, []byte("\x81"), masked(fin|opText, "Hello")[:8], masked(opText, "Hello"), masked(fin|opText, "Hello")} {
			c := f.open(t, nil)
			c.write(sent)
			if half, ok := c.Conn.(*net.TCPConn); ok {
				_ = half.CloseWrite()
				_, _ = io.Copy(io.Discard, c.r) // it is let go
			}
			c.Close()
		}
		other.write(masked(fin|opText, "still here"))
		other.want(event{opText, "still here"})
		other.goodbye()
	})
}
