//go:build linux

package engine

import (
	"bufio"
	"crypto/sha1" // RFC 6455, 1.3
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/internal/process/servertest"
)

const (
	openingKey = "dGhlIHNhbXBsZSBub25jZQ=="
	openingHi  = "\x81\x02hi" // a text message of a server

	openingEarly = "\x81\x82\x00\x00\x00\x00yo" // one of a client, which comes with its request
	openingOK    = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: "
)

// openings are servers of WebSockets, by what they do with the handshake, for whose key accept
// is the answer. agreed says that it may be passed on.
var openings = []struct {
	name   string
	serve  func(nc *net.TCPConn, accept string)
	agreed bool
}{
	{"agrees", func(nc *net.TCPConn, accept string) {
		tell(nc, openingOK+accept+"\r\n\r\n")
		b := make([]byte, len(openingEarly))
		if _, _ = io.ReadFull(nc, b); string(b) == openingEarly {
			tell(nc, openingHi)
		}
	}, true},
	{"agrees with more behind it", func(nc *net.TCPConn, accept string) { tell(nc, openingOK+accept+"\r\n\r\n"+openingHi) }, true},
	{"agrees in pieces", func(nc *net.TCPConn, accept string) {
		for _, piece := range strings.SplitAfter(openingOK+accept+"\r\nSec-WebSocket-Protocol: chat\r\nSet-Cookie: a=b\r\n\r\n"+openingHi, ":") {
			tell(nc, piece)
			later()
		}
	}, true},
	{"agrees late", func(nc *net.TCPConn, accept string) {
		time.Sleep(300 * time.Millisecond)
		tell(nc, openingOK+accept+"\r\n\r\n"+openingHi)
	}, true},
	{"agrees after a 103", func(nc *net.TCPConn, accept string) {
		tell(nc, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"+openingOK+accept+"\r\n\r\n"+openingHi)
	}, true},
	{"agrees and ends", func(nc *net.TCPConn, accept string) { tell(nc, openingOK+accept+"\r\n\r\n"+openingHi); nc.Close() }, true},
	{"answers", func(nc *net.TCPConn, _ string) {
		tell(nc, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello")
	}, false},
	{"answers with more", func(nc *net.TCPConn, _ string) {
		tell(nc, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\n\r\n")
	}, false},
	{"refuses", func(nc *net.TCPConn, _ string) {
		tell(nc, "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n")
	}, false},
	{"answers at length", func(nc *net.TCPConn, _ string) {
		tell(nc, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 200000\r\n\r\n"+strings.Repeat("x", 200_000))
	}, false},
	{"has not understood", func(nc *net.TCPConn, _ string) { tell(nc, openingOK+"AAAA\r\n\r\n"+openingHi) }, false},
	{"says no protocol", func(nc *net.TCPConn, accept string) {
		tell(nc, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "+accept+"\r\n\r\n"+openingHi)
	}, false},
	{"says another protocol", func(nc *net.TCPConn, accept string) {
		tell(nc, strings.Replace(openingOK, "websocket", "h2c", 1)+accept+"\r\n\r\n"+openingHi)
	}, false},
	{"is no HTTP", func(nc *net.TCPConn, _ string) { tell(nc, "220 hello\r\n") }, false},
	{"says nothing", func(*net.TCPConn, string) { time.Sleep(2 * time.Second) }, false},
	{"hangs in the head", func(nc *net.TCPConn, _ string) { tell(nc, openingOK[:40]); time.Sleep(2 * time.Second) }, false},
	{"closes", func(nc *net.TCPConn, _ string) { nc.Close() }, false},
	{"resets", func(nc *net.TCPConn, _ string) { _ = nc.SetLinger(0); nc.Close() }, false},
	{"resets in the head", func(nc *net.TCPConn, _ string) { tell(nc, openingOK[:40]); later(); _ = nc.SetLinger(0); nc.Close() }, false},
}

func tell(nc net.Conn, text string) { _, _ = io.WriteString(nc, text) }

func later() { time.Sleep(5 * time.Millisecond) }

// openingUpstream is one of them. ended counts connections that have.
func openingUpstream(t *testing.T, serve func(nc *net.TCPConn, accept string)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer nc.Close()
				r, err := http.ReadRequest(bufio.NewReader(nc))
				tcp, ok := nc.(*net.TCPConn)
				if err != nil || !ok {
					return
				}
				sum := sha1.Sum([]byte(r.Header.Get("Sec-Websocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
				serve(tcp, base64.StdEncoding.EncodeToString(sum[:]))
				_, _ = io.Copy(io.Discard, nc)
			}()
		}
	}()
	return ln.Addr().String()
}

// opener is a server that passes WebSockets on.
type opener struct {
	*Server
	addr string
}

func newOpener(t *testing.T, off bool, to string) *opener {
	t.Helper()
	srv := running(t, fmt.Sprintf("admin: {listen: off}\nlog: {format: off}\nlisten: 127.0.0.1:0\nlane: {off: %v}\nsites:\n- routes:\n    /ws: {websocket: {proxy: {to: 'ws://%s', header_timeout: 700ms, connect_timeout: 400ms, retries: {attempts: 1}, breaker: {off: true}}}}\n", off, to))
	o := &opener{srv, strings.TrimPrefix(srv.Addrs()[0], "http://")}
	o.open(t) // whose handler says when the server drains
	return o
}

func (o *opener) dial(t *testing.T) *net.TCPConn {
	t.Helper()
	nc, err := net.Dial("tcp", o.addr)
	if err != nil {
		t.Fatal(err)
	}
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		t.Fatalf("a %T", nc)
	}
	t.Cleanup(func() { tcp.Close() })
	_ = tcp.SetDeadline(time.Now().Add(30 * time.Second))
	return tcp
}

// varies are a date and the id of a request.
var varies = regexp.MustCompile(`Date: [^\r]*|Request id: [0-9A-Z]+`)

// open asks for a WebSocket, and returns what comes until it ends, or its first message.
func (o *opener) open(t *testing.T) string {
	t.Helper()
	nc := o.dial(t)
	defer nc.Close()
	_, _ = io.WriteString(nc, "GET /ws HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "+openingKey+"\r\n\r\n"+openingEarly)
	var all strings.Builder
	res, err := http.ReadResponse(bufio.NewReader(io.TeeReader(nc, &all)), nil)
	if err != nil {
		return "error after " + all.String()
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusSwitchingProtocols {
		_, _ = io.Copy(io.Discard, res.Body)
		return varies.ReplaceAllString(all.String(), "")
	}
	for !strings.Contains(all.String(), openingHi) {
		b := make([]byte, 64)
		n, err := nc.Read(b)
		if all.Write(b[:n]); err != nil {
			break
		}
	}
	head, _, _ := strings.Cut(all.String(), openingHi)
	return varies.ReplaceAllString(head, "") + openingHi
}

// streams is how many places and streams its upstreams have.
func (o *opener) streams() (running, streams int) {
	for _, p := range o.pools() {
		for _, s := range p.Servers() {
			running, streams = running+s.Running, streams+s.Streams
		}
	}
	return running, streams
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestOpenings: a client that asks for a WebSocket gets the same by a loop and without, whatever
// its upstream does, and afterwards no place and no descriptor is taken.
func TestOpenings(t *testing.T) {
	for _, u := range openings {
		t.Run(u.name, func(t *testing.T) {
			to := openingUpstream(t, u.serve)
			with, without := newOpener(t, false, to), newOpener(t, true, to)
			before, forwarded := openDescriptors(t), with.server.Forwarded()
			const times = 4
			for range times {
				got, want := with.open(t), without.open(t)
				if got != want || u.agreed != strings.HasSuffix(got, openingHi) {
					t.Errorf("by a loop\n%.1000q\nwithout\n%.1000q", got, want)
				}
			}
			if n := with.server.Forwarded() - forwarded; n != times {
				t.Errorf("a loop has passed on %d of %d", n, times)
			}
			with.leftNothing(t, before)
		})
	}
}

// leftNothing waits until no place and no descriptor is taken any more.
func (o *opener) leftNothing(t *testing.T, before int) {
	t.Helper()
	servertest.Eventually(t, "all is given back", func() bool {
		running, streams := o.streams()
		return running == 0 && streams == 0 && openDescriptors(t) <= before
	})
}

// TestOpeningsConnect: nobody listens; nobody accepts; and the client leaves meanwhile.
func TestOpeningsConnect(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	to := ln.Addr().String()
	ln.Close()
	t.Run("refused", func(t *testing.T) {
		with, without := newOpener(t, false, to), newOpener(t, true, to)
		before := openDescriptors(t)
		if got, want := with.open(t), without.open(t); got != want || !strings.HasPrefix(got, "HTTP/1.1 502") {
			t.Errorf("by a loop\n%.1000q\nwithout\n%.1000q", got, want)
		}
		with.leftNothing(t, before)
	})
	if ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		t.Fatalf("a %T", ln)
	}
	raw, err := tcp.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { _ = syscall.Listen(int(fd), 0) })
	}
	if err != nil {
		t.Fatal(err)
	}
	for {
		nc, err := net.DialTimeout("tcp", ln.Addr().String(), 200*time.Millisecond)
		if err != nil {
			break // its queue is full
		}
		defer nc.Close()
	}
	t.Run("too late", func(t *testing.T) {
		with, without := newOpener(t, false, ln.Addr().String()), newOpener(t, true, ln.Addr().String())
		before := openDescriptors(t)
		if got, want := with.open(t), without.open(t); got != want || !strings.HasPrefix(got, "HTTP/1.1 504") {
			t.Errorf("by a loop\n%.1000q\nwithout\n%.1000q", got, want)
		}
		with.leftNothing(t, before)
	})
	t.Run("client leaves", func(t *testing.T) {
		with := newOpener(t, false, ln.Addr().String())
		before := openDescriptors(t)
		for _, wait := range []time.Duration{0, 10 * time.Millisecond, 150 * time.Millisecond} { // which is on a goroutine by then
			nc := with.dial(t)
			_, _ = io.WriteString(nc, "GET /ws HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "+openingKey+"\r\n\r\n")
			time.Sleep(wait)
			_ = nc.SetLinger(0)
			nc.Close()
		}
		with.leftNothing(t, before)
	})
}
