//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// balancer passes connections on to servers in turn, and knows nothing of HTTP. One that
// does not take a connection is passed over.
type balancer struct {
	ln      net.Listener
	servers []string
	turn    atomic.Uint32
	leads   sync.Map // a client's address → which server
	all     sync.WaitGroup
}

func newBalancer(t *testing.T, servers ...string) *balancer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{ln: ln, servers: servers}
	b.all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			b.all.Go(func() { b.pass(c) })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); b.all.Wait() })
	return b
}

func (b *balancer) pass(client net.Conn) {
	defer client.Close()
	for range b.servers {
		n := int(b.turn.Add(1)) % len(b.servers)
		server, err := net.DialTimeout("tcp", b.servers[n], time.Second)
		if err != nil {
			continue
		}
		defer server.Close()
		b.leads.Store(client.RemoteAddr().String(), n)
		var back sync.WaitGroup
		back.Go(func() {
			_, _ = io.Copy(client, server)
			_ = client.(*net.TCPConn).CloseWrite()
		})
		_, _ = io.Copy(server, client)
		_ = server.(*net.TCPConn).CloseWrite()
		back.Wait()
		return
	}
}

// crowd asks through a balancer, and notes what failed.
type crowd struct {
	b    *balancer
	done atomic.Int64

	mu     sync.Mutex
	failed []failedRequest
}

type failedRequest struct {
	what   string
	from   string // the client's address
	server int    // -1: not known
	began  time.Time
	err    error
}

// ask makes one request, which no client repeats.
func (c *crowd) ask(client *http.Client, method, path, want string) {
	f := failedRequest{what: method + " " + path, server: -1, began: time.Now()}
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		f.from = i.Conn.LocalAddr().String()
	}})
	var body io.Reader
	if method == http.MethodPost {
		body = io.MultiReader(strings.NewReader("something")) // of unknown length: nobody can send it again
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.b.ln.Addr().String()+path, body)
	if err == nil {
		var resp *http.Response
		if resp, err = client.Do(req); err == nil {
			var text []byte
			text, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err == nil && (resp.StatusCode != http.StatusOK || !strings.HasPrefix(string(text), want)) {
				err = fmt.Errorf("%s: %.80q", resp.Status, text)
			}
		}
	}
	if err == nil {
		c.done.Add(1)
		return
	}
	f.err = err
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = append(c.failed, f)
}

func (c *crowd) take() []failedRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.failed
	c.failed = nil
	for i := range all {
		if n, ok := c.b.leads.Load(all[i].from); ok {
			all[i].server = n.(int)
		}
	}
	return all
}

// TestThreeMachines: behind a balancer that knows only TCP, three machines lose no request
// while Redis fails over and while one is upgraded; and of one that ends by kill -9 those
// alone that it was answering.
func TestThreeMachines(t *testing.T) {
	t.Parallel() // with what else waits for a program
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, _ = io.Copy(io.Discard, r.Body)
		} else if strings.HasPrefix(r.URL.Path, "/c/kept") {
			w.Header().Set("Cache-Control", "max-age=1")
		}
		time.Sleep(2 * time.Millisecond)
		_, _ = fmt.Fprint(w, r.URL.Path)
	}))
	defer upstream.Close()
	ports := freePorts(t, 2)
	dbs := [2]*dbServer{newDB(t, ports[0]), newDB(t, ports[1])}
	for _, d := range dbs {
		d.start()
	}
	dbs[1].follow(t, dbs[0])
	redis := newRelay(t, dbs[0].addr())
	var machines []*upgraded
	var servers []string
	routes := fmt.Sprintf(`/: {respond: fine}, /c/: {cache: {to: %q, shared: "redis://%s"}}, /p/: {proxy: {to: [%q]}}`, upstream.URL, redis.addr(), upstream.URL)
	for range 3 {
		u := newUpgraded(t)
		u.start(routes)
		machines, servers = append(machines, u), append(servers, u.addr)
	}
	c := &crowd{b: newBalancer(t, servers...)}
	stop := make(chan struct{})
	var clients sync.WaitGroup
	defer clients.Wait()
	defer sync.OnceFunc(func() { close(stop) })()
	for i := range 12 {
		clients.Go(func() {
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: i%3 == 0}, Timeout: 20 * time.Second}
			defer client.CloseIdleConnections()
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(2 * time.Millisecond):
				}
				switch i % 4 {
				case 0:
					c.ask(client, http.MethodPost, "/p/post", "/p/post")
				case 1:
					c.ask(client, http.MethodGet, fmt.Sprintf("/c/new/%d/%d", i, n), "/c/new")
				default:
					c.ask(client, http.MethodGet, fmt.Sprint("/c/kept/", n%20), "/c/kept")
				}
			}
		})
	}
	goOn := func(what string) {
		t.Helper()
		from := c.done.Load()
		waitUntil := time.Now().Add(patience)
		for c.done.Load() < from+500 && time.Now().Before(waitUntil) {
			time.Sleep(10 * time.Millisecond)
		}
		for _, f := range c.take() {
			t.Errorf("%s: %s at machine %d: %v", what, f.what, f.server, f.err)
		}
		t.Logf("%s: %d requests", what, c.done.Load()-from)
	}
	goOn("before")

	dbs[0].Kill()
	goOn("Redis is dead")
	if _, err := dbs[1].ask("REPLICAOF NO ONE"); err != nil {
		t.Fatal(err)
	}
	redis.lead(dbs[1].addr())
	machines[0].waitFor(func() bool { return strings.Contains(machines[0].log.String(), "redis works") })
	goOn("a replica has taken over")

	if text, err := machines[1].upgrade(); err != nil {
		t.Fatal(text)
	}
	goOn("one is upgraded")
	machines[1].waitFor(func() bool { return len(machines[1].processes()) == 1 })
	goOn("the old process has ended")

	before := time.Now()
	for _, pid := range machines[2].processes() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	machines[2].waitFor(func() bool { // the kernel closes the sockets after the process is no longer to be seen
		c, err := net.Dial("tcp", machines[2].addr)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	dead := time.Now()
	time.Sleep(100 * time.Millisecond) // who was waiting has heard
	lost := c.take()
	for _, f := range lost {
		if f.server != 2 || f.began.After(dead) {
			t.Errorf("kill -9 of machine 2: %s at machine %d, %v after it: %v", f.what, f.server, f.began.Sub(before), f.err)
		}
	}
	t.Logf("kill -9: %d requests that it was answering are lost", len(lost))
	if len(lost) > 12 {
		t.Errorf("%d requests are lost, of 12 clients with one each", len(lost))
	}
	goOn("one is dead")
	machines[2].start(routes)
	goOn("it is back")
}
