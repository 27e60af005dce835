package auth

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/internal/access/token"
)

func TestURLIsAsked(t *testing.T) {
	var seen *http.Request
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r
		w.Write([]byte(`{"user":"7","subscribe":["a","b:*"],"publish":["a"],"presence":["a"],"info":{"x":1},"expires":4000000000}`))
	}))
	defer s.Close()
	c := newChecker(t, Options{URL: s.URL + "/who", Publish: []string{"user:{sub}:*"}})
	r := request("/live/ws?a=1&token=T", "Cookie", "session=S", "Authorization", "Bearer T", "Origin", "https://app.example",
		"X-Forwarded-For", "6.6.6.6", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Key", "k", "Content-Length", "0")
	r.RemoteAddr = "192.0.2.7:1234"
	g, err := c.Connect(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a": "spw", "b:1": "s", "user:7:x": "p", "c": ""}
	if diff := cmp.Diff(want, may(g, "a", "b:1", "user:7:x", "c")); diff != "" {
		t.Error(diff)
	}
	if g.User != "7" || string(g.Info) != `{"x":1}` || !g.Expires.Equal(time.Unix(4000000000, 0)) {
		t.Errorf("%+v", g)
	}
	if seen.Method != "GET" || seen.URL.String() != "/who?a=1&token=T" {
		t.Errorf("asked %s %s", seen.Method, seen.URL)
	}
	header := http.Header{
		"Cookie": {"session=S"}, "Authorization": {"Bearer T"}, "Origin": {"https://app.example"}, "Accept": {"application/json"},
		"User-Agent": {"millrace"}, "X-Original-Uri": {"/live/ws?a=1&token=T"}, "X-Forwarded-For": {"192.0.2.7"},
	}
	if diff := cmp.Diff(header, seen.Header); diff != "" {
		t.Error(diff)
	}
}

// TestURLWithAQuery is one that says something itself, which no client may
// say again.
func TestURLWithAQuery(t *testing.T) {
	var seen string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.URL.RawQuery
		w.Write([]byte(`{}`))
	}))
	defer s.Close()
	c := newChecker(t, Options{URL: s.URL + "/?site=1"})
	r := request("/ws?site=2")
	r.RemoteAddr = "@" // a UNIX socket
	if _, err := c.Connect(t.Context(), r); err != nil || seen != "site=1" {
		t.Errorf("%q, %v", seen, err)
	}
}

func TestURLAnswers(t *testing.T) {
	var answer http.HandlerFunc
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r) }))
	defer s.Close()
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			w.Write([]byte(`{"subscribe":["*"]}`))
		}
	}
	body := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(text)) }
	}
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		want   error
	}{
		{"an empty grant", body(`{}`), nil},
		{"no end", body(`{"expires":null}`), nil},
		{"401", status(401), token.ErrUnauthorized},
		{"403", status(403), ErrForbidden},
		{"over", body(`{"user":"7","expires":1000}`), token.ErrUnauthorized},
		{"201", status(201), token.ErrUnavailable},
		{"204", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, token.ErrUnavailable},
		{"404", status(404), token.ErrUnavailable},
		{"500", status(500), token.ErrUnavailable},
		{"a page", body(`<html>`), token.ErrUnavailable},
		{"null", body(`null`), token.ErrUnavailable},
		{"a list", body(`[]`), token.ErrUnavailable},
		{"empty", body(``), token.ErrUnavailable},
		{"wrong", body(`{"subscribe":"*"}`), token.ErrUnavailable},
		{"milliseconds", body(`{"expires":1e13}`), token.ErrUnavailable},
		{"long", body(string(bytes.Repeat([]byte(" "), maxAnswer)) + `{}`), token.ErrUnavailable},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/elsewhere" {
				t.Error("the redirect was followed")
			}
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, token.ErrUnavailable},
		{"broken off", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, token.ErrUnavailable},
	} {
		answer = tt.answer
		c := newChecker(t, Options{URL: s.URL})
		g, err := c.Connect(t.Context(), request("/ws?token=SECRET"))
		if !errors.Is(err, tt.want) || (err == nil) != (g != nil) {
			t.Errorf("%s: %v, %v", tt.name, g, err)
		}
		if errors.Is(err, ErrForbidden) != errors.Is(tt.want, ErrForbidden) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err != nil && strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: a client's token is in the message: %v", tt.name, err)
		}
	}
}

func TestURLIsDown(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	addr := s.URL
	s.Close()
	c := newChecker(t, Options{URL: addr})
	if _, err := c.Connect(t.Context(), request("/ws?token=SECRET")); !errors.Is(err, token.ErrUnavailable) || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("got %v", err)
	}
}

func TestURLTimeout(t *testing.T) {
	block := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(200)
		w.(http.Flusher).Flush() // the timeout is for the body too
		<-block
	}))
	defer s.Close()
	defer close(block)
	c := newChecker(t, Options{URL: s.URL, Timeout: 50 * time.Millisecond})
	if _, err := c.Connect(t.Context(), request("/ws")); !errors.Is(err, token.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

func TestURLManyAtOnce(t *testing.T) {
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Write([]byte(`{"user":"` + r.Header.Get("Authorization") + `","subscribe":["` + r.Header.Get("Authorization") + `"]}`))
	}))
	defer s.Close()
	c := newChecker(t, Options{URL: s.URL, Subscribe: []string{"user:{sub}"}})
	const clients = 200
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			name := strings.Repeat("x", i+1)
			g, err := c.Connect(t.Context(), request("/ws", "Authorization", name))
			if err != nil {
				t.Error(err)
				return
			}
			if g.User != name || !g.MaySubscribe(name) || !g.MaySubscribe("user:"+name) || g.MaySubscribe(name+"x") {
				t.Errorf("%d got what is another's: %+v", i, g)
			}
		})
	}
	all.Wait()
	if asked.Load() != clients {
		t.Errorf("asked %d times", asked.Load())
	}
}
