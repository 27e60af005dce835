package client

import (
	"bufio"
	"io"
	"log"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }

// serveBytes answers each request with the next of the texts, whatever it is,
// and closes after the last.
func serveBytes(t *testing.T, answers ...string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	wait.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		for _, a := range answers {
			for {
				line, err := in.ReadString('\n')
				if err != nil {
					return
				}
				if line == "\r\n" {
					break
				}
			}
			io.WriteString(conn, a)
		}
		conn.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, in)
	})
	t.Cleanup(func() { l.Close(); wait.Wait() })
	return "http://" + l.Addr().String()
}

func TestBadAnswers(t *testing.T) {
	for _, c := range []struct {
		name, answer string
		kind         error
	}{
		{"nothing", "", ErrClosed},
		{"half a head", "HTTP/1.1 200 OK\r\nContent-Le", ErrClosed},
		{"half a body", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", ErrClosed},
		{"half a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal", ErrClosed},
		{"no last chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhal\r\n", ErrClosed},
		{"another protocol", "220 mail.example ESMTP\r\n\r\n", ErrProtocol},
		{"no status", "HTTP/1.1 OK\r\n\r\n", ErrProtocol},
		{"bad length", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", ErrProtocol},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", ErrProtocol},
		{"bad chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", ErrProtocol},
		{"switched", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", ErrProtocol},
		{"interim for ever", strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", maxInterim+1), ErrProtocol},
		{"head without end", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", MaxHead+2*readBuffer), ErrProtocol},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := dial(t, Options{Protocol: "http1", URL: serveBytes(t, c.answer)})
			_, err := conn.Do(t.Context(), 0, nil)
			onlyWraps(t, err, c.kind)
			_, err = conn.Do(t.Context(), 0, nil)
			onlyWraps(t, err, ErrClosed) // of no more use
		})
	}
}

func TestUnasked(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	conn := dial(t, Options{Protocol: "http1", URL: serveBytes(t, ok+ok, "")})
	if a, err := conn.Do(t.Context(), 0, nil); err != nil || a.Bytes != int64(len(ok)) || a.Body != 2 {
		t.Fatalf("first: %+v, %v", a, err)
	}
	_, err := conn.Do(t.Context(), 0, nil)
	onlyWraps(t, err, ErrProtocol)
}

// TestConnectionClose has the target end the connection in good order.
func TestConnectionClose(t *testing.T) {
	for _, head := range []string{
		"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\n\r\nok", // ends with the connection
	} {
		conn := dial(t, Options{Protocol: "http1", URL: serveBytes(t, head)})
		a, err := conn.Do(t.Context(), 0, nil)
		if err != nil || !a.Close || a.Body != 2 || a.Bytes != int64(len(head)) {
			t.Errorf("%q: %+v, %v", head, a, err)
		}
		_, err = conn.Do(t.Context(), 0, nil)
		onlyWraps(t, err, ErrClosed)
	}
}

// A canned connection holds all its answers from the beginning.
type canned struct {
	net.Conn
	in io.Reader
}

func (c *canned) Read(p []byte) (int, error)  { return c.in.Read(p) }
func (c *canned) Write(p []byte) (int, error) { return len(p), nil }
func (c *canned) SetDeadline(time.Time) error { return nil }
func (c *canned) Close() error                { return nil }

// FuzzHTTP1Answer looks for answers that break more than themselves.
func FuzzHTTP1Answer(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
	f.Add([]byte("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"))
	f.Add([]byte("HTTP/1.0 200 OK\r\n\r\nto the end"))
	f.Add([]byte("SSH-2.0-x\r\n"))
	t, err := parseTarget(&Options{Protocol: "http1", URL: "http://x"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(test *testing.T, b []byte) {
		c := newHTTP1Dialer(t).over(&canned{in: strings.NewReader(string(b))})
		defer c.Close()
		a, err := c.Do(test.Context(), 0, nil)
		if err == nil && (a.Status < 200 || a.Bytes > int64(len(b)) || a.Body > a.Bytes) {
			test.Errorf("%q: %+v", b, a)
		}
	})
}
