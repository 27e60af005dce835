package subject

import (
	"errors"
	"net"
	"testing"
)

// TestFreePort: the port is not one of those that connections get, which a load
// would take away before the server has started.
func TestFreePort(t *testing.T) {
	t.Parallel()
	end := firstEphemeral()
	seen := map[int]bool{}
	for range 20 {
		port, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		seen[port] = true
		if end-firstPort >= fewestPorts && (port < firstPort || port >= end) {
			t.Errorf("port %d: connections get those from %d on", port, end)
		}
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err != nil {
			t.Logf("lost again: %v", err) // to another test
			continue
		}
		l.Close()
	}
	if len(seen) < 10 {
		t.Errorf("20 ports, of which only %d differ", len(seen))
	}
}

func TestAddressTaken(t *testing.T) {
	t.Parallel()
	_, err := net.Listen("tcp", "nowhere.invalid:x")
	for text, want := range map[string]bool{
		"starting python: it ended (exit status 1); it printed:\nOSError: [Errno 98] Address already in use": true,
		"starting nginx: somebody listens at 127.0.0.1:1 already":                                            true,
		"no such file": false,
		err.Error():    false,
	} {
		if got := AddressTaken(errors.New(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	if AddressTaken(nil) {
		t.Error("no error at all")
	}
}
