package load

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestBody: each request carries all of the body, small and far larger than what
// a socket takes at once.
func TestBody(t *testing.T) {
	for _, size := range []int{0, 1 << 10, 4 << 20} {
		text := strings.Repeat("x", size)
		body := []byte(text)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got, err := io.ReadAll(r.Body)
			if err != nil || r.Method != http.MethodPost || !bytes.Equal(got, body) || r.ContentLength != int64(size) {
				t.Errorf("%s with %d bytes of %d, %v", r.Method, len(got), size, err)
			}
		}))
		got, err := Run(t.Context(), Config{URL: s.URL, Request: Step{Body: &text}, Connections: 2, Requests: 20, Duration: time.Minute})
		if err != nil || got.Requests != 20 || got.Errors.Sum() > 0 {
			t.Errorf("%d bytes: %+v, %v", size, got.Errors, err)
		}
		s.Close()
	}
}

// TestUnique: no URL is asked for twice, also by loops and loads of their own.
func TestUnique(t *testing.T) {
	var mu sync.Mutex // guards seen
	seen := map[string]bool{}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if seen[r.RequestURI] || len(r.FormValue("n")) < 16 || r.URL.Path == "/b" && r.FormValue("c") != "d" {
			t.Errorf("%s", r.RequestURI)
		}
		seen[r.RequestURI] = true
	}))
	defer s.Close()
	for range 2 {
		cfg := Config{URL: s.URL, Paths: []string{"/a", "/b?c=d"}, Unique: true, Connections: 4, Threads: 2, Requests: 100, Duration: time.Minute}
		if got, err := Run(t.Context(), cfg); err != nil || got.Requests != 100 {
			t.Errorf("%+v, %v", got, err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(seen) < 200 {
		t.Errorf("%d URLs", len(seen))
	}
}
