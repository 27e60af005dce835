package upstream

import (
	"bufio"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// workers has addr answered by n workers, each of which serves a connection until
// that ends, and takes work for an answer.
func (w *wires) workers(addr string, n int, work func(r *http.Request) time.Duration) {
	free := make(chan struct{}, n)
	w.host(addr, func(c net.Conn) {
		defer c.Close()
		select {
		case free <- struct{}{}:
		case <-w.done:
			return
		}
		defer func() { <-free }()
		reader := bufio.NewReader(c)
		for {
			r, err := http.ReadRequest(reader)
			if err != nil {
				return
			}
			time.Sleep(work(r))
			if !answerOK(r, c) {
				return
			}
		}
	})
}

func always(d time.Duration) func(*http.Request) time.Duration {
	return func(*http.Request) time.Duration { return d }
}

// TestFewWorkers: clients that ask again and again are all served, whatever an answer
// takes, and wait no longer than it takes to serve each of the others two turns.
func TestFewWorkers(t *testing.T) {
	for _, c := range []struct {
		workers, clients int
		work             time.Duration
	}{{1, 4, 80 * time.Millisecond}, {1, 4, time.Millisecond}, {1, 20, 10 * time.Millisecond}, {3, 7, 30 * time.Millisecond}, {2, 3, 500 * time.Millisecond}} {
		bubble(t, func(t *testing.T, w *wires) {
			w.workers("a:80", c.workers, func(*http.Request) time.Duration { return c.work*9/10 + rand.N(c.work/5) })
			p := newPool(t, Options{To: hosts(1)}, w)
			got := make([]int, c.clients)
			longest := make([]time.Duration, c.clients)
			var all sync.WaitGroup
			for i := range c.clients {
				all.Go(func() {
					for began := time.Now(); time.Since(began) < time.Minute; got[i]++ {
						asked := time.Now()
						if _, _, err := get(t, p); err != nil {
							t.Error(err)
							return
						}
						longest[i] = max(longest[i], time.Since(asked))
					}
				})
			}
			all.Wait()
			if least, most := slices.Min(got), slices.Max(got); least*10 < most*7 {
				t.Errorf("%+v: the clients had %v answers", c, got)
			}
			turn := 2*c.work + 2*patience
			if most := slices.Max(longest); most > time.Duration(c.clients/c.workers+1)*turn {
				t.Errorf("%+v: one waited for %v", c, most)
			}
		})
	}
}

// TestIdleGivesWay: a connection that nobody uses any more does not hold the only
// worker while another one waits.
func TestIdleGivesWay(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		w.workers("a:80", 1, always(80*time.Millisecond))
		p := newPool(t, Options{To: hosts(1)}, w)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if _, _, err := get(t, p); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Millisecond)
		}
		began := time.Now()
		all.Wait()
		if took := time.Since(began); took > 500*time.Millisecond {
			t.Errorf("three answers of 80 ms took %v", took)
		}
	})
}

// TestProbeOfOneWorker: probes reach a server whose only worker is always in use.
func TestProbeOfOneWorker(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		w.workers("a:80", 1, always(80*time.Millisecond))
		p := newPool(t, Options{To: hosts(1), Health: Health{Path: "/health"}}, w)
		for began := time.Now(); time.Since(began) < time.Minute; {
			if _, _, err := get(t, p); err != nil {
				t.Fatal(err)
			}
		}
		if !p.Servers()[0].Healthy {
			t.Error("its probes have failed")
		}
	})
}

// TestUpgradeOfOneWorker: so do requests for another protocol.
func TestUpgradeOfOneWorker(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		w.workers("a:80", 1, always(80*time.Millisecond))
		p := newPool(t, Options{To: hosts(1)}, w)
		var all sync.WaitGroup
		all.Go(func() {
			time.Sleep(time.Second)
			r := newRequest(t, "GET", "/", nil)
			r.Header.Set("Connection", "upgrade")
			r.Header.Set("Upgrade", "websocket")
			asked := time.Now()
			resp, _, err := p.UpgradeRequest(r)
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close() // it was refused
			if took := time.Since(asked); took > time.Second {
				t.Errorf("it took %v", took)
			}
		})
		for began := time.Now(); time.Since(began) < 10*time.Second; {
			if _, _, err := get(t, p); err != nil {
				t.Fatal(err)
			}
		}
		all.Wait()
	})
}

// TestBurstsKeepConnections: where every connection is served, none is closed for
// another one, however long answers take.
func TestBurstsKeepConnections(t *testing.T) {
	for _, work := range []time.Duration{time.Millisecond, 100 * time.Millisecond, 2 * time.Second} {
		bubble(t, func(t *testing.T, w *wires) {
			w.workers("a:80", 1000, always(work))
			p := newPool(t, Options{To: hosts(1)}, w)
			for range 5 {
				var all sync.WaitGroup
				for range 200 {
					all.Go(func() {
						for range 10 {
							if _, _, err := get(t, p); err != nil {
								t.Error(err)
							}
						}
					})
				}
				all.Wait()
			}
			if n := w.dials("a:80"); n != 200 {
				t.Errorf("answers of %v: %d connections for 200 clients", work, n)
			}
		})
	}
}

// TestSlowPagesCostFewConnections: a server that takes all connections, but is slow for
// some pages, is not connected to over and over.
func TestSlowPagesCostFewConnections(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		w.workers("a:80", 1000, func(r *http.Request) time.Duration {
			switch {
			case r.URL.Path == "/poll":
				return 25 * time.Second
			case rand.IntN(10) == 0:
				return time.Millisecond
			}
			return time.Duration(300+rand.IntN(400)) * time.Millisecond
		})
		p := newPool(t, Options{To: hosts(1)}, w)
		var all sync.WaitGroup
		var asked, polls int
		var mu sync.Mutex
		began := time.Now()
		for i := range 100 {
			all.Go(func() {
				for time.Since(began) < 2*time.Minute {
					path := "/"
					if i < 5 {
						path = "/poll"
					}
					if _, _, err := do(p, newRequest(t, "GET", path, nil)); err != nil {
						t.Error(err)
					}
					mu.Lock()
					if asked++; i < 5 {
						polls++
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if n := w.dials("a:80"); n > 100+asked/20 {
			t.Errorf("%d connections for %d requests", n, asked)
		}
		t.Logf("%d connections for %d requests, %d of them long", w.dials("a:80"), asked, polls)
	})
}

// TestNewcomersLeave: whatever becomes of connections, none is waited for in the end.
func TestNewcomersLeave(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		w.host("a:80", func(c net.Conn) {
			defer c.Close()
			reader := bufio.NewReader(c)
			for {
				r, err := http.ReadRequest(reader)
				if err != nil || rand.IntN(4) == 0 {
					return
				}
				time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
				if rand.IntN(4) == 0 || !answerOK(r, c) {
					return
				}
			}
		})
		p := newPool(t, Options{To: hosts(1), Breaker: Breaker{Off: true}}, w)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				for range 50 {
					if _, _, err := get(t, p); err != nil && !errors.Is(err, ErrUnreachable) && !errors.Is(err, ErrProtocol) && !errors.Is(err, io.EOF) {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		synctest.Wait()
		if c := p.servers[0].client; c.newcomers.first != nil || c.newcomers.last != nil {
			t.Error("connections wait for an answer after all")
		}
		idle(t, p)
	})
}
