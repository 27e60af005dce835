package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func get(h http.Handler, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w
}

func TestProxy(t *testing.T) {
	asked := 0
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.URL.Query().Get("url") == "/bad" {
			w.WriteHeader(500)
		}
		w.Write([]byte("answer for " + r.URL.Query().Get("url")))
	}))
	p := newProxy(config{Stacosys: upstream.URL, CorsOrigin: "https://example.org"}, time.Hour)
	for range 2 {
		w := get(p, "/comments/count?url=/a%26b")
		if w.Code != 200 || w.Body.String() != "answer for /a&b" || w.Header().Get("Access-Control-Allow-Origin") != "https://example.org" {
			t.Errorf("%d %s %v", w.Code, w.Body, w.Header())
		}
	}
	if asked != 1 {
		t.Errorf("the upstream was asked %d times, want once", asked)
	}
	// The published mistake: an error is kept, and served as 200.
	for range 2 {
		if w := get(p, "/comments/count?url=/bad"); w.Code != 200 || w.Body.String() != "answer for /bad" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	if asked != 2 {
		t.Errorf("the upstream was asked %d times, want twice", asked)
	}
	upstream.Close()
	if w := get(p, "/comments/count?url=/new"); w.Code != http.StatusBadGateway {
		t.Errorf("without upstream: %d", w.Code)
	}
}

func TestLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.json")
	for text, want := range map[string]string{
		`{"HostPort":"127.0.0.1:1","Stacosys":"http://127.0.0.1:2","CorsOrigin":"*"}`: "",
		`{"HostPort":"127.0.0.1:1"}`: "must be set",
		`{`:                          "reading",
	} {
		os.WriteFile(file, []byte(text), 0o600)
		_, err := load(file)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := load(file + "x"); err == nil {
		t.Error("no file: no error")
	}
}
