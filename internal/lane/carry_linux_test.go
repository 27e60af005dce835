package lane

import (
	"errors"
	"io"
	"net"
	"net/http"
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

func (w *patientPassage) Forward(*ForwardRequest) (RoundTrip, bool) { close(w.taken); return w, true }
func (w *patientPassage) Waits() bool                               { return true }
func (w *patientPassage) Discard()                                  { close(w.discarded) }

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

// wrapped is a round trip with another one inside.
type wrapped struct {
	patientPassage
	owner string
	inner RoundTrip
}

func (w *wrapped) Owner() string    { return w.owner }
func (w *wrapped) Inner() RoundTrip { return w.inner }

// Each handler takes its own part of what a loop has begun, the outer one first, and
// nobody takes another's.
func TestTake(t *testing.T) {
	inner := &wrapped{owner: "proxy", patientPassage: patientPassage{discarded: make(chan struct{})}}
	c := &Conn{connForward: connForward{started: &wrapped{owner: "cache", inner: inner}}}
	r := new(http.Request).WithContext(WithConn(t.Context(), c))
	if _, ok := Take[*wrapped](r, "cache"); ok {
		t.Error("it is taken before Begin")
	}
	Begin(r)
	if c.startedOnLoop() {
		t.Error("the next request has it, too")
	}
	if _, ok := Take[*wrapped](r, "proxy"); ok {
		t.Error("the inner part is taken first")
	}
	if _, ok := Take[*patientOwned](r, "cache"); ok {
		t.Error("it is taken as another type")
	}
	if x, ok := Take[*wrapped](r, "cache"); !ok || x.inner != RoundTrip(inner) {
		t.Error("the outer part is not taken")
	}
	DiscardStarted(r)
	select {
	case <-inner.discarded:
	default:
		t.Error("the inner part, which nobody took, keeps its place")
	}
	if _, ok := Take[*wrapped](r, "proxy"); ok {
		t.Error("what was discarded is taken")
	}
}

// patientOwned is another type of the same owner.
type patientOwned struct{ wrapped }
