package cache

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/cache/purge"
	"millrace/cache/rules"
	"millrace/internal/access/signin"
	"millrace/internal/wire/message"
	"millrace/store"
	"millrace/store/memory"
)

// leases are those of machines that share a store, as Redis keeps them.
type leases struct {
	mu   sync.Mutex
	down bool
	all  map[string]heldLease
}

type heldLease struct {
	holder, note string
	until        time.Time
}

func (l *leases) Hold(_ context.Context, key, name string, d time.Duration) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return "", errors.New("down")
	}
	if h, ok := l.all[key]; ok && time.Now().Before(h.until) && h.note == "" && h.holder != name {
		return h.holder, nil
	}
	l.all[key] = heldLease{holder: name, until: time.Now().Add(d)}
	return name, nil
}

// take gives a lease to somebody else.
func (l *leases) take(key, holder string, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all[key] = heldLease{holder: holder, until: time.Now().Add(d)}
}

func (l *leases) Holder(_ context.Context, key string) (holder, note string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h, ok := l.all[key]; ok && time.Now().Before(h.until) {
		return h.holder, h.note, nil
	}
	return "", "", nil
}

func (l *leases) Release(_ context.Context, key, name, note string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch h := l.all[key]; {
	case h.holder != name || h.note != "":
	case note == "":
		delete(l.all, key)
	default:
		l.all[key] = heldLease{name, note, time.Now().Add(2 * time.Second)}
	}
	return nil
}

// group makes machines that share a store and ask up. Close them within the bubble.
func group(t *testing.T, n int, l *leases, up *origin) (machines []*Handler, end func()) {
	t.Helper()
	common := memory.New(1 << 20)
	var order sync.Mutex
	all := make(chan struct{}) // closed when all machines are there
	publish := func(_ context.Context, m []byte) error {
		<-all
		order.Lock()
		defer order.Unlock()
		for _, h := range machines {
			h.Message(m, false)
		}
		return nil
	}
	for range n {
		o := To("http://127.0.0.1:1")
		o.Shared.URL, o.Coalesce, o.Preset = "redis://127.0.0.1:1", CoalesceShared, rules.PresetRFC
		h, err := New(o, Deps{Transport: up, Shared: bounded{common}, Leases: l, Publish: publish, ErrorLog: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		machines = append(machines, h)
	}
	close(all)
	synctest.Wait() // until all have greeted
	return machines, func() {
		for _, h := range machines {
			h.Close()
		}
		common.Close()
	}
}

// each asks all machines for a URL, some clients each, and returns how long the slowest
// waited, and the bodies.
func each(machines []*Handler, clients int, url string, pairs ...string) (slowest time.Duration, bodies map[string]int) {
	began := time.Now()
	var mu sync.Mutex
	bodies = map[string]int{}
	var all sync.WaitGroup
	for _, h := range machines {
		for range clients {
			all.Go(func() {
				w := ask(h, "GET", url, pairs...)
				mu.Lock()
				defer mu.Unlock()
				bodies[w.Body.String()]++
				slowest = max(slowest, time.Since(began))
			})
		}
	}
	all.Wait()
	return slowest, bodies
}

// TestCoalesceShared: three machines ask the upstream once, and nobody waits much longer
// than a fetch takes, whatever becomes of the machine that asks.
func TestCoalesceShared(t *testing.T) {
	const took = 300 * time.Millisecond
	answer := func(pairs ...string) func(n int, _ *http.Request) *http.Response {
		return func(n int, _ *http.Request) *http.Response {
			time.Sleep(took)
			return say(200, strconv.Itoa(n), pairs...)
		}
	}
	kept := answer("Cache-Control", "max-age=60", "Etag", `"x"`)
	t.Run("once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			up := &origin{answer: kept}
			machines, end := group(t, 3, &leases{all: map[string]heldLease{}}, up)
			defer end()
			slowest, bodies := each(machines, 5, "http://a.example/x")
			if n := up.calls.Load(); n != 1 || len(bodies) != 1 || slowest > took+longestLook {
				t.Errorf("the upstream was asked %d times, the slowest client waited %v, bodies %v", n, slowest, bodies)
			}
			// What became stale is fetched once as well.
			time.Sleep(2 * time.Minute)
			up.calls.Store(0)
			_, bodies = each(machines, 5, "http://a.example/x")
			time.Sleep(time.Second) // where it is refreshed in the background
			if up.calls.Load() != 1 {
				t.Errorf("what is stale was fetched %d times: %v", up.calls.Load(), bodies)
			}
		})
	})
	t.Run("long answers", func(t *testing.T) { // longer than a lease
		synctest.Test(t, func(t *testing.T) {
			up := &origin{answer: func(n int, r *http.Request) *http.Response {
				time.Sleep(7 * time.Second)
				return kept(n, r)
			}}
			machines, end := group(t, 3, &leases{all: map[string]heldLease{}}, up)
			defer end()
			if slowest, _ := each(machines, 5, "http://a.example/x"); up.calls.Load() != 1 || slowest > 7*time.Second+took+longestLook {
				t.Errorf("the upstream was asked %d times, the slowest client waited %v", up.calls.Load(), slowest)
			}
		})
	})
	t.Run("for one client", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			up := &origin{answer: answer("Cache-Control", "private")}
			machines, end := group(t, 3, &leases{all: map[string]heldLease{}}, up)
			defer end()
			slowest, bodies := each(machines, 2, "http://a.example/x")
			if len(bodies) != 6 || slowest > 3*took+longestLook { // for the other machine's, for this one's, and their own
				t.Errorf("the slowest client waited %v, bodies %v", slowest, bodies)
			}
			if slowest, _ = each(machines, 2, "http://a.example/x"); slowest > took {
				t.Errorf("the second time the slowest client waited %v", slowest)
			}
		})
	})
	for name, c := range map[string]struct{ answer, demand string }{
		"validated at each use":  {"no-cache, max-age=60", ""},
		"without a lifetime":     {"max-age=0", ""},
		"a client reloads":       {"max-age=60", "no-cache"},
		"a client wants it anew": {"max-age=60", "max-age=0"},
	} {
		t.Run(name, func(t *testing.T) { // another machine's answer would not do
			synctest.Test(t, func(t *testing.T) {
				up := &origin{answer: func(n int, r *http.Request) *http.Response {
					resp := answer("Cache-Control", c.answer, "Etag", `"x"`)(n, r)
					if r.Header.Get("If-None-Match") != "" {
						resp.StatusCode = http.StatusNotModified
					}
					return resp
				}}
				machines, end := group(t, 3, &leases{all: map[string]heldLease{}}, up)
				defer end()
				each(machines, 1, "http://a.example/x") // so that they have it
				if slowest, _ := each(machines, 1, "http://a.example/x", "Cache-Control", c.demand); slowest > took {
					t.Errorf("the slowest client waited %v, the upstream takes %v", slowest, took)
				}
			})
		})
	}
	t.Run("the upstream is down", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			up := &origin{answer: func(int, *http.Request) *http.Response { time.Sleep(took); return nil }}
			machines, end := group(t, 3, &leases{all: map[string]heldLease{}}, up)
			defer end()
			if slowest, _ := each(machines, 2, "http://a.example/x"); slowest > 2*took+longestLook || up.calls.Load() > 3 {
				t.Errorf("the slowest client waited %v, the upstream was asked %d times", slowest, up.calls.Load())
			}
		})
	})
	t.Run("the holder dies", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			up := &origin{answer: kept}
			l := &leases{all: map[string]heldLease{}}
			machines, end := group(t, 3, l, up)
			defer end()
			each(machines, 1, "http://a.example/x") // so that there is a lease
			time.Sleep(2 * time.Minute)
			up.calls.Store(0)
			for key := range l.all {
				t.Errorf("%q is still held", key)
			}
			for _, h := range machines {
				l.take(h.tiers.Name("http://a.example/x"), "who has died", 2*time.Second)
			}
			if slowest, _ := each(machines, 3, "http://a.example/x"); up.calls.Load() != 1 || slowest > 2*time.Second+took+2*longestLook {
				t.Errorf("the upstream was asked %d times, the slowest client waited %v", up.calls.Load(), slowest)
			}
		})
	})
	t.Run("the holder hangs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			up := &origin{answer: kept}
			l := &leases{all: map[string]heldLease{}}
			machines, end := group(t, 2, l, up)
			defer end()
			for i := range 30 { // so that it is known how long answers take
				ask(machines[0], "GET", "http://a.example/"+strconv.Itoa(i))
			}
			up.calls.Store(0)
			l.take(machines[0].tiers.Name("http://a.example/x"), "who hangs", time.Hour)
			slowest, _ := each(machines[:1], 1, "http://a.example/x")
			if up.calls.Load() != 1 || slowest > 4*took {
				t.Errorf("the upstream was asked %d times, the slowest client waited %v", up.calls.Load(), slowest)
			}
		})
	})
	for name, length := range map[string]int64{"too large for the store": largeBody, "of unknown length, too large for the store": -1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := &origin{answer: func(int, *http.Request) *http.Response {
					resp := say(200, "", "Cache-Control", "max-age=60")
					resp.Header.Del("Content-Length")
					resp.ContentLength, resp.Body = length, io.NopCloser(io.LimitReader(dripping{}, largeBody))
					return resp
				}}
				machines, end := group(t, 3, &leases{all: map[string]heldLease{}}, up)
				defer end()
				if slowest, _ := each(machines, 2, "http://a.example/x"); slowest > largeTime+3*time.Second { // of them two until it is known
					t.Errorf("the slowest client waited %v for an answer that takes %v", slowest, largeTime)
				}
			})
		})
	}
	t.Run("the store is down", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			up := &origin{answer: kept}
			machines, end := group(t, 3, &leases{down: true}, up)
			defer end()
			if slowest, _ := each(machines, 5, "http://a.example/x"); up.calls.Load() != 3 || slowest > took {
				t.Errorf("the upstream was asked %d times, the slowest client waited %v", up.calls.Load(), slowest)
			}
		})
	})
}

// A large answer takes a while, and the store of the group does not take it.
const (
	largeBody = 2 << 20
	largePart = 128 << 10
	largeTime = largeBody / largePart * time.Second
)

// dripping is a body of which a part comes each second.
type dripping struct{}

func (dripping) Read(p []byte) (int, error) {
	n := min(len(p), largePart)
	time.Sleep(time.Duration(n) * time.Second / largePart)
	return n, nil
}

// bounded is a store that takes small bodies alone.
type bounded struct{ store.Store }

func (bounded) Largest() int64 { return 256 << 10 }

// longestLook is the longest time between two looks at another machine's lease.
const longestLook = 50 * time.Millisecond

// TestCoalesceChecked: coalesce without a shared store is a mistake.
func TestCoalesceChecked(t *testing.T) {
	for coalesce, want := range map[string]string{"shared": "name one with shared", "all": "machine or shared", "machine": "", "": ""} {
		o := To("http://127.0.0.1:1")
		o.Coalesce = coalesce
		switch err := o.Check()["coalesce"]; {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v", coalesce, err)
		}
	}
}

// TestWhyOfUntrusted: what is stored and was not trusted when it was looked up is stale to
// Cache-Status, also if it is trusted by the time of the answer.
func TestWhyOfUntrusted(t *testing.T) {
	h := newCache(t, Options{}, &origin{answer: func(int, *http.Request) *http.Response {
		return say(200, "x", "Cache-Control", "max-age=60")
	}})
	ask(h, "GET", "http://a.example/x")
	x := h.newExchange(&message.Request{Method: "GET", Host: "a.example", Path: "/x"}, signin.ProofOf(t.Context()))
	x.judge()
	o, state := h.lookup(&x)
	if o == nil || state != purge.Valid {
		t.Fatalf("stored: %v, state %v", o, state)
	}
	if why := x.why(o); why != "request" {
		t.Errorf("what is fresh: %s", why)
	}
	if x.distrusted = true; x.why(o) != "stale" {
		t.Errorf("what was not trusted: %s", x.why(o))
	}
}
