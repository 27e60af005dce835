package lane

import (
	"testing"

	"golang.org/x/sys/unix"

	"millrace/internal/wire/epoll"
)

// TestLines: a loop knows of each idle connection to an upstream whether something has come
// on it, or its end, before it handles the other events of that poll.
func TestLines(t *testing.T) {
	const generation = 7
	tests := []struct {
		name    string
		waits   bool // a call does
		does    func(t *testing.T, server int)
		ask     uint32
		stirred bool
		left    bool // the event is still to be handled
	}{
		{"nothing", false, func(*testing.T, int) {}, generation, false, false},
		{"bytes on an idle one", false, write, generation, true, false},
		{"the end of an idle one", false, shut, generation, true, false},
		{"bytes on one that had its descriptor before", false, write, generation + 1, false, false},
		{"an answer", true, write, generation, false, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p, err := epoll.NewPoller()
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(ends[0])
			defer unix.Close(ends[1])
			l := &lines{poller: p}
			if err := p.Add(ends[0], epoll.In|epoll.PeerShut|epoll.Edge, lineKey(ends[0]), generation); err != nil {
				t.Fatal(err)
			}
			f := new(call)
			if test.waits {
				l.await(ends[0], f)
			}
			test.does(t, ends[1])
			events := make([]epoll.Event, 4)
			events = events[:p.Poll(events)]
			l.noteIdle(events)
			if got := len(events) > 0 && events[0].Events != 0; got != test.left {
				t.Errorf("the event is left: %v", got)
			}
			if got := l.Stirred(ends[0], test.ask); got != test.stirred {
				t.Errorf("stirred: %v", got)
			}
			if l.Stirred(ends[0], generation) {
				t.Error("it is said twice")
			}
			l.forget(f)
			if l.call(ends[0]) != nil || f.line != 0 {
				t.Error("the call still waits")
			}
		})
	}
}

func write(t *testing.T, fd int) {
	t.Helper()
	if _, err := unix.Write(fd, []byte("HTTP/1.1 200 OK\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
}

func shut(t *testing.T, fd int) {
	t.Helper()
	if err := unix.Shutdown(fd, unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
}
