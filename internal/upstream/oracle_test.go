package upstream

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"millrace/internal/upstream/faulty"
)

// FuzzHostile plays the same bytes to the pool and to net/http's Transport, as
// the answer to a first request on a connection that then goes on in good
// order. The pool makes of them what the Transport does, or an error; and
// nobody but the first gets any of them.
func FuzzHostile(f *testing.F) {
	for _, s := range faulty.Scenarios() {
		f.Add(s.Method == http.MethodHead, s.Output())
	}
	f.Add(false, okAnswer+okAnswer)
	f.Add(false, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"+okAnswer)
	f.Add(true, "HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\nok")
	f.Fuzz(func(t *testing.T, head bool, wire string) {
		method := http.MethodGet
		if head {
			method = http.MethodHead
		}
		var ours, theirs, next heard
		bubble(t, func(t *testing.T, w *wires) {
			script := faulty.Script{faulty.Request(), faulty.Send(wire), faulty.Loop(faulty.Request(), faulty.OK("hello"))}
			w.set("a:80", script)
			p := newPool(t, Options{To: []string{"http://a"}, Retries: Retries{Attempts: 1}, Breaker: Breaker{Off: true}}, w)
			ours = hear(t, p, method)
			if w.dials("a:80") == 1 {
				w.set("a:80", faulty.Good("hello")) // for new connections
			}
			next = hear(t, p, http.MethodGet)
			w.set("client.example:80", script)
			bare := &http.Transport{DialContext: w.dial, DisableCompression: true}
			defer bare.CloseIdleConnections()
			theirs = hear(t, bare, method)
		})
		if !ours.failed && ours != theirs {
			t.Errorf("of %q we make %+v, net/http %+v", wire, ours, theirs)
		}
		if !next.failed && (next.status != http.StatusOK || next.body != "hello") {
			t.Errorf("the request after %q got %+v", wire, next)
		}
	})
}

// heard is an answer as far as it can be compared.
type heard struct {
	status int
	length int64
	body   string
	failed bool
}

// hear asks and reads the answer, for a minute at most.
func hear(t *testing.T, from http.RoundTripper, method string) heard {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	resp, err := from.RoundTrip(newRequest(t, method, "/", nil).WithContext(ctx))
	if err != nil {
		return heard{failed: true}
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return heard{failed: true}
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return heard{failed: true}
	}
	return heard{status: resp.StatusCode, length: resp.ContentLength, body: string(b)}
}
