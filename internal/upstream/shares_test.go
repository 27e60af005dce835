package upstream

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A client with many requests in the queue does not hold up another one, nor keep it out.
func TestFairQueue(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		s := &slow{took: time.Second}
		w.handle("a:80", s.answer)
		p := newPool(t, Options{To: []string{"http://a"}, Concurrency: 1, Queue: 6, QueueTimeout: time.Minute}, w)
		var mu sync.Mutex
		busy := map[string]int{}
		var all sync.WaitGroup
		ask := func(from, path string) {
			time.Sleep(time.Millisecond)
			all.Go(func() {
				r := newRequest(t, "GET", path, nil)
				r.RemoteAddr = from
				if _, _, err := do(p, r); errors.Is(err, ErrBusy) {
					mu.Lock()
					busy[path]++
					mu.Unlock()
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		for i := range 9 { // one runs, six wait, two find the queue full
			ask(fmt.Sprintf("192.0.2.1:%d", 1000+i), fmt.Sprint("/a", i))
		}
		ask("192.0.2.2:1", "/b0") // in the place of /a6
		ask("[2001:db8::1]:1", "/c0")
		ask("[2001:db8::2]:1", "/c1") // the same network
		all.Wait()
		if got := strings.Join(s.order, ""); got != "/a0/a1/b0/c0/a2/c1/a3" {
			t.Errorf("the order is %s", got)
		}
		if got := slices.Sorted(maps.Keys(busy)); !slices.Equal(got, []string{"/a4", "/a5", "/a6", "/a7", "/a8"}) {
			t.Errorf("turned away: %s", got)
		}
		if len(p.queue.clients) != 0 {
			t.Errorf("%d clients are remembered", len(p.queue.clients))
		}
		idle(t, p)
	})
}

func TestCustomerOf(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1/32", "[::ffff:192.0.2.1]:80": "192.0.2.1/32", "[2001:db8:1:2:3::4]:80": "2001:db8:1:2::/64", "[fe80::1%eth0]:80": "fe80::/64",
	} {
		q := Request{Client: netip.MustParseAddrPort(remote)}
		if got := customerOf(q.client()); got != netip.MustParsePrefix(want) {
			t.Errorf("%s is %s, want %s", remote, got, want)
		}
	}
	if customerOf(new(Request).client()).IsValid() {
		t.Error("a socket has an address")
	}
}

// Every balance gives servers what their weights say.
func TestWeights(t *testing.T) {
	for _, balance := range sortedKeys(balancers) {
		t.Run(balance, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *wires) {
				for i := range 3 {
					w.host(fmt.Sprintf("%c:80", 'a'+i), nil)
				}
				p := newPool(t, Options{To: hosts(3), Balance: balance, Weights: []int{1, 2, 5}}, w)
				var counts [3]int
				var running []*server
				const n = 4000
				for i := range n {
					s, err := p.choose(0, demand{key: fnv1a(fmt.Sprint("/", i))})
					if err != nil {
						t.Fatal(err)
					}
					counts[s.index]++
					s.latency.observe(0, time.Millisecond)
					s.running++
					if running = append(running, s); len(running) > 40 {
						running[0].running--
						running = running[1:]
					}
				}
				for _, s := range running {
					s.running--
				}
				for i, weight := range []float64{1, 2, 5} {
					if want := n * weight / 8; math.Abs(float64(counts[i])-want) > want/4 {
						t.Errorf("server %d has %d of %d requests, want about %.0f", i, counts[i], n, want)
					}
				}
			})
		})
	}
}

// A server that has come back gets more from second to second.
func TestSlowStart(t *testing.T) {
	for _, balance := range sortedKeys(balancers) {
		bubble(t, func(t *testing.T, w *wires) {
			w.host("a:80", nil)
			w.host("b:80", nil)
			p := newPool(t, Options{To: hosts(2), Balance: balance, SlowStart: 10 * time.Second}, w)
			for _, s := range p.servers {
				s.latency.observe(time.Minute, time.Millisecond)
			}
			part := func(now time.Duration) float64 {
				n := 0
				for i := range 1000 {
					s, err := p.choose(now, demand{key: fnv1a(fmt.Sprint("/", i))})
					if err != nil {
						t.Fatal(err)
					}
					n += s.index
				}
				return float64(n) / 1000
			}
			if got := part(time.Minute); balance != "two_choices" && (got < 0.4 || got > 0.6) {
				t.Errorf("%s: %v of the requests before", balance, got)
			}
			p.servers[1].back = time.Minute
			if got := part(time.Minute); got > 0.2 {
				t.Errorf("%s: %v of the requests at once", balance, got)
			}
			if got := p.servers[1].share(time.Minute + 5*time.Second); got != 0.5 {
				t.Errorf("half of the time: a share of %v", got)
			}
			if got := p.servers[1].share(time.Minute + 10*time.Second); got != 1 {
				t.Errorf("all of the time: a share of %v", got)
			}
		})
	}
}

// A visitor stays with a server while that answers, and moves when it does not.
func TestSticky(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		for _, host := range []string{"a", "b", "c"} {
			w.handle(host+":80", func(_ *http.Request, c net.Conn) bool {
				_, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%s", host)
				return err == nil
			})
		}
		p := newPool(t, Options{To: hosts(3), Sticky: Sticky{Cookie: "at", MaxAge: time.Hour}}, w)
		ask := func(cookie string) (server, set string) {
			r := newRequest(t, "GET", "/", nil)
			r.Header.Set("Cookie", cookie)
			resp, err := p.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b := make([]byte, 1)
			_, _ = resp.Body.Read(b)
			return string(b), resp.Header.Get("Set-Cookie")
		}
		first, set := ask("other=1; at=forged")
		cookie, attributes, _ := strings.Cut(set, "; ")
		if attributes != "Path=/; Max-Age=3600; HttpOnly; SameSite=Lax" || len(cookie) != len("at=")+16 {
			t.Fatalf("the cookie is %q", set)
		}
		for range 20 {
			if at, set := ask(cookie); at != first || set != "" {
				t.Fatalf("%s after %s, %q", at, first, set)
			}
		}
		var mine *server
		for _, s := range p.servers {
			if strings.Contains(s.name, "//"+first) {
				mine = s
			}
		}
		p.mu.Lock()
		mine.running += p.options.Concurrency
		p.mu.Unlock()
		if at, set := ask(cookie); at == first || set != "" {
			t.Errorf("a busy server: %s, %q", at, set)
		}
		p.mu.Lock()
		mine.running -= p.options.Concurrency
		mine.down = true
		p.mu.Unlock()
		if at, set := ask(cookie); at == first || !strings.HasPrefix(set, "at=") || strings.HasPrefix(set, cookie) {
			t.Errorf("a server that is down: %s, %q", at, set)
		}
		synctest.Wait()
	})
}

func TestCheckShares(t *testing.T) {
	for want, o := range map[string]Options{
		"weights":        {To: hosts(2), Weights: []int{1}},
		"weights[1]":     {To: hosts(2), Weights: []int{1, 0}},
		"slow_start":     {To: hosts(1), SlowStart: time.Second},
		"sticky.cookie":  {To: hosts(2), Sticky: Sticky{Cookie: "a b"}},
		"sticky.max_age": {To: hosts(2), Sticky: Sticky{Cookie: "a", MaxAge: 1}},
	} {
		if got := sortedKeys(o.Check()); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: %v", want, o.Check())
		}
	}
}
