package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// switching is an upstream that upgrades to "echo" and then talks, once it has
// heard a line, with what it is given.
func switching(talk func(nc net.Conn, in *bufio.Reader)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Connection") != "Upgrade" || r.Header.Get("Upgrade") != "echo/1" {
			http.Error(w, "not upgraded", http.StatusOK)
			return
		}
		nc, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer nc.Close()
		io.WriteString(nc, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade, X-Hop\r\nUpgrade: ECHO/1\r\nX-Hop: 1\r\nX-Said: yes\r\nServer: secret\r\n\r\n")
		talk(nc, buf.Reader)
	})
}

func echoLines(nc net.Conn, in *bufio.Reader) {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		io.WriteString(nc, line)
	}
}

const askEcho = "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: h2c, echo/1\r\nSec-Websocket-Key: x\r\n\r\n"

// switched reads the answer to an upgrade.
func switched(t *testing.T, in *bufio.Reader) http.Header {
	t.Helper()
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("status %d", res.StatusCode)
	}
	return res.Header
}

// hear reads what is expected, byte by byte.
func hear(t *testing.T, in io.Reader, want string) {
	t.Helper()
	buf := make([]byte, len(want))
	if n, err := io.ReadFull(in, buf); err != nil || string(buf) != want {
		t.Fatalf("heard %q: %v, want %q", buf[:n], err, want)
	}
}

func TestUpgrade(t *testing.T) {
	for _, protocol := range []string{"h1", "tls"} {
		t.Run(protocol, func(t *testing.T) {
			r := newRig(t, protocol, Options{}, switching(echoLines))
			nc := r.dial()
			in := bufio.NewReader(nc)
			// What a client says before it is answered must not be lost.
			io.WriteString(nc, askEcho+"early\n")
			h := switched(t, in)
			if h.Get("Upgrade") != "ECHO/1" || h.Get("Connection") != "Upgrade" || h.Get("X-Said") != "yes" || h.Get("X-Hop")+h.Get("Server") != "" {
				t.Errorf("header %v", h)
			}
			hear(t, in, "early\n")
			io.WriteString(nc, "hello\n")
			hear(t, in, "hello\n")
			nc.Close()
		})
	}
}

// Each side may end its half and still hear the other's.
func TestHalfClose(t *testing.T) {
	overHalves := func(t *testing.T, protocol string) {
		heard := make(chan string, 1)
		r := newRig(t, protocol, Options{}, switching(func(nc net.Conn, in *bufio.Reader) {
			b, _ := io.ReadAll(in) // up to the client's end
			heard <- string(b)
			io.WriteString(nc, "bye")
		}))
		nc := r.dial()
		in := bufio.NewReader(nc)
		io.WriteString(nc, askEcho)
		switched(t, in)
		io.WriteString(nc, "all I have")
		nc.(interface{ CloseWrite() error }).CloseWrite()
		if got := <-heard; got != "all I have" {
			t.Errorf("the upstream heard %q", got)
		}
		if b, err := io.ReadAll(in); err != nil || string(b) != "bye" {
			t.Errorf("the client heard %q: %v", b, err)
		}
	}
	for _, protocol := range []string{"h1", "tls"} {
		t.Run(protocol, func(t *testing.T) { overHalves(t, protocol) })
	}

	t.Run("upstream first", func(t *testing.T) {
		heard := make(chan string, 1)
		r := newRig(t, "h1", Options{}, switching(func(nc net.Conn, in *bufio.Reader) {
			nc.(*net.TCPConn).CloseWrite()
			b, _ := io.ReadAll(in)
			heard <- string(b)
		}))
		nc := r.dial()
		in := bufio.NewReader(nc)
		io.WriteString(nc, askEcho)
		switched(t, in)
		if b, err := io.ReadAll(in); err != nil || len(b) != 0 {
			t.Errorf("the client heard %q: %v", b, err)
		}
		io.WriteString(nc, "one more thing")
		nc.(*net.TCPConn).CloseWrite()
		if got := <-heard; got != "one more thing" {
			t.Errorf("the upstream heard %q", got)
		}
	})
}

// A drain ends upgraded connections on both sides, and only those.
func TestDrainEndsUpgrades(t *testing.T) {
	ended := make(chan bool)
	r := newRig(t, "h1", Options{}, switching(func(nc net.Conn, in *bufio.Reader) {
		echoLines(nc, in)
		close(ended)
	}))
	nc := r.dial()
	in := bufio.NewReader(nc)
	io.WriteString(nc, askEcho)
	switched(t, in)
	io.WriteString(nc, "hello\n")
	hear(t, in, "hello\n")
	close(r.drain)
	if b, err := io.ReadAll(in); len(b) != 0 {
		t.Errorf("after the drain: %q %v", b, err)
	}
	<-ended
	if res, _ := r.get("/"); res.StatusCode != 200 {
		t.Errorf("another request in the drain: %d", res.StatusCode)
	}
}

// What must not become a tunnel past us stays a request.
func TestNoUpgrade(t *testing.T) {
	r := newRig(t, "h1", Options{}, http.HandlerFunc(tell))
	for name, head := range map[string]string{
		"h2c":           lines("GET / HTTP/1.1", "Host: a", "Connection: Upgrade, HTTP2-Settings, close", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"),
		"other names":   lines("GET / HTTP/1.1", "Host: a", "Connection: Upgrade, close", "Upgrade: H2C , HTTP/2.0,TLS/1.0", "Upgrade: b@d, a/b/c"),
		"not connected": lines("GET / HTTP/1.1", "Host: a", "Connection: close", "Upgrade: websocket"),
		"with a body":   lines("POST / HTTP/1.1", "Host: a", "Connection: Upgrade, close", "Upgrade: websocket", "Content-Length: 2") + "hi",
		"HTTP/1.0":      lines("GET / HTTP/1.0", "Host: a", "Connection: Upgrade", "Upgrade: websocket"),
	} {
		got := r.raw(head)
		if _, body, _ := strings.Cut(got, "\r\n\r\n"); !strings.Contains(got, " 200 OK\r\n") || strings.Contains(body, `"Upgrade"`) || strings.Contains(body, "Http2-Settings") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// An upstream that switches to something else than was asked for is refused.
func TestWrongUpgrade(t *testing.T) {
	for _, protocol := range []string{"", "Upgrade: other\r\n", "Upgrade: echo/1, other\r\n"} {
		r := rigTo(t, "h1", to(rawUpstream(t, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"+protocol+"\r\n")))
		nc := r.dial()
		io.WriteString(nc, askEcho)
		res, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil || res.StatusCode != 502 {
			t.Errorf("%q: %+v %v", protocol, res, err)
		}
	}
}

// A refused upgrade is an answer like any other.
func TestUpgradeRefused(t *testing.T) {
	r := newRig(t, "h1", Options{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }))
	nc := r.dial()
	io.WriteString(nc, askEcho)
	res, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil || res.StatusCode != 403 {
		t.Errorf("%+v: %v", res, err)
	}
}
