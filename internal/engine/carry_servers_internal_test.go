package engine

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/config"
)

// TestMissedByTurns: only what is fetched takes a server's turn, not what others wait for
// or what is stored.
func TestMissedByTurns(t *testing.T) {
	var to []string
	for i := range 2 {
		up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.Header().Set("Cache-Control", "max-age=60")
			_, _ = fmt.Fprint(w, i)
		}))
		defer up.Close()
		to = append(to, up.URL)
	}
	for _, off := range []bool{false, true} {
		srv := running(t, fmt.Sprintf("admin: {listen: off}\nlog: {format: off}\nlisten: 127.0.0.1:0\nlane: {off: %v}\nsites:\n- routes:\n    /: {cache: {to: [%q, %q], balance: round_robin}}\n", off, to[0], to[1]))
		c := &cached{new(book), srv, strings.TrimPrefix(srv.Addrs()[0], "http://")}
		for n := range 12 {
			asked := get(fmt.Sprint("/", n))
			if got := c.ask(t, asked, 2); !strings.HasSuffix(got, fmt.Sprint(" ", n%2)) {
				t.Errorf("off: %v: %d has %s", off, n, got)
			}
			c.ask(t, get(fmt.Sprint("/none", n), "Cache-Control: only-if-cached"), 1)
		}
		if n := srv.server.Forwarded(); !off && n == 0 {
			t.Error("the loops fetched nothing")
		}
	}
}

// TestMissedByFields: loops fetch also where a field of the request chooses the server.
func TestMissedByFields(t *testing.T) {
	var to []string
	for i := range 2 {
		up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.Header().Set("Cache-Control", "max-age=60")
			_, _ = fmt.Fprint(w, " ", i)
		}))
		defer up.Close()
		to = append(to, up.URL)
	}
	for _, by := range []string{"balance: hash, hash_by: 'header:X-User'", "balance: hash, hash_by: 'cookie:visitor'"} {
		var said [2]string
		for road, off := range []bool{false, true} {
			srv := running(t, fmt.Sprintf("admin: {listen: off}\nlog: {format: off}\nlisten: 127.0.0.1:0\nlane: {off: %v}\nsites:\n- routes:\n    /: {cache: {to: [%q, %q], %s}}\n", off, to[0], to[1], by))
			c := &cached{new(book), srv, strings.TrimPrefix(srv.Addrs()[0], "http://")}
			for n := range 12 {
				got := c.ask(t, get(fmt.Sprint("/", n), fmt.Sprint("X-User: u", n), fmt.Sprint("Cookie: visitor=", n)), 1)
				said[road] += got[strings.LastIndex(got, " "):]
			}
			if n := srv.server.Forwarded(); (n > 0) == off {
				t.Errorf("%s, off: %v: the loops fetched %d", by, off, n)
			}
		}
		if said[0] != said[1] || !strings.Contains(said[0], "0") || !strings.Contains(said[0], "1") {
			t.Errorf("%s: on the loops the servers%s answer, else%s", by, said[0], said[1])
		}
	}
}

// TestCarriedReloads: while the servers of a route, and how one is chosen, change
// under load, each request gets its answer.
func TestCarriedReloads(t *testing.T) {
	var to [3]string
	for i := range to {
		up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			w.Header().Set("Content-Type", "text/plain")
			_, _ = fmt.Fprintf(w, "%d: %s %s %s", i, r.Method, r.RequestURI, body)
		}))
		defer up.Close()
		to[i] = up.URL
	}
	text := func(more string, servers ...string) string {
		quoted := `"` + strings.Join(servers, `", "`) + `"`
		return fmt.Sprintf("admin: {listen: off}\nlog: {format: off}\nlisten: 127.0.0.1:0\nsites:\n- routes:\n    /: {proxy: {to: [%s], %s}}\n", quoted, more)
	}
	texts := []string{
		text("balance: round_robin", to[0], to[1]),
		text("balance: round_robin, weights: [1, 3]", to[1], to[2]),
		text("balance: hash, hash_by: path", to[:]...),
		text("sticky: route", to[:]...),
		text("balance: least_connections, weights: [1, 2], slow_start: 1s", to[2], to[0]),
		text("concurrency: 1, balance: round_robin", to[0]),
	}
	srv := running(t, texts[0])
	var asked atomic.Int64
	var all sync.WaitGroup
	stop := make(chan struct{})
	for i := range 8 {
		all.Go(func() {
			nc, err := net.Dial("tcp", strings.TrimPrefix(srv.Addrs()[0], "http://"))
			if err != nil {
				t.Error(err)
				return
			}
			defer nc.Close()
			_ = nc.SetDeadline(time.Now().Add(time.Minute))
			br := bufio.NewReader(nc)
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				path, method, body := fmt.Sprintf("/%d/%d", i, n), http.MethodGet, ""
				request := get(path)
				if n%3 == 0 {
					method, body = http.MethodPost, "body"
					request = send(method, path, body)
				}
				_, _ = io.WriteString(nc, request)
				resp, err := http.ReadResponse(br, nil)
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if want := fmt.Sprintf(": %s %s %s", method, path, body); err != nil || resp.StatusCode != http.StatusOK || !strings.HasSuffix(string(got), want) {
					t.Errorf("%s %.80q, %v; want %q", resp.Status, got, err, want)
					return
				}
				asked.Add(1)
			}
		})
	}
	for i := range 30 {
		cfg, err := config.Parse("test.yaml", []byte(texts[i%len(texts)]))
		if err != nil {
			t.Fatal(err)
		}
		if err := srv.Reload(cfg); err != nil {
			t.Fatal(err)
		}
		for then := asked.Load(); asked.Load() < then+20 && !t.Failed(); {
			time.Sleep(time.Millisecond)
		}
	}
	close(stop)
	all.Wait()
	if srv.server.Forwarded() == 0 {
		t.Error("the loops passed nothing on")
	}
}
