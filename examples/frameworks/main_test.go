package main

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"millrace"
)

// TestFrameworks: each framework answers as it does alone, the API every time,
// the files from the fast lane after the first request.
func TestFrameworks(t *testing.T) {
	for name, router := range frameworks {
		t.Run(name, func(t *testing.T) {
			files, err := siteFiles()
			if err != nil {
				t.Fatal(err)
			}
			defer files.Close()
			var asked atomic.Int32
			inner := router(millrace.Public(http.StripPrefix("/files", files)))
			ln, err := millrace.Listen("127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				done <- millrace.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					asked.Add(1)
					inner.ServeHTTP(w, r)
				}))
			}()
			defer func() {
				_ = ln.Close()
				http.DefaultClient.CloseIdleConnections()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}()
			url := "http://" + ln.Addr().String()
			for i := range 5 {
				if status, body := get(t, url+"/api/hello/Ada"); status != 200 || strings.TrimSpace(body) != `{"hello":"Ada"}` {
					t.Fatalf("API: %d %q", status, body)
				}
				if status, body := get(t, url+"/files/"); status != 200 || !strings.Contains(body, "within another program") {
					t.Fatalf("file, request %d: %d %q", i+1, status, body)
				}
			}
			if n := asked.Load(); n < 5 || n > 8 {
				t.Errorf("the router was asked %d times: 5 for the API, and 1 or 2 for the file, were expected", n)
			}
			if status, _ := get(t, url+"/none"); status != 404 {
				t.Errorf("what is not there: %d", status)
			}
		})
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
