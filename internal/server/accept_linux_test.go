package server

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestDirect: a connection that is accepted without package net has the addresses and the
// options that it would have with it.
func TestDirect(t *testing.T) {
	for _, c := range []struct{ network, listen, to string }{
		{"tcp4", "127.0.0.1:0", "127.0.0.1"}, {"tcp4", "0.0.0.0:0", "127.0.0.1"}, {"tcp6", "[::1]:0", "::1"}, {"tcp6", "[::]:0", "::1"}, {"tcp", "[::]:0", "127.0.0.1"},
	} {
		ln, err := net.Listen(c.network, c.listen)
		if err != nil {
			t.Logf("%s: %v", c.listen, err) // no IPv6 here
			continue
		}
		d := newDirect(ln)
		if d == nil {
			t.Fatalf("%s: not accepted without package net", c.listen)
		}
		_, port, _ := net.SplitHostPort(ln.Addr().String())
		client, err := net.Dial("tcp", net.JoinHostPort(c.to, port))
		if err != nil {
			t.Fatal(err)
		}
		a, err := d.accept()
		if err != nil {
			t.Fatal(err)
		}
		if a.peer.String() != client.LocalAddr().String() || a.local.String() != client.RemoteAddr().String() {
			t.Errorf("%s: from %v to %v, want %v to %v", c.listen, a.peer, a.local, client.LocalAddr(), client.RemoteAddr())
		}
		noDelay, err := unix.GetsockoptInt(a.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY)
		if err != nil || noDelay == 0 {
			t.Errorf("%s: small answers wait for acknowledgements: %v", c.listen, err)
		}
		if flags, err := unix.FcntlInt(uintptr(a.fd), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
			t.Errorf("%s: the socket waits: %v", c.listen, err)
		}
		if flags, err := unix.FcntlInt(uintptr(a.fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("%s: child processes get the socket: %v", c.listen, err)
		}
		nc, err := a.conn()
		if err != nil {
			t.Fatal(err)
		}
		if nc.RemoteAddr().String() != a.peer.String() {
			t.Errorf("%s: from %v, want %v", c.listen, nc.RemoteAddr(), a.peer)
		}
		_, _ = nc.Close(), client.Close()
		if err := d.setDeadline(time.Now()); err != nil {
			t.Fatal(err)
		}
		if _, err := d.accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: after its deadline: %v", c.listen, err)
		}
		_ = d.setDeadline(time.Time{})
		over := make(chan error)
		go func() { _, err := d.accept(); over <- err }()
		d.close()
		if <-over == nil {
			t.Errorf("%s: a connection after its end", c.listen)
		}
		_ = ln.Close()
		if nc, err := net.Dial("tcp", net.JoinHostPort(c.to, port)); err == nil {
			_ = nc.Close()
			t.Errorf("%s: still open after its end", c.listen)
		}
	}
}
