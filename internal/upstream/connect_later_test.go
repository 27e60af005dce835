package upstream

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// nobody is told nothing.
type nobody struct{}

func (nobody) Ready() {}

// TestConnectionsForNobody: requests of loops that are given up while a connection is
// made for them do not have more made than there are places, and the places come back.
func TestConnectionsForNobody(t *testing.T) {
	const places = 3
	var dials, most atomic.Int64
	release := make(chan struct{})
	dial := func(context.Context, string, string) (net.Conn, error) {
		now := dials.Add(1)
		defer dials.Add(-1)
		for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
		}
		<-release
		return nil, net.ErrClosed
	}
	p, err := start(Options{To: []string{"http://127.0.0.1:1"}, Concurrency: places, Queue: 2}, slog.New(slog.DiscardHandler), dial)
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 10 * places {
		x := new(Exchange)
		if !p.Begin(x, 0, new(Request), nobody{}) {
			t.Fatal("the request does not wait")
		}
		if i%2 == 0 {
			x.Discard()
		} else if a, err := p.Continue(gone, &Request{Path: "/"}, x, nil); err == nil { // by a handler whose client has gone
			a.Body.Close()
			t.Error("there is an answer")
		}
	}
	if running := p.Servers()[0].Running; running != places || p.Waiting() != 0 {
		t.Errorf("%d places are taken, and %d requests wait", running, p.Waiting())
	}
	close(release)
	for end := time.Now().Add(20 * time.Second); p.Servers()[0].Running > 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	if got, s := most.Load(), p.Servers()[0]; got > places || s.Running != 0 || s.Requests != 0 {
		t.Errorf("%d connections were made at once, %d places are still taken, %d requests counted", got, s.Running, s.Requests)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
