package admin

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func TestRoutes(t *testing.T) {
	_, c, url := start(t, Options{Listen: "127.0.0.1:0"}, Deps{})
	for _, tt := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/", 200, "/metrics"},
		{"GET", "/nothing", 404, ""},
		{"GET", "/healthz", 200, "ok"},
		{"HEAD", "/healthz", 200, ""},
		{"POST", "/healthz", 405, ""},
		{"GET", "/reload", 405, ""},
		{"POST", "/reload", 501, "no config"},
		{"GET", "/metrics", 200, "millrace_build_info{"},
		{"GET", "/debug/pprof/", 200, "goroutine"},
		{"GET", "/debug/pprof/goroutine?debug=1", 200, "goroutine profile"},
		{"GET", "/debug/pprof/cmdline", 200, "admin"},
		{"GET", "/debug/pprof/profile?seconds=301", 400, "at most"},
		{"GET", "/debug/pprof/heap?seconds=1e300", 400, "at most"},
		{"GET", "/debug/pprof/nothing", 404, ""},
	} {
		status, body := ask(t, c, request(t, tt.method, url+tt.path))
		if status != tt.status || !strings.Contains(body, tt.body) {
			t.Errorf("%s %s: %d %.100q, want %d with %q", tt.method, tt.path, status, body, tt.status, tt.body)
		}
	}
}

func TestHealthzWhileDraining(t *testing.T) {
	var ready atomic.Bool
	_, c, url := start(t, Options{Listen: "127.0.0.1:0"}, Deps{Ready: ready.Load})
	for _, want := range []int{503, 200, 503} {
		ready.Store(want == 200)
		if status, body := ask(t, c, request(t, "GET", url+"/healthz")); status != want {
			t.Errorf("status %d %q, want %d", status, body, want)
		}
	}
}

// TestHealthzDegraded: a server that goes on without a shared store takes requests, and
// says so in the first line as always.
func TestHealthzDegraded(t *testing.T) {
	what := ""
	_, c, url := start(t, Options{Listen: "127.0.0.1:0"}, Deps{Degraded: func() string { return what }})
	for _, want := range []string{"ok\n", "ok\ndegraded: not reached: redis (cache of /)\n"} {
		if status, body := ask(t, c, request(t, "GET", url+"/healthz")); status != 200 || body != want {
			t.Errorf("status %d %q, want %q", status, body, want)
		}
		what = "redis (cache of /)"
	}
}

func TestReload(t *testing.T) {
	var fail error
	_, c, url := start(t, Options{Listen: "127.0.0.1:0"}, Deps{Reload: func() error { return fail }})
	if status, body := ask(t, c, request(t, "POST", url+"/reload")); status != 200 {
		t.Errorf("status %d: %s", status, body)
	}
	fail = errors.New("millrace.yaml:3:1: unknown key")
	if status, body := ask(t, c, request(t, "POST", url+"/reload")); status != 500 || !strings.Contains(body, fail.Error()) {
		t.Errorf("a reload that failed: %d %s", status, body)
	}
}

func TestReloadOneAtATime(t *testing.T) {
	entered, leave := make(chan bool), make(chan bool)
	_, c, url := start(t, Options{Listen: "127.0.0.1:0"}, Deps{Reload: func() error {
		entered <- true
		<-leave
		return nil
	}})
	var wg sync.WaitGroup
	wg.Go(func() {
		if status, body := ask(t, c, request(t, "POST", url+"/reload")); status != 200 {
			t.Errorf("the first: %d %s", status, body)
		}
	})
	<-entered
	if status, body := ask(t, c, request(t, "POST", url+"/reload")); status != 409 {
		t.Errorf("the second: %d %s", status, body)
	}
	close(leave)
	wg.Wait()
}

// What a page in the operator's browser can make it send must not work.
func TestBrowserAttacks(t *testing.T) {
	reloaded := false
	_, c, url := start(t, Options{Listen: "127.0.0.1:0"}, Deps{Reload: func() error { reloaded = true; return nil }})

	cross := request(t, "POST", url+"/reload")
	cross.Header.Set("Origin", "https://evil.example")
	if status, _ := ask(t, c, cross); status != 403 {
		t.Errorf("a form on another site: status %d, want 403", status)
	}
	fetch := request(t, "POST", url+"/reload")
	fetch.Header.Set("Sec-Fetch-Site", "cross-site")
	if status, _ := ask(t, c, fetch); status != 403 {
		t.Errorf("a fetch from another site: status %d, want 403", status)
	}
	for _, path := range []string{"/metrics", "/", "/debug/pprof/cmdline", "/debug/pprof/profile?seconds=300", "/addrs", "/nowhere"} {
		for _, field := range [][2]string{
			{"Sec-Fetch-Site", "cross-site"},
			{"Sec-Fetch-Site", "same-site"},
			{"Sec-Fetch-Site", ""},
			{"Origin", "https://evil.example"},
			{"Origin", "null"},
			{"Origin", "http://127.0.0.1:1"},
			{"Referer", "http://evil.example/page"},
			{"Referer", "%"},
		} {
			for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
				r := request(t, method, url+path)
				r.Header.Set(field[0], field[1])
				if status, _ := ask(t, c, r); status != 403 {
					t.Errorf("%s %s with %s: %s has status %d, want 403", method, path, field[0], field[1], status)
				}
			}
		}
		rebound := request(t, "GET", url+path)
		rebound.Host = "evil.example"
		if status, _ := ask(t, c, rebound); status != http.StatusMisdirectedRequest {
			t.Errorf("%s by a rebound name: status %d, want 421", path, status)
		}
	}
	if reloaded {
		t.Error("the config was reloaded")
	}
	for _, field := range [][2]string{{"Sec-Fetch-Site", "none"}, {"Sec-Fetch-Site", "same-origin"}, {"Origin", url}, {"Referer", url + "/"}, {"X-None", ""}} {
		r := request(t, "GET", url+"/addrs")
		r.Header.Set(field[0], field[1])
		if status, _ := ask(t, c, r); status != 200 {
			t.Errorf("%s: %s has status %d, want 200", field[0], field[1], status)
		}
	}
}

func TestHosts(t *testing.T) {
	for _, tt := range []struct {
		listen, bound string
		yes, no       []string
	}{
		{
			"127.0.0.1", "127.0.0.1",
			[]string{"127.0.0.1", "127.0.0.1:80", "localhost:80", "LOCALHOST.", "[::1]", "[::1]:80"},
			[]string{"", ":80", "evil.example", "localhost.evil.example", "192.0.2.1", "127.0.0.1.nip.io"},
		},
		{"", "::", []string{"192.0.2.1:80", "[2001:db8::1]:80", "localhost"}, []string{"", "evil.example:80"}},
		{"0.0.0.0", "::ffff:0.0.0.0", []string{"192.0.2.1"}, []string{"evil.example"}},
		{"metrics.lan", "192.0.2.7", []string{"metrics.lan:9090", "Metrics.LAN", "192.0.2.7", "localhost"}, []string{"lan", "192.0.2.8"}},
	} {
		allowed := tcpHosts(tt.listen, netip.MustParseAddr(tt.bound))
		for _, h := range tt.yes {
			if !allowed(h) {
				t.Errorf("listening on %q: %q is refused", tt.listen, h)
			}
		}
		for _, h := range tt.no {
			if allowed(h) {
				t.Errorf("listening on %q: %q is allowed", tt.listen, h)
			}
		}
	}
}
