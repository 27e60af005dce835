package cache

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"millrace/cache/purge"
)

// TestSoftPurgeStatus: what was purged softly is stale, and Cache-Status says that,
// whatever becomes of the upstream's answer (RFC 9211, 2.2).
func TestSoftPurgeStatus(t *testing.T) {
	for _, c := range []struct{ then, want string }{
		{"max-age=600", "fwd=stale"}, {"no-store", "fwd=stale"}, {"private", "fwd=stale"},
	} {
		up := &origin{answer: func(n int, _ *http.Request) *http.Response {
			if n == 1 {
				return say(200, "first", "Cache-Control", "max-age=600")
			}
			return say(200, "next", "Cache-Control", c.then)
		}}
		h := newCache(t, Options{Preset: "rfc9111"}, up)
		ask(h, "GET", "http://a.example/")
		if err := h.Purge(t.Context(), purge.Selector{All: true}); err != nil {
			t.Fatal(err)
		}
		w := ask(h, "GET", "http://a.example/")
		if got := w.Header().Get("Cache-Status"); !strings.Contains(got, c.want) || w.Body.String() != "next" {
			t.Errorf("%s: %q, %s", c.then, w.Body, got)
		}
	}
}

// TestLongBodyAgain: a body that is longer than its Content-Length is not kept, unless it
// was the first on its connection; and each request for it gets what was announced.
func TestLongBodyAgain(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	var asks atomic.Int32
	t.Cleanup(func() { l.Close(); running.Wait() })
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				reader := bufio.NewReader(c)
				for {
					r, err := http.ReadRequest(reader)
					if err != nil {
						return
					}
					more := "and more"
					if r.URL.Path == "/well" {
						more = ""
					}
					fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 5\r\n\r\nnum%02d%s", asks.Add(1), more)
				}
			})
		}
	})
	o := Options{Preset: "rfc9111"}
	o.To = []string{"http://" + l.Addr().String()}
	h, err := New(o, Deps{ErrorLog: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	asked(t, h, "GET", "http://a.example/well")
	for i := range 5 {
		w := asked(t, h, "GET", "http://a.example/long")
		if w.Code != 200 || len(w.Body.String()) != 5 || !strings.HasPrefix(w.Body.String(), "num") {
			t.Errorf("request %d: %d %q %s", i+1, w.Code, w.Body, w.Header()["Cache-Status"])
		}
	}
}
