package server

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"millrace/internal/lane"
	"millrace/internal/observe/meter"
	"millrace/internal/route/site"
	"millrace/internal/wire/netset"
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
	tcp := func(network, addr string) net.Listener {
		ln, err := net.Listen(network, addr)
		if err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { ln.Close() })
		return ln
	}
	all, all4, all6, one := tcp("tcp", ":0"), tcp("tcp4", ":0"), tcp("tcp6", ":0"), tcp("tcp4", "127.0.0.1:0")
	for _, c := range []struct {
		socket     net.Listener
		host, port string // no port: that of the socket
		same       bool
	}{
		{all, "", "", true},
		{all, "[::]", "", false},    // would serve IPv4 as well
		{all, "0.0.0.0", "", false}, // would serve IPv6 as well
		{all, "", "443", false},
		{all, "", "0", true},
		{all, "127.0.0.1", "0", false},
		{all4, "0.0.0.0", "", true},
		{all4, "", "", false}, // half of it
		{all4, "[::]", "", false},
		{all6, "[::]", "", true},
		{all6, "[0::0]", "", true},
		{all6, "", "", false},
		{all6, "0.0.0.0", "", false},
		{one, "127.0.0.1", "", true},
		{one, "", "", false},
		{one, "0.0.0.0", "", false},
	} {
		port := c.port
		if port == "" {
			_, port, _ = net.SplitHostPort(c.socket.Addr().String())
		}
		if got := sameAddress(c.socket, c.socket.Addr(), c.host+":"+port); got != c.same {
			t.Errorf("%s (of %s) for %s:%s: %v", c.socket.Addr(), netset.FamilyOfSocket(c.socket, c.socket.Addr()), c.host, port, got)
		}
	}
	unix := &net.UnixAddr{Net: "unix", Name: "/run/x"}
	if !sameAddress(nil, unix, "unix:/run/x") || sameAddress(nil, unix, "/run/x") {
		t.Error("UNIX sockets are told apart by their paths")
	}
}

// TestInheritedFamilies: a socket is taken over for the families that the address
// names, and no others.
func TestInheritedFamilies(t *testing.T) {
	ln, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no IPv6: ", err)
	}
	_ = ln.Close()
	open := func(addr string, sockets []*os.File, successor bool) (*Server, error) {
		s, err := New(Setup{Listen: []string{addr}, Inherited: sockets, Successor: successor, Plain: site.NewTable(), Secure: site.NewTable()},
			lane.Options{}, meter.New(), slog.New(slog.DiscardHandler))
		if err == nil {
			t.Cleanup(func() { s.Close(); s.lane.Close() })
		}
		return s, err
	}
	// A socket unit with ListenStream=PORT has one for both.
	unit, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer unit.Close()
	file, err := unit.(*net.TCPListener).File()
	if err != nil {
		t.Skip(err)
	}
	defer file.Close()
	_, port, _ := net.SplitHostPort(unit.Addr().String())
	s, err := open(":"+port, []*os.File{file}, false)
	if err != nil || len(s.reload.listeners) != 1 || s.Addrs()[0] != "http://localhost:"+port {
		t.Fatalf("with the socket of a unit: %v", err)
	}
	for _, host := range []string{"0.0.0.0", "[::]"} {
		if _, err := open(host+":"+port, []*os.File{file}, false); err == nil || !strings.Contains(err.Error(), "has opened port "+port+" for IPv4 and IPv6") {
			t.Errorf("%s:%s with a unit's socket for both families: %v", host, port, err)
		}
	}
	// A predecessor has one for each.
	free, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ = net.SplitHostPort(free.Addr().String())
	_ = free.Close()
	old, err := open(":"+port, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	files, err := old.Files()
	if err != nil || len(files) != 2 {
		t.Fatalf("%d sockets of :%s are passed on: %v", len(files), port, err)
	}
	for addr, n := range map[string]int{":" + port: 2, "0.0.0.0:" + port: 1, "[::]:" + port: 1} {
		next, err := open(addr, files, true)
		if err != nil || len(next.reload.listeners) != n {
			t.Errorf("a successor at %s: %v", addr, err)
		}
	}
}

// TestMissingFamily: what a machine does not have is not missed.
func TestMissingFamily(t *testing.T) {
	for err, missing := range map[error]bool{
		fmt.Errorf("listen: %w", syscall.EAFNOSUPPORT): true, fmt.Errorf("listen: %w", syscall.EADDRINUSE): false, nil: false,
	} {
		if noFamily(err) != missing {
			t.Errorf("%v: a missing family: %v", err, !missing)
		}
	}
}
