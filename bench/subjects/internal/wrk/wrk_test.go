package wrk

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

const screen = `Running 3s test @ http://127.0.0.1:1/
  2 threads and 50 connections
Requests/sec:  55555.55
@bench {"requests":166666,"bytes":1234567,"duration_us":3000100,"connect":1,"read":2,"write":3,"timeout":4,"status":5,"p50_us":700,"p99_us":2100,"max_us":9000}
`

func TestParse(t *testing.T) {
	got, err := Parse(screen)
	if err != nil {
		t.Fatal(err)
	}
	want := Result{
		Requests: 166666, Bytes: 1234567, Duration: 3000100 * time.Microsecond,
		Failures: Failures{1, 2, 3, 4, 5},
		P50:      700 * time.Microsecond, P99: 2100 * time.Microsecond, Max: 9 * time.Millisecond,
	}
	if got != want {
		t.Errorf("Parse = %+v, want %+v", got, want)
	}
	if got.Sum() != 15 {
		t.Errorf("%d failures, want 15", got.Sum())
	}
	if rate := got.Rate(); rate < 55553 || rate > 55554 {
		t.Errorf("Rate = %f", rate)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, output := range []string{
		"", "Requests/sec: 7\n", "@bench\n", "@bench {\n", "@bench {}\n",
		`@bench {"requests":-1,"duration_us":5}`, `@bench {"requests":1,"duration_us":0}`,
	} {
		if got, err := Parse(output); err == nil {
			t.Errorf("Parse(%q) = %+v, want an error", output, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(screen)
	f.Add("@bench {}")
	f.Fuzz(func(t *testing.T, output string) {
		if r, err := Parse(output); err == nil && r.Duration <= 0 {
			t.Errorf("Parse(%q) let a duration of %v through", output, r.Duration)
		}
	})
}

func TestArgs(t *testing.T) {
	got := Job{Script: "s.lua", Requests: "r.txt", URL: "http://h/", Connections: 50, Duration: 3 * time.Second}.Args()
	want := []string{"-t2", "-c50", "-d3s", "--timeout", "10s", "-s", "s.lua", "http://h/", "--", "r.txt"}
	if !slices.Equal(got, want) {
		t.Errorf("Args = %q, want %q", got, want)
	}
}

func TestVersion(t *testing.T) {
	if got := version("wrk 4.1.0 [epoll] Copyright (C) 2012 W\nUsage: …\n"); got != "wrk 4.1.0 [epoll]" {
		t.Errorf("version = %q", got)
	}
}

// TestScript runs the real wrk with the real script for a second: all requests
// are sent, and a failure is counted.
func TestScript(t *testing.T) {
	if _, err := exec.LookPath("wrk"); err != nil {
		t.Skip("wrk is missing; it is in Debian's package wrk")
	}
	var mu sync.Mutex
	seen := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen[r.URL.Path+" "+r.Header.Get("X-Mark")]++
		mu.Unlock()
		if r.URL.Path == "/bad" {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	requests := filepath.Join(t.TempDir(), "requests")
	text := "GET /a HTTP/1.1\r\nHost: h\r\nX-Mark: 1\r\n\r\n" + "GET /bad HTTP/1.1\r\nHost: h\r\nX-Mark: 2\r\n\r\n"
	if err := os.WriteFile(requests, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	job := Job{Script: "../../../wrk/requests.lua", Requests: requests, URL: server.URL, Connections: 2, Duration: time.Second}
	r, err := Run(context.Background(), job)
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(seen) != 2 || seen["/a 1"] == 0 || seen["/bad 2"] == 0 {
		t.Errorf("the server saw %v", seen)
	}
	if r.Requests == 0 || r.Status == 0 || r.Status >= r.Requests || r.Failures.Sum() != r.Status {
		t.Errorf("the summary is %+v", r)
	}
}
