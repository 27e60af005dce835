package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/upstream/faulty"
	"millrace/internal/wire/field"
)

// counting answers, and counts.
func (w *wires) counting(addr string) *atomic.Int32 {
	n := new(atomic.Int32)
	w.handle(addr, func(r *http.Request, c net.Conn) bool { n.Add(1); return answerOK(r, c) })
	return n
}

func hosts(n int) []string {
	var to []string
	for i := range n {
		to = append(to, fmt.Sprintf("http://%c", 'a'+i))
	}
	return to
}

// TestEjection: a server that fails is out, longer each time, and comes back.
func TestEjection(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		b := w.counting("b:80")
		p := newPool(t, Options{To: hosts(2), Balance: "round_robin", Breaker: Breaker{Off: true}}, w)
		for range 20 {
			if _, _, err := get(t, p); err != nil {
				t.Fatal(err)
			}
		}
		if n := w.dials("a:80"); n != 3 {
			t.Errorf("%d tries at the server that refuses, want 3", n)
		}
		s := p.Servers()
		if s[0].Healthy || !s[1].Healthy || s[0].Fails != 3 || b.Load() != 20 {
			t.Errorf("servers %+v", s)
		}
		time.Sleep(5 * time.Second) // back
		for range 20 {
			get(t, p)
		}
		if n := w.dials("a:80"); n != 6 {
			t.Errorf("%d tries, want 3 more", n)
		}
		time.Sleep(9 * time.Second) // not yet back: the time has doubled
		for range 20 {
			get(t, p)
		}
		if n := w.dials("a:80"); n != 6 {
			t.Errorf("%d tries while it is ejected", n)
		}
		a := w.counting("a:80")
		time.Sleep(time.Second)
		for range 20 {
			get(t, p)
		}
		if a.Load() != 10 || !p.Servers()[0].Healthy {
			t.Errorf("%d requests after it is repaired, want 10", a.Load())
		}
		idle(t, p)
	})
}

// TestPanic: when all are ejected, all are asked.
func TestPanic(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		p := newPool(t, Options{To: hosts(2), Balance: "round_robin", Breaker: Breaker{Off: true}}, w)
		for range 10 {
			get(t, p)
		}
		for _, s := range p.Servers() {
			if s.Healthy {
				t.Errorf("%s is healthy", s.Address)
			}
		}
		w.counting("a:80")
		w.counting("b:80")
		if _, _, err := get(t, p); err != nil {
			t.Errorf("with all servers ejected and well again: %v", err)
		}

		alone := newPool(t, Options{To: hosts(3)[2:], Breaker: Breaker{Off: true}}, w)
		for range 10 {
			get(t, alone)
		}
		if !alone.Servers()[0].Healthy {
			t.Error("the only server is ejected")
		}
	})
}

// TestBreaker: open after failures, one probe, closed after a success.
func TestBreaker(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		p := newPool(t, Options{To: hosts(1), Retries: Retries{Attempts: 1}}, w)
		for i := range 30 {
			_, _, err := get(t, p)
			if want := []error{ErrUnreachable, ErrUnhealthy}[min(i/20, 1)]; !errors.Is(err, want) {
				t.Errorf("request %d: %v, want %v", i, err, want)
			}
		}
		if !p.Servers()[0].Open || w.dials("a:80") != 20 {
			t.Errorf("open %v after %d tries", p.Servers()[0].Open, w.dials("a:80"))
		}
		time.Sleep(5 * time.Second)
		for range 10 { // half-open: one
			get(t, p)
		}
		if n := w.dials("a:80"); n != 21 {
			t.Errorf("%d tries, want one more", n)
		}
		time.Sleep(9 * time.Second)
		get(t, p)
		if n := w.dials("a:80"); n != 21 {
			t.Errorf("%d tries before the doubled time is over", n)
		}

		// Half-open, and the probe takes its time: nobody else passes.
		s := &slow{took: time.Second}
		w.handle("a:80", s.answer)
		time.Sleep(time.Second)
		var all sync.WaitGroup
		var bad, good atomic.Int32
		for range 10 {
			all.Go(func() {
				if _, _, err := get(t, p); errors.Is(err, ErrUnhealthy) {
					bad.Add(1)
				} else if err == nil {
					good.Add(1)
				}
			})
		}
		all.Wait()
		if good.Load() != 1 || bad.Load() != 9 || p.Servers()[0].Open {
			t.Errorf("%d passed, %d did not, open %v", good.Load(), bad.Load(), p.Servers()[0].Open)
		}
		for range 100 {
			if _, _, err := get(t, p); err != nil {
				t.Fatal(err)
			}
		}
		idle(t, p)
	})
}

// TestBreakerProbeGivenUp: a probe whose client leaves decides nothing, and
// does not block the next.
func TestBreakerProbeGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		p := newPool(t, Options{To: hosts(1), Retries: Retries{Attempts: 1}, Breaker: Breaker{Requests: 1}}, w)
		get(t, p)
		w.set("a:80", faulty.Named("hang before header").Script)
		time.Sleep(5 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := do(p, newRequest(t, "GET", "/", nil).WithContext(ctx)); !errors.Is(err, ErrTimeout) {
			t.Errorf("the probe: %v", err)
		}
		w.counting("a:80")
		if _, _, err := get(t, p); err != nil {
			t.Errorf("the next: %v", err)
		}
	})
}

// TestBodyFailures: answers that break off count, however good their headers.
func TestBodyFailures(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		w.set("a:80", faulty.Named("length too large").Script)
		w.counting("b:80")
		p := newPool(t, Options{To: hosts(2), Balance: "round_robin", Health: Health{Failures: 1000}}, w)
		for range 50 {
			get(t, p)
		}
		if !p.Servers()[0].Open {
			t.Error("the breaker stays closed")
		}
		for range 10 {
			if _, _, err := get(t, p); err != nil {
				t.Errorf("with the other server: %v", err)
			}
		}
	})
}

// crashing is a server that says crash for one page, "" to wait and " " to say nothing,
// and ends the connection; the others it answers.
func (w *wires) crashing(addr, crash string) {
	w.host(addr, func(c net.Conn) {
		defer c.Close()
		reader := bufio.NewReader(c)
		for {
			r, err := http.ReadRequest(reader)
			switch {
			case err != nil:
				return
			case r.URL.Path != "/crash":
				_ = answerOK(r, c)
				continue
			case crash == "":
				_, _ = reader.ReadByte() // until the client gives up
			}
			_, _ = io.WriteString(c, strings.TrimSpace(crash))
			return
		}
	})
}

// TestOneBadPage: a page that crashes the application, whatever way, does not close the
// others, however many servers there are and whoever asks for it.
func TestOneBadPage(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		for _, fault := range []string{"", " ", "HTTP/1.1 200 OK\r\nContent-", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"} {
			t.Run(fmt.Sprintf("%d servers, %q", n, fault), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *wires) {
					to := hosts(n)
					for _, host := range to {
						w.crashing(strings.TrimPrefix(host, "http://")+":80", fault)
					}
					p := newPool(t, Options{To: to, HeaderTimeout: time.Second}, w)
					for range 100 {
						if _, _, err := do(p, newRequest(t, "GET", "/crash", nil)); err == nil || errors.Is(err, ErrUnhealthy) {
							t.Fatalf("the page itself: %v", err)
						}
						if _, _, err := get(t, p); err != nil {
							t.Fatalf("another page: %v", err)
						}
					}
					var all sync.WaitGroup
					for range 20 {
						all.Go(func() { do(p, newRequest(t, "GET", "/crash", nil)) })
					}
					all.Wait()
					for range 50 {
						if _, _, err := get(t, p); err != nil {
							t.Fatalf("another page, after many: %v", err)
						}
					}
					idle(t, p)
				})
			})
		}
	}
}

// TestRetriesCountOnce: a request that fails wherever it is sent counts as one failure.
func TestRetriesCountOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		for _, host := range hosts(3) {
			w.crashing(strings.TrimPrefix(host, "http://")+":80", " ")
		}
		p := newPool(t, Options{To: hosts(3), Balance: "round_robin", Health: Health{Failures: 1}}, w)
		do(p, newRequest(t, "GET", "/crash", nil))
		var fails uint64
		healthy := 0
		for _, s := range p.Servers() {
			if fails += s.Fails; s.Healthy {
				healthy++
			}
		}
		if fails != 1 || healthy != 2 || p.Retried() != 2 {
			t.Errorf("%d failures, %d healthy servers, %d retries", fails, healthy, p.Retried())
		}
	})
}

// TestProbes: a server is out after some bad probes, and back after some good
// ones; with all out there is nobody to ask.
func TestProbes(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		var ill atomic.Bool
		var asked, probed atomic.Int32
		w.handle("a:80", func(r *http.Request, c net.Conn) bool {
			if r.RequestURI == "/healthz?deep" {
				probed.Add(1)
				if ill.Load() {
					io.WriteString(c, "HTTP/1.1 500 Ill\r\nContent-Length: 0\r\n\r\n")
					return true
				}
				io.WriteString(c, "HTTP/1.1 204 Well\r\n\r\n")
				return true
			}
			asked.Add(1)
			return answerOK(r, c)
		})
		p := newPool(t, Options{To: []string{"http://a/prefix"}, Health: Health{Path: "/healthz?deep", Interval: time.Second}}, w)
		synctest.Wait()
		if probed.Load() != 1 {
			t.Errorf("%d probes at the start", probed.Load())
		}
		healthy := func(after time.Duration, want bool) {
			t.Helper()
			time.Sleep(after)
			time.Sleep(time.Millisecond) // a look at an idle connection takes time without a kernel
			synctest.Wait()
			_, _, err := get(t, p)
			if got := p.Servers()[0].Healthy; got != want || (err == nil) != want || !want && !errors.Is(err, ErrUnhealthy) {
				t.Errorf("healthy %v, want %v; error %v", got, want, err)
			}
		}
		healthy(10*time.Second, true)
		ill.Store(true)
		healthy(2*time.Second, true)
		healthy(time.Second, false)
		ill.Store(false)
		healthy(time.Second, false)
		healthy(time.Second, true)
		w.set("a:80", faulty.Named("hang before header").Script)
		p.servers[0].client.closeIdle()
		time.Sleep(10 * time.Second)
		if p.Servers()[0].Healthy {
			t.Error("healthy, though probes get no answer")
		}
		if p.Servers()[0].Requests != uint64(asked.Load()) {
			t.Errorf("probes are counted as requests: %+v, %d", p.Servers()[0], asked.Load())
		}
	})
}

// TestWaitersMove: who waits for a server that goes down gets another, or an error.
func TestWaitersMove(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		w.set("a:80", faulty.Named("hang before header").Script)
		o := Options{
			To: hosts(1), Concurrency: 1, HeaderTimeout: time.Minute, QueueTimeout: time.Hour,
			Retries: Retries{Attempts: 1}, Health: Health{Path: "/", UnhealthyAfter: 1},
		}
		p := newPool(t, o, w)
		var all sync.WaitGroup
		var unhealthy atomic.Int32
		for range 5 {
			all.Go(func() {
				if _, _, err := get(t, p); errors.Is(err, ErrUnhealthy) {
					unhealthy.Add(1)
				}
			})
		}
		all.Wait()
		if n := unhealthy.Load(); n != 4 {
			t.Errorf("%d waiters were told, want 4", n)
		}
		idle(t, p)
	})
}

// TestBalance: who gets how much.
func TestBalance(t *testing.T) {
	for _, c := range []struct {
		balance string
		slow    time.Duration // of the first of three servers; the others take 1ms
		share   [2]int        // of it: at least and at most of 300
	}{
		{"round_robin", time.Millisecond, [2]int{100, 100}},
		{"round_robin", 100 * time.Millisecond, [2]int{100, 100}},
		{"least_connections", time.Millisecond, [2]int{40, 160}},
		{"least_connections", time.Second, [2]int{1, 40}},
		{"two_choices", time.Millisecond, [2]int{40, 160}},
		{"two_choices", time.Second, [2]int{1, 40}},
		{"", time.Second, [2]int{1, 40}},
	} {
		t.Run(fmt.Sprint(c.balance, c.slow), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *wires) {
				servers := []*slow{{took: c.slow}, {took: time.Millisecond}, {took: time.Millisecond}}
				for i, s := range servers {
					w.handle(fmt.Sprintf("%c:80", 'a'+i), s.answer)
				}
				p := newPool(t, Options{To: hosts(3), Balance: c.balance}, w)
				var all sync.WaitGroup
				for range 300 {
					time.Sleep(time.Millisecond)
					all.Go(func() { get(t, p) })
				}
				all.Wait()
				if n := len(servers[0].order); n < c.share[0] || n > c.share[1] {
					t.Errorf("the first got %d of 300, want %d to %d", n, c.share[0], c.share[1])
				}
				idle(t, p)
			})
		})
	}
}

// TestRefusalIsNotSpeed: a server that refuses at once does not look fast.
func TestRefusalIsNotSpeed(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		s := &slow{took: 100 * time.Millisecond}
		w.handle("b:80", s.answer)
		p := newPool(t, Options{To: hosts(2), Health: Health{Failures: 1000}, Breaker: Breaker{Off: true}}, w)
		for range 50 {
			get(t, p)
		}
		if n := w.dials("a:80"); n > 10 {
			t.Errorf("%d of 50 requests tried the server that refuses", n)
		}
	})
}

// TestHash: the same key meets the same server, few keys move when one goes,
// and a popular key cannot sink its server.
func TestHash(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		for i := range 4 {
			w.host(fmt.Sprintf("%c:80", 'a'+i), nil)
		}
		p := newPool(t, Options{To: hosts(4), Balance: "hash"}, w)
		where := func(tried set) (at []int) {
			for i := range 400 {
				s, err := p.choose(0, demand{key: fnv1a(fmt.Sprint("/", i)), tried: tried})
				if err != nil {
					t.Fatal(err)
				}
				at = append(at, s.index)
			}
			return at
		}
		before := where(0)
		if !slices.Equal(before, where(0)) {
			t.Error("the same keys meet other servers")
		}
		counts := [4]int{}
		for _, i := range before {
			counts[i]++
		}
		for i, n := range counts {
			if n < 60 || n > 140 {
				t.Errorf("server %d has %d of 400 keys", i, n)
			}
		}
		for i, at := range where(set(0).with(p.servers[2])) {
			if before[i] != 2 && at != before[i] || at == 2 {
				t.Errorf("key %d moved from %d to %d though only server 2 is gone", i, before[i], at)
			}
		}
		total := 0
		for range 100 {
			s, _ := p.choose(0, demand{key: 42})
			s.running++
			total++
			if most := int(math.Ceil(1.25 * float64(total) / 4)); s.running > most {
				t.Fatalf("%d of %d running are at one of four servers", s.running, total)
			}
		}
		for _, s := range p.servers {
			s.running = 0
		}
	})
}

// TestHashBy: what the key is.
func TestHashBy(t *testing.T) {
	q := Request{Path: "/a", Query: "b", Asks: true, Key: "the key", Client: netip.MustParseAddrPort("192.0.2.1:99"), Fields: field.Lines{{Name: "X-User", Value: "ann"}, {Name: "Cookie", Value: "sid=s1"}}}
	for by, want := range map[string]string{
		"": "the key", "url": "the key", "path": "/a", "client": "192.0.2.1", "header:X-User": "ann", "cookie:sid": "s1",
		"header:X-None": "/a?b", "cookie:none": "/a?b",
	} {
		if p := newPool(t, Options{To: hosts(2), Balance: "hash", HashBy: by}, nil); p.hashOf(&q) != fnv1a(want) {
			t.Errorf("hash_by %q: not %q", by, want)
		}
	}
	p := newPool(t, Options{To: hosts(2), Balance: "hash"}, nil)
	if q.Key = ""; p.hashOf(&q) != fnv1a("/a?b") {
		t.Error("without a key it is not the URL")
	}
}

func TestWindow(t *testing.T) {
	w := window{cell: time.Second}
	for range 5 {
		w.add(500*time.Millisecond, 0)
	}
	w.add(9500*time.Millisecond, 1)
	for _, c := range []struct {
		at          time.Duration
		zeros, ones uint64
	}{{9999 * time.Millisecond, 5, 1}, {10 * time.Second, 0, 1}, {18 * time.Second, 0, 1}, {20 * time.Second, 0, 0}, {time.Hour, 0, 0}} {
		if zeros, ones := w.counts(c.at); zeros != c.zeros || ones != c.ones {
			t.Errorf("at %s: %d, %d; want %d, %d", c.at, zeros, ones, c.zeros, c.ones)
		}
	}
	w.add(time.Hour, 0)
	if zeros, _ := w.counts(time.Minute); zeros != 1 { // a clock that went back
		t.Errorf("%d", zeros)
	}
}

func TestPeak(t *testing.T) {
	var e ewma
	e.observe(0, 10*time.Millisecond)
	e.observe(time.Second, time.Second) // a peak counts at once
	if e.nanos != float64(time.Second) {
		t.Errorf("%v after a peak", time.Duration(e.nanos))
	}
	e.observe(11*time.Second, 10*time.Millisecond)
	if got := time.Duration(e.nanos); got < 300*time.Millisecond || got > 400*time.Millisecond {
		t.Errorf("%s ten seconds later, want about 1/e", got)
	}
	if e.value(time.Minute) > 0.01*float64(time.Second) {
		t.Error("an average that nobody asks for does not decay")
	}
}

// TestHealthBody: a server is good when its body says so.
func TestHealthBody(t *testing.T) {
	var sick atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if sick.Load() {
			io.WriteString(w, `{"status":"sick"}`)
			return
		}
		io.WriteString(w, `{"status":"ok"}`)
	}))
	defer srv.Close()
	p, err := New(Options{To: []string{srv.URL}, Health: Health{Path: "/healthz", Body: `"status": ?"ok"`}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.probe(p.servers[0]); err != nil {
		t.Error(err)
	}
	sick.Store(true)
	if err := p.probe(p.servers[0]); err == nil {
		t.Error("a sick server counts as good")
	}
}
