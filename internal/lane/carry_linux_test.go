package lane

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"millrace/internal/observe/meter"
	"millrace/internal/route/site"
	"millrace/internal/wire/lean"
)

// A request that waited for a moment, and is then none for the loop after all, may have
// been told that it is ready. Its call must not be that of another request when the
// loop comes upon it.
func TestToldFlightIsNotUsedAgain(t *testing.T) {
	k := &forwarding{wake: func() {}}
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
	l := (*link)(&Conn{
		connHot:    connHot{lane: &Lane{meters: new(meter.Meters)}},
		connLocked: connLocked{fd: noFD, handlerCtx: &handlerContext{}},
	})
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

// patientPassage is a request that waits for its place for ever, and the forwarder that took it.
type patientPassage struct {
	RoundTrip
	taken, discarded chan struct{}
}

func (w *patientPassage) Forward(*ForwardRequest) RoundTrip { close(w.taken); return w }
func (w *patientPassage) Waits() bool                       { return true }
func (w *patientPassage) Discard()                          { close(w.discarded) }

// A request over TLS that is handed over on a connection which is being cut has no
// handler that would go on with it, or give it up.
func TestPassageOfACutConnection(t *testing.T) {
	b := newBench(t, patient)
	sites := site.NewTable()
	sites.Add(site.New(1, []*site.Route{{Pattern: "/**", Passes: true}}), nil)
	b.scope.Sites.Store(sites)
	w := &patientPassage{taken: make(chan struct{}), discarded: make(chan struct{})}
	b.lane.ForwardWith(w)
	b.lane.Through(t.Context(), &lean.Server{})
	t.Cleanup(b.lane.Close)
	client := b.wired(t)
	if _, err := io.WriteString(client, "GET /passed HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-w.taken
	client.server.cut()
	select {
	case <-w.discarded:
	case <-time.After(20 * time.Second):
		t.Fatal("the request keeps its place")
	}
	<-client.gone
}

// A round trip that a handler is about to take is the handler's, also where its
// connection is closed meanwhile.
func TestLeftoverIsTaken(t *testing.T) {
	w := &patientPassage{discarded: make(chan struct{})}
	var l handoffs
	mark := []string{"1"}
	l.put(1, &handoff{roundTrip: w})
	if l.claim(mark) == nil {
		t.Fatal("there is no passage")
	}
	l.discardUnclaimed()
	if p := l.remove(mark); p == nil || *p != RoundTrip(w) {
		t.Error("nobody has the passage any more")
	}
	if l.remove(mark) != nil {
		t.Error("it is there once more")
	}
}
