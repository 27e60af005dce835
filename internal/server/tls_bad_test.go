package server

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"millrace/internal/process/servertest"
)

// Whoever speaks plain HTTP to a TLS port is told so, however much there is to
// read before: a connection closed with bytes unread would be reset, and the
// answer lost.
func TestPlainHTTPIsToldAboutHTTPS(t *testing.T) {
	r := start(t, plan{})
	for name, stream := range map[string]string{
		"short":  request("GET", "/"),
		"delete": request("DELETE", "/a"),
		"upload": "PATCH /a HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100000),
	} {
		nc, err := net.Dial("tcp", r.secure)
		if err != nil {
			t.Fatal(err)
		}
		_ = nc.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(nc, stream); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := io.ReadAll(nc)
		if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 400 ") || !strings.Contains(string(got), "https://") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		_ = nc.Close()
	}
	r.dial(t, "tls").get("/slow")
}

// A handshake that a client drags out, byte by byte or in its middle, is cut off
// at its timeout, however lively the client is.
func TestHandshakeThatNeverEnds(t *testing.T) {
	t.Parallel()
	r := start(t, plan{limits: Options{HandshakeTimeout: short}})
	hello := firstFlight(t)
	for name, drip := range map[string]func(net.Conn) error{
		"nothing":     func(net.Conn) error { return nil },
		"no finished": func(nc net.Conn) error { _, err := nc.Write(hello); return err },
		"byte by byte": func(nc net.Conn) error {
			go func() { // ends with the connection
				for _, b := range hello[:len(hello)-1] {
					if _, err := nc.Write([]byte{b}); err != nil {
						return
					}
					time.Sleep(short / 10)
				}
			}()
			return nil
		},
	} {
		nc, err := net.Dial("tcp", r.secure)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		_ = nc.SetDeadline(time.Now().Add(patience))
		if err := drip(nc); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		// The end, or a reset if the server has not read all: but an end.
		if _, err := io.Copy(io.Discard, nc); isTimeout(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	servertest.Eventually(t, "every slot is free again", func() bool { return r.srv.slots.used() == 0 })
	if n := r.meters.Rejected.Load(); n != 3 {
		t.Errorf("%d rejected connections, want 3", n)
	}
	r.dial(t, "tls").get("/slow")
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// firstFlight is the ClientHello of Go's client.
func firstFlight(t *testing.T) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go func() { // ends with the pipe
		_ = tls.Client(client, &tls.Config{ServerName: "localhost"}).Handshake()
		_ = client.Close()
	}()
	b := make([]byte, 16<<10)
	n, err := server.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// A client that speaks neither of our protocols hears it in the handshake.
func TestWrongALPN(t *testing.T) {
	r := start(t, plan{})
	conf := r.clientTLS.Clone()
	conf.NextProtos = []string{"h3", "smtp"}
	_, err := tls.Dial("tcp", r.secure, conf)
	const noApplicationProtocol = 120 // RFC 7301, 3.2
	if err == nil || !strings.Contains(err.Error(), tls.AlertError(noApplicationProtocol).Error()) {
		t.Errorf("the error is %v", err)
	}
	for _, protos := range [][]string{nil, {"h3", "http/1.1"}} { // one of ours is enough, and so is none at all
		conf.NextProtos = protos
		nc, err := tls.Dial("tcp", r.secure, conf)
		if err != nil {
			t.Fatalf("%v: %v", protos, err)
		}
		_ = nc.Close()
	}
	servertest.Eventually(t, "every slot is free again", func() bool { return r.srv.slots.used() == 0 })
}

// A client that goes without a close_notify, in whatever state, harms nobody and
// is nothing to write home about.
func TestNoCloseNotify(t *testing.T) {
	r := start(t, plan{})
	other := r.dial(t, "tls")
	other.get("/slow")
	for _, proto := range []string{"http/1.1", "h2"} {
		for name, leave := range map[string]func(nc *net.TCPConn, tc *tls.Conn) error{
			"at once":        func(*net.TCPConn, *tls.Conn) error { return nil },
			"half a request": func(_ *net.TCPConn, tc *tls.Conn) error { return say(tc, "GET / HT") },
			"a request":      func(_ *net.TCPConn, tc *tls.Conn) error { return say(tc, request("GET", "/slow")) },
			"half a record":  func(nc *net.TCPConn, _ *tls.Conn) error { return say(nc, "\x17\x03\x03\x01") },
			"a broken record": func(nc *net.TCPConn, _ *tls.Conn) error {
				return say(nc, "\x17\x03\x03\x00\x20"+strings.Repeat("x", 32))
			},
			"with a reset": func(nc *net.TCPConn, _ *tls.Conn) error { return nc.SetLinger(0) },
		} {
			nc, err := net.Dial("tcp", r.secure)
			if err != nil {
				t.Fatal(err)
			}
			conf := r.clientTLS.Clone()
			conf.ServerName, conf.NextProtos = "127.0.0.1", []string{proto}
			tc := tls.Client(nc, conf)
			if err := tc.Handshake(); err != nil {
				t.Fatalf("%s, %s: %v", proto, name, err)
			}
			if err := leave(nc.(*net.TCPConn), tc); err != nil {
				t.Fatalf("%s, %s: %v", proto, name, err)
			}
			_ = nc.Close() // below TLS: without its farewell
		}
	}
	servertest.Eventually(t, "one connection is left", func() bool { return r.srv.slots.used() == 1 })
	other.get("/slow")
	if told := r.log.String(); strings.Contains(told, "level=ERROR") || strings.Contains(told, "level=WARN") {
		t.Errorf("the log: %s", told)
	}
}

func say(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}
