package lane

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"millrace/internal/meter"
)

// A request that waited for a moment, and is then none for the loop after all, may have
// been told that it is ready. Its flight must not be that of another request when the
// loop comes upon it.
func TestToldFlightIsNotUsedAgain(t *testing.T) {
	k := &carrying{wake: func() {}}
	f := k.take()
	f.Ready()
	k.drop(f)
	if next := k.take(); next == f {
		t.Error("a flight that start will come upon is given to another request")
	}
	other := k.take()
	k.drop(other)
	if next := k.take(); next != other {
		t.Error("a flight that nobody knows of is not used again")
	}
}

// A connection that has left its loop and got no other descriptor is an error for
// whoever uses it, and nothing worse.
func TestLostConnection(t *testing.T) {
	l := (*link)(&Conn{lane: &Lane{meters: new(meter.Meters)}, fd: noFD, direct: &direct{}})
	for name, use := range map[string]func() error{
		"send":           func() error { return l.Send([]byte("HTTP/1.1 200 OK\r\n\r\n"), nil) },
		"read":           func() error { _, err := (*Conn)(l).readBody(make([]byte, 1)); return err },
		"hijack":         func() error { _, err := l.Hijack(); return err },
		"read deadline":  func() error { return l.SetReadDeadline(time.Time{}) },
		"write deadline": func() error { return l.SetWriteDeadline(time.Time{}) },
		"copy":           func() error { _, err := l.ReadFrom(io.LimitReader(nil, 0)); return err },
	} {
		if err := use(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
