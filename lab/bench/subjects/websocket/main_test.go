package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"millrace/lab/load/client"
)

// TestEcho has the client of the experiment ws-echo-ramp echo with each server.
func TestEcho(t *testing.T) {
	for _, library := range []string{"gws", "coder", "gorilla", "xnet"} {
		t.Run(library, func(t *testing.T) {
			h, err := handler(library, false)
			if err != nil {
				t.Fatal(err)
			}
			s := httptest.NewServer(h)
			defer s.Close()
			r, err := newRamp(rampConfig{
				Address: s.Listener.Addr().String(), Connections: 20, Sources: 2, FirstSource: 2, Busy: 5, Timeout: 10 * time.Second, Limit: time.Minute,
			})
			if err != nil {
				t.Fatal(err)
			}
			r.Open()
			r.Echo()
			if rep := r.Close(); rep.Succeeded != 20 || rep.Failed != 0 || rep.Unclean != 0 {
				t.Errorf("%+v", rep)
			}
		})
	}
}

func TestUnknownServers(t *testing.T) {
	for library, broadcast := range map[string]bool{"": false, "other": false, "xnet": true} {
		if _, err := handler(library, broadcast); err == nil {
			t.Errorf("-library %q, -broadcast=%v: no error", library, broadcast)
		}
	}
}

// TestBroadcast subscribes and publishes, and does it again when the first
// subscribers have left: each gets all that was published since it is there, in
// order.
func TestBroadcast(t *testing.T) {
	for _, library := range []string{"gws", "coder", "gorilla"} {
		t.Run(library, func(t *testing.T) {
			h, err := handler(library, true)
			if err != nil {
				t.Fatal(err)
			}
			s := httptest.NewServer(h)
			defer s.Close()
			d, err := client.New(client.Options{Protocol: "websocket", URL: "ws" + strings.TrimPrefix(s.URL, "http") + "/ws"})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				broadcast(t, s.URL+"/publish?channel=bench", d)
			}
		})
	}
}

// subscribers are how many there are at a time.
const subscribers = 20

func broadcast(t *testing.T, publish string, d client.Dialer) {
	t.Helper()
	got := make(chan string)
	for range subscribers {
		conn, err := d.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go func() { // ends with the connection's last message
			text := ""
			for !strings.HasSuffix(text, ".") {
				message, err := conn.(client.Messenger).Receive(t.Context(), nil)
				if err != nil {
					text = err.Error() + "."
				}
				text += string(message)
			}
			got <- text
		}()
	}
	// Who has connected subscribes a moment later: publish until all are there.
	text := []string{"a", "b", "c"}
	for left := subscribers; left > 0; {
		next := "."
		if len(text) > 0 {
			next, text = text[0], text[1:]
		}
		resp, err := http.Post(publish, "text/plain", strings.NewReader(next))
		if err != nil || resp.StatusCode != http.StatusNoContent {
			t.Fatalf("publishing: %v, %v", resp, err)
		}
		resp.Body.Close()
		select {
		case text := <-got:
			left--
			if !strings.HasSuffix("abc.", text) {
				t.Errorf("a subscriber got %q of abc.", text)
			}
		case <-time.After(10 * time.Millisecond): // a flood would fill the subscribers' queues
		}
	}
}
