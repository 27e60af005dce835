package servertest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Strangers are servers that are something else than who connects takes them for, by what
// they are. Each is an address; "tls" stands for a server that wants TLS.
func Strangers(t testing.TB) map[string]string {
	t.Helper()
	const page = "<!doctype html><title>Welcome</title>"
	web := func(c net.Conn) {
		if _, err := c.Read(make([]byte, 4096)); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 37\r\nConnection: close\r\n\r\n"+page)
		}
	}
	says := func(text string) func(net.Conn) {
		return func(c net.Conn) {
			_, _ = io.WriteString(c, text)
			_, _ = io.Copy(io.Discard, c)
		}
	}
	return map[string]string{
		"a web server":           stranger(t, web),
		"one that closes":        stranger(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }),
		"one that closes unread": stranger(t, func(net.Conn) {}),
		"ssh":                    stranger(t, says("SSH-2.0-OpenSSH_9.2p1\r\n")),
		"mail":                   stranger(t, says("220 mail.example ESMTP\r\n")),
		"mailbox":                stranger(t, says("+OK ready\r\n+OK again\r\n-ERR what\r\n")),
		"tls": stranger(t, func(c net.Conn) { // an alert, as to bytes that are no TLS
			if _, err := c.Read(make([]byte, 64)); err == nil {
				_, _ = io.WriteString(c, "\x15\x03\x01\x00\x02\x02\x46")
			}
		}),
	}
}

// stranger serves connections until the test's end.
func stranger(t testing.TB, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	ended := false
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			if ended {
				c.Close()
			}
			open[c] = true
			mu.Unlock()
			all.Go(func() {
				serve(c)
				mu.Lock()
				delete(open, c)
				mu.Unlock()
				c.Close()
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		ended = true
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return l.Addr().String()
}
