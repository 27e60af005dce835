package load

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs a handler until the test ends.
func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s.URL
}

// consistent checks what must hold for every result.
func consistent(t *testing.T, r *Result) {
	t.Helper()
	var sum uint64
	for _, n := range r.Status {
		sum += n
	}
	if sum != r.Requests {
		t.Errorf("%d requests, and %d by status", r.Requests, sum)
	}
	if n := r.Latency.Count() + r.Errors.Unexpected; n < r.Requests || r.Service.Count() != r.Latency.Count() {
		t.Errorf("%d requests; %d latencies, %d service times and %d not expected", r.Requests, r.Latency.Count(), r.Service.Count(), r.Errors.Unexpected)
	}
	// Little's law, exactly, but for what a histogram cannot tell apart.
	inside, law := r.InFlight*float64(r.Took), float64(r.Service.sum)+float64(r.Rest)
	if math.Abs(inside-law) > 1e-3*inside+float64(r.Requests)*100 {
		t.Errorf("%.0f ns in flight, and %.0f by the answers' clocks (%v of them the rest)", inside, law, r.Rest)
	}
	var ticked uint64
	for _, tick := range r.Ticks {
		ticked += tick.Requests
	}
	if ticked != r.Requests {
		t.Errorf("%d requests, and %d in ticks", r.Requests, ticked)
	}
	if (r.Errors.Sum() > 0) != (r.Errors.First != "") {
		t.Errorf("%d errors, the first of which is %q", r.Errors.Sum(), r.Errors.First)
	}
}

// exactly runs a load that must answer so many requests without an error.
func exactly(t *testing.T, c Config) *Result {
	t.Helper()
	c.Duration = 30 * time.Second // far more than it takes
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	consistent(t, r)
	if r.Requests != c.Requests || r.Errors.Sum() != 0 {
		t.Fatalf("%d of %d requests, errors %+v", r.Requests, c.Requests, r.Errors)
	}
	return r
}

func TestRunClosedLoop(t *testing.T) {
	var asked atomic.Int64
	bodies := map[string]string{"/": "hello", "/big": strings.Repeat("0123456789", 200_000), "/none": ""}
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("X-Test") != "yes" || r.Host != "example.org" {
			t.Errorf("asked with %v for %s", r.Header, r.Host)
		}
		fmt.Fprint(w, bodies[r.URL.Path])
	})
	for _, threads := range []int{1, 2} {
		asked.Store(0)
		var windows []bool
		r := exactly(t, Config{
			URL: url, Paths: []string{"/", "/big", "/none"}, Connections: 5, Threads: threads, Requests: 301,
			Header: http.Header{"X-Test": {"yes"}, "Host": {"example.org"}},
			Window: func(open bool) { windows = append(windows, open) },
		})
		if got := asked.Load(); got != 301 {
			t.Errorf("the server was asked %d times", got)
		}
		if r.Status[200] != 301 || r.Path == "" || r.Protocol != HTTP1 || r.Connect.Count() != 5 || r.Unanswered != 0 {
			t.Errorf("result: %v %s %s, %d connections, %d unanswered", r.Status, r.Path, r.Protocol, r.Connect.Count(), r.Unanswered)
		}
		if len(windows) != 2 || !windows[0] || windows[1] {
			t.Errorf("the window was called with %v", windows)
		}
		if r.InFlight <= 0 || r.InFlight > 5.001 {
			t.Errorf("%v requests in flight on 5 connections", r.InFlight)
		}
		var body uint64
		for i, path := range []string{"/", "/big", "/none"} {
			a := r.Answers[i]
			h := fnv.New64a()
			h.Write([]byte(bodies[path]))
			if a.Path != path || a.Status != 200 || a.Length != int64(len(bodies[path])) || a.Hash != h.Sum64() || a.Head.Get("Date") == "" || a.Bytes <= len(bodies[path]) {
				t.Errorf("answer %d: %+v", i, a)
			}
			body += uint64(a.Length) * 100
		}
		// Each connection asks in turn, so that the paths have some 100 each.
		if r.Body < body-3e6*2 || r.Body > body+3e6*2 || r.Bytes <= r.Body {
			t.Errorf("%d bytes of bodies, %d of all, want some %d", r.Body, r.Bytes, body)
		}
	}
}

// Each connection asks for all paths in turn, beginning at different ones.
func TestRunTakesPathsInTurn(t *testing.T) {
	var first, wrong atomic.Int64
	next := func(s string) string { return map[string]string{"/0": "/1", "/1": "/2", "/2": "/0"}[s] }
	type key struct{}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		last := r.Context().Value(key{}).(*string)
		if *last == "" {
			first.Add(1 << (8 * (r.URL.Path[1] - '0')))
		} else if next(*last) != r.URL.Path {
			wrong.Add(1)
		}
		*last = r.URL.Path
	}))
	s.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, key{}, new(string))
	}
	s.Start()
	defer s.Close()
	exactly(t, Config{URL: s.URL, Paths: []string{"/0", "/1", "/2"}, Connections: 6, Threads: 2, Requests: 600})
	if wrong.Load() != 0 || first.Load() != 0x020202 {
		t.Errorf("%d out of turn; paths began %#x times", wrong.Load(), first.Load())
	}
}

func TestRunOverUNIXSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Skipf("no UNIX socket here: %v", err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.URL.Path)
	}))
	s.Listener.Close()
	s.Listener = l
	s.Start()
	defer s.Close()
	r := exactly(t, Config{URL: "unix:" + path, Paths: []string{"/abc"}, Connections: 200, Requests: 1000})
	if r.Answers[0].Length != 4 {
		t.Errorf("answer: %+v", r.Answers[0])
	}
}

// Connections that the target ends after an answer are opened anew, and that is
// no error.
func TestRunReopens(t *testing.T) {
	for name, c := range map[string]Config{
		"asked by the target":    {Paths: []string{"/close"}},
		"asked by the generator": {Paths: []string{"/"}, Header: http.Header{"Connection": {"close"}}},
	} {
		t.Run(name, func(t *testing.T) {
			c.URL = serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/close" {
					w.Header().Set("Connection", "close")
				}
				fmt.Fprint(w, "bye")
			})
			c.Connections, c.Requests = 3, 50
			if r := exactly(t, c); r.Connect.Count() < 50 {
				t.Errorf("%d connections for 50 requests", r.Connect.Count())
			}
		})
	}
}

// Answers unlike the first one are told apart, whatever makes them so.
func TestRunSeesChanges(t *testing.T) {
	var n atomic.Int64
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		switch n.Add(1) % 4 {
		case 0:
			w.WriteHeader(503)
			fmt.Fprint(w, "hello")
		case 1:
			fmt.Fprint(w, "hello")
		case 2:
			fmt.Fprint(w, "hullo") // the same length
		case 3:
			w.(http.Flusher).Flush() // chunked
			fmt.Fprint(w, "hello!")
		}
	})
	c := Config{URL: url, Connections: 1, Requests: 100, Duration: 30 * time.Second, Alike: true}
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	consistent(t, r)
	if r.Requests != 100 || r.Varied != 50 || r.Status[503] != 25 || r.Errors.Unexpected != 50 || r.Latency.Count() != 50 || !strings.Contains(r.Errors.First, "first answer") {
		t.Errorf("%d requests, status %v, errors %+v, %d in the histogram", r.Requests, r.Status, r.Errors, r.Latency.Count())
	}
	c.Alike = false
	if r = exactly(t, c); r.Latency.Count() != 100 || r.Varied != 50 {
		t.Errorf("answers that may vary: %d in the histogram", r.Latency.Count())
	}
}

// What was measured until ctx ends is kept.
func TestRunKeepsWhatWasMeasured(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	url := serve(t, func(http.ResponseWriter, *http.Request) {})
	closed := false
	r, err := Run(ctx, Config{
		URL: url, Connections: 2, Duration: time.Hour,
		Window: func(open bool) { closed = !open },
		Progress: func(tick Tick) {
			if tick.Requests > 0 {
				cancel(why)
			}
		},
	})
	if !errors.Is(err, why) || !closed {
		t.Errorf("error %v, window closed: %v", err, closed)
	}
	if r.Requests == 0 || r.Took <= 0 || r.Took > time.Hour/2 || len(r.Ticks) == 0 {
		t.Errorf("%d requests in %v, %d ticks", r.Requests, r.Took, len(r.Ticks))
	}
	consistent(t, r)
}

func TestRunEndedBeforeItsWindow(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	url := serve(t, func(http.ResponseWriter, *http.Request) {})
	r, err := Run(ctx, Config{
		URL: url, Connections: 2, Warmup: time.Hour,
		Window:   func(bool) { t.Error("the window was called") },
		Progress: func(tick Tick) { cancel() },
	})
	if !errors.Is(err, context.Canceled) || r == nil || r.Requests != 0 || r.Took != 0 {
		t.Errorf("error %v, result %+v", err, r)
	}
}

// The warm-up is under load, and not counted.
func TestRunWarmsUp(t *testing.T) {
	var asked, before atomic.Int64
	url := serve(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	r, err := Run(t.Context(), Config{
		URL: url, Connections: 2, Warmup: 100 * time.Millisecond, Requests: 20, Duration: 30 * time.Second,
		Window: func(open bool) {
			if open {
				before.Store(asked.Load())
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	consistent(t, r)
	if before.Load() == 0 || r.Requests != 20 || asked.Load() < before.Load()+18 {
		t.Errorf("asked %d times before the window and %d in all; %d requests", before.Load(), asked.Load(), r.Requests)
	}
}

func TestRunUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	for _, url := range []string{"http://" + address, "https://" + address, "unix:/nonexistent/socket", "ws://" + address} {
		r, err := Run(t.Context(), Config{URL: url, Connections: 200, Duration: time.Hour})
		if !errors.Is(err, ErrNoAnswer) || r == nil || r.Errors.Connect == 0 || r.Requests != 0 {
			t.Errorf("%s: error %v, result %+v", url, err, r)
			continue
		}
		if strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), url) {
			t.Errorf("the error is %q, want one line with %s", err, url)
		}
	}
	if _, err := Run(t.Context(), Config{URL: "http://name.invalid/"}); !errors.Is(err, ErrNoAnswer) || !strings.Contains(err.Error(), "name.invalid") {
		t.Errorf("a name without an address: %v", err)
	}
}
