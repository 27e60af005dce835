package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// patient is a handler that waits until its client has gone, or for a word.
type patient struct {
	begun, ended chan string
	word         chan struct{}
}

func newPatient() *patient {
	return &patient{make(chan string, 100), make(chan string, 100), make(chan struct{})}
}

func (w *patient) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Has("read") {
		_, _ = io.Copy(io.Discard, r.Body)
	}
	w.begun <- r.URL.Path
	select {
	case <-r.Context().Done():
		w.ended <- "gone"
	case <-w.word:
		put(rw, "answered")
		w.ended <- "told"
	}
}

func (w *patient) next(t *testing.T, of chan string) string {
	t.Helper()
	select {
	case s := <-of:
		return s
	case <-time.After(patience):
		t.Fatal("nothing comes from the handler")
		return ""
	}
}

// TestGoneClient: who goes away ends the context of his request, on every road
// and wherever the connection is at home.
func TestGoneClient(t *testing.T) {
	h := newPatient()
	mux := http.NewServeMux()
	mux.Handle("/", newPages())
	mux.Handle("/wait", h)
	r := start(t, plan{handler: mux})
	big := strings.Repeat("b", 100_000)
	overAll(t, func(t *testing.T, transport string) {
		for name, stream := range map[string]string{
			"at once":              request("GET", "/wait"),
			"after others":         request("GET", "/slow") + request("GET", "/hot") + request("GET", "/wait"),
			"with a body":          post("/wait?read", "body"),
			"with a large body":    post("/wait?read", big),
			"after a large body":   post("/unread", big) + request("GET", "/wait"),
			"for net/http, behind": request("GET", "/slow") + request("GET", "/wait", "X: \xff"),
		} {
			c := r.dial(t, transport)
			c.write(stream)
			h.next(t, h.begun)
			c.leave()
			if got := h.next(t, h.ended); got != "gone" {
				t.Errorf("%s: the handler was %s", name, got)
			}
		}
	})
}

// TestNextWhileAnswered: what comes while a handler runs waits for its turn, and
// its sender is not taken for gone.
func TestNextWhileAnswered(t *testing.T) {
	h := newPatient()
	mux := http.NewServeMux()
	mux.Handle("/", newPages())
	mux.Handle("/wait", h)
	r := start(t, plan{handler: mux})
	overAll(t, func(t *testing.T, transport string) {
		c := r.dial(t, transport)
		c.get("/hot")
		c.write(request("GET", "/wait"))
		h.next(t, h.begun)
		for range 3 { // each of them is an event for the loop
			c.write(request("GET", "/hot"))
			time.Sleep(5 * time.Millisecond)
		}
		select {
		case s := <-h.ended:
			t.Fatalf("the handler was %s", s)
		case h.word <- struct{}{}:
		}
		h.next(t, h.ended)
		want := []string{"answered", smallBody, smallBody, smallBody}
		for i, w := range want {
			if _, got := c.answer("GET"); got != w {
				t.Errorf("answer %d is %q, want %q", i, got, w)
			}
		}
		for i := range 3 { // and on
			c.get("/hot")
			c.get(fmt.Sprint("/slow?", i))
		}
	})
}

// TestCutWhileAnswered: a connection that is cut, because the server ends, ends
// the context of its request.
func TestCutWhileAnswered(t *testing.T) {
	for _, transport := range transports {
		h := newPatient()
		r := start(t, plan{handler: h})
		c := r.dial(t, transport)
		c.write(request("GET", "/wait"))
		h.next(t, h.begun)
		r.srv.Close()
		if got := h.next(t, h.ended); got != "gone" {
			t.Errorf("%s: the handler was %s", transport, got)
		}
	}
}

// TestSlowReaderKeepsItsRoad: an answer that a client takes slowly takes its
// connection from the loop, and what follows is answered as before.
func TestSlowReaderKeepsItsRoad(t *testing.T) {
	big := strings.Repeat("0123456789", 1<<19) // more than any socket holds
	mux := http.NewServeMux()
	mux.Handle("/", newPages())
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { put(w, big) })
	mux.HandleFunc("/large2", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(big)))
		_, _ = w.Write([]byte(big))
	})
	r := start(t, plan{handler: mux})
	overAll(t, func(t *testing.T, transport string) {
		c := r.dial(t, transport)
		for range 3 {
			for _, path := range []string{"/large", "/slow", "/large2", "/hot"} {
				c.write(request("GET", path))
				time.Sleep(5 * time.Millisecond) // the server waits, mostly
				if resp, body := c.answer("GET"); resp.StatusCode != 200 || strings.HasPrefix(path, "/large") && body != big {
					t.Fatalf("%s: %s, %d bytes", path, resp.Status, len(body))
				}
			}
		}
	})
}
