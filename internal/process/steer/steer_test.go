package steer

import (
	"bytes"
	"errors"
	"net"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/bpf"

	"millrace/internal/wire/netset"
)

// packets are what may come, and whether it is for the process of generation 1,
// whose predecessor is of generation 0.
func packets() map[string]struct {
	packet []byte
	ours   bool
} {
	long := func(first byte, id []byte) []byte {
		return append(append([]byte{first, 0, 0, 0, 1, byte(len(id))}, id...), make([]byte, 20)...)
	}
	short := func(id []byte) []byte { return append(append([]byte{0x40}, id...), make([]byte, 20)...) }
	chosen := make([]byte, 8) // by a client
	type want = struct {
		packet []byte
		ours   bool
	}
	return map[string]want{
		"a new client":               {long(0xc0, chosen), true},
		"a new client, a longer id":  {long(0xc0, make([]byte, 20)), true},
		"a handshake of ours":        {long(0xe0, Of(1).ID()), true},
		"a handshake of theirs":      {long(0xe0, Of(0).ID()), false},
		"after the handshake, ours":  {short(Of(1).ID()), true},
		"after the handshake, other": {short(Of(0).ID()), false},
		"noise":                      {[]byte{0x40}, false},
		"noise, long":                {[]byte{0x80, 0, 0}, false},
	}
}

func TestProgram(t *testing.T) {
	vm, err := bpf.NewVM(program(Of(1)))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range packets() {
		got, err := vm.Run(c.packet)
		if want := map[bool]int{true: ours, false: predecessors}[c.ours]; err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", name, got, err, want)
		}
	}
}

func TestID(t *testing.T) {
	a, b := Of(7).ID(), Of(8).ID()
	if len(a) != IDBytes || len(b) != IDBytes || a[0]&1 != 1 || b[0]&1 != 0 || bytes.Equal(a[1:], b[1:]) {
		t.Errorf("%x %x", a, b)
	}
}

// TestSockets: what comes to one port goes to the process that it is for, as long
// as there is one, and to the one that is left from then on.
func TestSockets(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the kernel chooses between sockets on Linux only")
	}
	old, err := Listen(netset.Both, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	failed, err := Beside(old)
	if err != nil {
		t.Fatal(err)
	}
	client, err := net.DialUDP("udp", nil, old.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	all := packets()
	comes := func(name, what string, to *net.UDPConn) {
		t.Helper()
		if _, err := client.Write(all[name].packet); err != nil {
			t.Fatal(err)
		}
		_ = to.SetReadDeadline(time.Now().Add(10 * time.Second))
		got := make([]byte, 100)
		n, err := to.Read(got)
		if err != nil || !slices.Equal(got[:n], all[name].packet) {
			t.Errorf("%s, %s: %x, %v", what, name, got[:n], err)
		}
	}
	for name := range all {
		comes(name, "until it begins", old)
	}
	_ = failed.Close()
	for name := range all {
		comes(name, "after one that has failed", old)
	}
	next, err := Beside(old)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if err := Begin(next, Of(1)); err != nil {
		t.Fatal(err)
	}
	for name, c := range all {
		comes(name, "both", map[bool]*net.UDPConn{true: next, false: old}[c.ours])
	}
	_ = old.Close()
	for name := range all {
		comes(name, "one is left", next)
	}
	if err := Begin(old, Of(0)); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}
