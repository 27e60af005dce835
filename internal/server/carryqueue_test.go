package server

import (
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

	"millrace/internal/process/servertest"
	"millrace/internal/upstream"
)

// TestCarriedQueue: with two places for thirty clients most requests wait, and the
// loops send them when they may. Each client gets its own answers.
func TestCarriedQueue(t *testing.T) {
	var running, most atomic.Int64
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer running.Add(-1)
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/plain")
		_, _ = fmt.Fprintf(w, "%s %s %s", r.Method, r.RequestURI, body)
	}))
	defer up.Close()
	r := relay(t, strings.TrimPrefix(up.URL, "http://"), upstream.Options{Concurrency: 2}, false)
	pair{r, r}.warm(t)
	before := r.srv.lane.Forwarded()
	var all sync.WaitGroup
	for i := range 30 {
		c := r.dial(t, "tcp")
		all.Go(func() {
			for n := range 20 {
				path := fmt.Sprintf("/%d/%d", i, n)
				method, body, req := "GET", "", request("GET", path)
				if n%3 == 1 {
					method, body = "POST", strings.Repeat(fmt.Sprint(i), 500)
					req = post(path, body)
				}
				_, _ = io.WriteString(c.Conn, req)
				_, got, err := c.tryAnswer(method)
				if want := method + " " + path + " " + body; err != nil || got != want {
					t.Errorf("%.80q, %v, want %.80q", got, err, want)
					return
				}
			}
		})
	}
	all.Wait()
	if n := r.srv.lane.Forwarded() - before; n < 400 {
		t.Errorf("the loops passed %d of 600 on", n)
	}
	if n := most.Load(); n > 2 {
		t.Errorf("the upstream had %d requests at once", n)
	}
}

// TestCarriedQueueEnds: who waits too long is told so, and who leaves the queue is
// not asked for.
func TestCarriedQueueEnds(t *testing.T) {
	asked := make(chan string, 10)
	begun, release := make(chan struct{}, 10), make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		if r.URL.Path == "/slow" {
			begun <- struct{}{}
			<-release
		} else if r.URL.Path != "/ok" {
			asked <- r.URL.Path
		}
		_, _ = io.WriteString(w, "done")
	}))
	defer up.Close()
	r := relay(t, strings.TrimPrefix(up.URL, "http://"), upstream.Options{Concurrency: 1, QueueTimeout: time.Second}, false)
	pair{r, r}.warm(t)
	waiting := func(n int) {
		t.Helper()
		servertest.Eventually(t, fmt.Sprint(n, " wait"), func() bool { return r.pool.Waiting() == n })
	}
	first, gone, late, last := r.dial(t, "tcp"), r.dial(t, "tcp"), r.dial(t, "tcp"), r.dial(t, "tcp")
	_, _ = io.WriteString(first.Conn, request("GET", "/slow"))
	<-begun
	_, _ = io.WriteString(gone.Conn, request("GET", "/gone"))
	waiting(1)
	gone.leave()
	waiting(0)
	_, _ = io.WriteString(late.Conn, request("GET", "/late"))
	if res, _, err := late.tryAnswer("GET"); err != nil || res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("who waits too long gets %v, %v", res, err)
	}
	_, _ = io.WriteString(last.Conn, request("GET", "/last"))
	waiting(1)
	close(release)
	for name, c := range map[string]*client{"first": first, "last": last} {
		if _, got, err := c.tryAnswer("GET"); err != nil || got != "done" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if first := <-asked; first != "/last" || len(asked) > 0 {
		t.Errorf("the upstream was asked for %s, and %d more of those that waited", first, len(asked))
	}
}

// TestCarriedSlowReaders: clients that take nothing hold neither places nor more
// memory than is named, and get all of their answers in the end.
func TestCarriedSlowReaders(t *testing.T) {
	p := newRelays(t)
	p.warm(t)
	body := strings.Repeat("x", 60000)
	p.set(false, okHead+"Content-Length: 60000\r\n\r\n"+body)
	const n, each = 20, 5
	clients := make([]*client, n)
	for i := range clients {
		clients[i] = p.with.dial(t, "tcp")
		_ = clients[i].Conn.(*net.TCPConn).SetReadBuffer(32 << 10)
		clients[i].write(strings.Repeat(request("GET", "/a"), each))
	}
	for range 20 {
		if got := p.with.dial(t, "tcp").get("/ok"); got != "ok\n" {
			t.Fatal(got)
		}
	}
	for _, c := range clients {
		for range each {
			if resp, got := c.answer("GET"); resp.StatusCode != http.StatusOK || got != body {
				t.Fatalf("%s, %d bytes", resp.Status, len(got))
			}
		}
	}
	servertest.Eventually(t, "nothing is held", func() bool { return p.with.srv.lane.Unsent() == 0 })
}
