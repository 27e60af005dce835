package main

import (
	"net/http/httptest"
	"testing"
	"time"

	"millrace/bench/subjects/internal/wsramp"
)

// TestEcho puts the server to the experiment's own client.
func TestEcho(t *testing.T) {
	s := httptest.NewServer(handler())
	defer s.Close()
	c, err := wsramp.New(wsramp.Config{
		Address: s.Listener.Addr().String(), Connections: 20, Sources: 2, FirstSource: 2, Busy: 5, Timeout: 10 * time.Second, Limit: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Open()
	c.Echo()
	if rep := c.Close(); rep.Succeeded != 20 || rep.Failed != 0 || rep.Unclean != 0 {
		t.Fatalf("%+v", rep)
	}
}
