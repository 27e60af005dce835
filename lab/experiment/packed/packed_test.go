package packed

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

func TestAwaitByte(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable) // no page yet: it asks again
			return
		}
		w.Write([]byte("a page"))
	}))
	defer server.Close()
	if err := awaitByte(t.Context(), strings.TrimPrefix(server.URL, "http://")); err != nil || asked.Load() != 2 {
		t.Errorf("%v after %d requests", err, asked.Load())
	}
}

func TestAsk(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/page" {
			w.Write([]byte(r.Header.Get("Accept-Encoding")))
		}
	}))
	defer server.Close()
	if err := ask(t.Context(), http.DefaultClient, server.URL+"/page", "br"); err != nil {
		t.Error(err)
	}
	if err := ask(t.Context(), http.DefaultClient, server.URL+"/empty", "br"); err == nil {
		t.Error("an empty answer counts as a page")
	}
}
