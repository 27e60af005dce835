// Package peertest puts a server of WebSockets to the clients that measure it.
package peertest

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"millrace/bench/subjects/internal/wsload"
	"millrace/bench/subjects/internal/wspeer"
	"millrace/bench/subjects/internal/wsramp"
)

// Echo has both clients echo: that of the experiment ws-echo-ramp, and that of
// bench/run ws.
func Echo(t *testing.T, h http.Handler) {
	t.Helper()
	s := httptest.NewServer(h)
	defer s.Close()
	ramp, err := wsramp.New(wsramp.Config{
		Address: s.Listener.Addr().String(), Connections: 20, Sources: 2, FirstSource: 2, Busy: 5, Timeout: 10 * time.Second, Limit: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	ramp.Open()
	ramp.Echo()
	if rep := ramp.Close(); rep.Succeeded != 20 || rep.Failed != 0 || rep.Unclean != 0 {
		t.Errorf("%+v", rep)
	}
	c := open(t, s, "/echo")
	for _, size := range []int{wsload.MinSize, 20, 1024} {
		got, err := c.Echo(wsload.Echo{Size: size, Duration: 20 * time.Millisecond})
		if err != nil || got.Failed != 0 || got.Messages < 20 {
			t.Errorf("%d bytes: %+v, %v", size, got, err)
		}
	}
	if state := c.Close(); state.Dropped != 0 || state.Unclean != 0 {
		t.Errorf("at the end: %+v", state)
	}
}

// Broadcast subscribes and publishes, and does it again when the first
// subscribers have left.
func Broadcast(t *testing.T, hub wspeer.Hub) {
	t.Helper()
	s := httptest.NewServer(wspeer.Route(hub))
	defer s.Close()
	for range 2 {
		c := open(t, s, "/ws")
		got, err := c.Broadcast(wsload.Broadcast{URL: s.URL + "/publish?channel=bench", Every: 2 * time.Millisecond, Count: 30, Size: 100})
		if err != nil || got.Published != 30 || got.Delivered != 30*20 || got.Lost+got.Doubled != 0 {
			t.Errorf("%+v, %v", got, err)
		}
		if state := c.Close(); state.Dropped != 0 || state.Unclean != 0 {
			t.Errorf("at the end: %+v", state)
		}
	}
}

func open(t *testing.T, s *httptest.Server, path string) *wsload.Client {
	t.Helper()
	c, err := wsload.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Free(); err != nil {
			t.Error(err)
		}
	})
	state, err := c.Open(wsload.Open{
		Address: s.Listener.Addr().String(), Path: path, Connections: 20, FirstSource: 2, Sources: 2, Busy: 5, Limit: time.Minute,
	})
	if err != nil || state.Open != 20 {
		t.Fatalf("%+v, %v", state, err)
	}
	return c
}
