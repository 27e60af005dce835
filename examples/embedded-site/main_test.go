package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestSite asks for everything that the site has, twice: the second time what can
// be hot is.
func TestSite(t *testing.T) {
	when := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	srv, err := newServer("127.0.0.1:0", func() time.Time { return when })
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	defer func() {
		http.DefaultClient.CloseIdleConnections()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	for range 2 {
		for path, want := range map[string]string{
			"/": "within the executable", "/docs/": "A folder of its own", "/assets/site.css": "font:", "/assets/mark.svg": "<svg",
			"/git-hash": "unknown", "/none": "not in the program",
		} {
			status, body := get(t, srv.Addrs()[0]+path)
			if wantStatus := map[bool]int{true: 404, false: 200}[path == "/none"]; status != wantStatus || !strings.Contains(body, want) {
				t.Errorf("%s: %d %q", path, status, body)
			}
		}
		_, body := get(t, srv.Addrs()[0]+"/api/time")
		var answer struct{ Time time.Time }
		if err := json.Unmarshal([]byte(body), &answer); err != nil || !answer.Time.Equal(when) {
			t.Errorf("the time is %q, %v", body, err)
		}
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}
