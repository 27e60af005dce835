package server

import (
	"net"
	"os"
	"strconv"
	"testing"
)

func TestInheritedVariables(t *testing.T) {
	me := strconv.Itoa(os.Getpid())
	for _, c := range []struct {
		name, pid, fds string
		sockets        int
		wrong          bool
	}{
		{"none", "", "", 0, false},
		{"of another process", "1", "3", 0, false},
		{"no sockets", me, "0", 0, false},
		{"no number", me, "x", 0, true},
		{"negative", me, "-1", 0, true},
		{"too many", me, "65", 0, true},
	} {
		env := map[string]string{"LISTEN_PID": c.pid, "LISTEN_FDS": c.fds}
		files, err := Inherited(func(k string) string { return env[k] })
		if len(files) != c.sockets || (err != nil) != c.wrong {
			t.Errorf("%s: %d sockets, %v", c.name, len(files), err)
		}
	}
}

// TestInheritedSocket: who connects before the server is there is served, and
// the socket is open after it.
func TestInheritedSocket(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	file, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Skip(err)
	}
	defer file.Close()
	addr := ln.Addr().String()
	for range 2 { // a restart
		got := inherited([]*os.File{file}, addr)
		if got == nil {
			t.Fatalf("the socket at %s is not found", addr)
		}
		early, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := got.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = accepted.Close(), early.Close()
		if err := got.Close(); err != nil {
			t.Error(err)
		}
	}
	if inherited([]*os.File{file}, "127.0.0.1:1") != nil {
		t.Error("the socket is taken for another address")
	}
}

// TestInheritedUDP: a datagram socket is found by its address as well, and stays
// open after the listener.
func TestInheritedUDP(t *testing.T) {
	pc, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	file, err := pc.File()
	if err != nil {
		t.Skip(err)
	}
	defer file.Close()
	addr := pc.LocalAddr().String()
	for range 2 { // a restart
		got := inheritedUDP([]*os.File{file}, addr)
		if got == nil {
			t.Fatalf("the socket at %s is not found", addr)
		}
		if _, err := pc.WriteTo([]byte("x"), pc.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		if n, _, err := got.ReadFrom(make([]byte, 10)); n != 1 || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		if err := got.Close(); err != nil {
			t.Error(err)
		}
	}
	if inherited([]*os.File{file}, addr) != nil || inheritedUDP([]*os.File{file}, "127.0.0.1:1") != nil {
		t.Error("the socket is taken for another one")
	}
}

func TestSameAddress(t *testing.T) {
	any6 := &net.TCPAddr{IP: net.IPv6unspecified, Port: 80}
	for _, c := range []struct {
		have net.Addr
		addr string
		same bool
	}{
		{any6, ":80", true},
		{any6, "[::]:80", true},
		{any6, "0.0.0.0:80", false}, // would serve IPv6 as well
		{any6, ":443", false},
		{any6, ":0", true},
		{any6, "127.0.0.1:0", false},
		{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}, "127.0.0.1:80", true},
		{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}, ":80", false},
		{&net.UnixAddr{Net: "unix", Name: "/run/x"}, "unix:/run/x", true},
		{&net.UnixAddr{Net: "unix", Name: "/run/x"}, "/run/x", false},
	} {
		if got := sameAddress(c.have, c.addr); got != c.same {
			t.Errorf("%s for %s: %v", c.have, c.addr, got)
		}
	}
}
