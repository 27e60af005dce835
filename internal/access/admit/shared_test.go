package admit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// machines share a store that is as the one in Redis: it can be down, or slow.
type machines struct {
	mu   sync.Mutex
	due  map[string]time.Time
	down bool
	slow time.Duration
}

func (m *machines) together(ctx context.Context, uses []Use) ([]Status, error) {
	m.mu.Lock()
	slow, down := m.slow, m.down
	m.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if down {
		return nil, errors.New("down")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	stand := make([]Status, len(uses))
	for i, u := range uses {
		due := m.due[u.Name]
		if now := time.Now(); due.Before(now) {
			due = now
		}
		due = due.Add(u.Cost)
		for range u.Want {
			if time.Until(due) > u.Ahead {
				break
			}
			due = due.Add(u.Interval)
			stand[i].Granted++
		}
		m.due[u.Name] = due
		stand[i].Ahead = max(0, time.Until(due))
	}
	return stand, nil
}

// machine is one that shares a limit.
func (m *machines) machine(t *testing.T, o Rate) *Gate {
	t.Helper()
	table := NewTable()
	l, err := table.Limit(o, "here")
	if err != nil {
		t.Fatal(err)
	}
	s := table.Share(m.together)
	t.Cleanup(func() { s.Close() })
	l.Share(s, "everywhere")
	return New(Rules{Rates: []*Limit{l}})
}

// let asks a number of times and counts what passes; nothing may take time.
func let(t *testing.T, g *Gate, client string, times int) (n int) {
	t.Helper()
	began := time.Now()
	for range times {
		if g.Ask(&Request{Client: netip.MustParseAddr(client), Now: time.Now(), Waits: true}).Passes() {
			n++
		}
	}
	if !time.Now().Equal(began) {
		t.Error("a request waited")
	}
	return n
}

// A burst is the group's: however many machines a client asks at once, and however many
// requests at a time, it gets no more than one more from each. Whoever asks one machine
// alone gets all of it.
func TestSharedBurst(t *testing.T) {
	const client, burst = "192.0.2.1", 20
	for name, group := range map[string]struct{ machines, most int }{"one machine": {1, burst}, "three": {3, burst + 3}, "ten": {10, burst + 10}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &machines{due: map[string]time.Time{}, slow: time.Millisecond}
				var gates []*Gate
				for range group.machines {
					gates = append(gates, m.machine(t, Rate{Rate: "20/h", Burst: burst}))
				}
				var passed atomic.Int64
				var all sync.WaitGroup
				for _, g := range gates {
					for range burst {
						all.Go(func() {
							if g.Ask(&Request{Client: netip.MustParseAddr(client), Now: time.Now(), Waits: true}).Passes() {
								passed.Add(1)
							}
						})
					}
				}
				all.Wait()
				if n := int(passed.Load()); n < burst || n > group.most {
					t.Errorf("%d pass of a burst of %d, want at most %d", n, burst, group.most)
				}
				// What came too much is counted as well.
				time.Sleep(time.Second)
				for i, g := range gates {
					if n := let(t, g, client, 10); n > 0 {
						t.Errorf("%d more pass at machine %d", n, i)
					}
				}
			})
		})
	}
}

// An event loop does not wait: what has to be borrowed is decided elsewhere, and nothing is
// counted before, not by another limit either.
func TestSharedOnALoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machines{due: map[string]time.Time{}, slow: time.Millisecond}
		g := m.machine(t, Rate{Rate: "20/h"})
		own, err := g.rules.Rates[0].table.Limit(Rate{Rate: "3/h"}, "of this machine alone")
		if err != nil {
			t.Fatal(err)
		}
		g = New(Rules{Rates: []*Limit{own, g.rules.Rates[0]}})
		q := Request{Client: netip.MustParseAddr("192.0.2.1"), Now: time.Now()}
		if v := g.Ask(&q); !v.Passes() {
			t.Errorf("the first one: %+v", v)
		}
		for range 5 {
			if v := g.Ask(&q); !v.Later || v.Passes() || v.Limit != nil {
				t.Errorf("the second one: %+v", v)
			}
		}
		q.Waits = true
		for range 2 {
			if v := g.Ask(&q); !v.Passes() {
				t.Errorf("one that may wait: %+v", v)
			}
		}
		if v := g.Ask(&q); v.Limit != own {
			t.Errorf("the fourth one: %+v", v)
		}
	})
}

// Two machines let a client have the rate of one.
func TestSharedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machines{due: map[string]time.Time{}}
		o := Rate{Rate: "10/s", Burst: 20}
		a, b := m.machine(t, o), m.machine(t, o)
		const client, other = "192.0.2.1", "192.0.2.2"
		if n := let(t, a, client, 15); n != 15 {
			t.Errorf("%d of the burst pass", n)
		}
		if n := let(t, b, client, 100); n < 5 || n > 6 {
			t.Errorf("%d of the rest of the burst pass elsewhere, want 5", n)
		}
		if n := let(t, b, other, 20); n != 20 {
			t.Errorf("another client has %d", n)
		}
		// For a minute, both are asked as often as can be: 600, and what is left of the burst.
		sum := 0
		for range 600 {
			sum += let(t, a, client, 10) + let(t, b, client, 10)
			time.Sleep(100 * time.Millisecond)
		}
		if sum < 570 || sum > 640 {
			t.Errorf("%d of a minute pass, want about 600", sum)
		}
	})
}

// Without the others each machine has the whole rate, and no request waits.
func TestSharedDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machines{due: map[string]time.Time{}, down: true}
		a, b := m.machine(t, Rate{Rate: "10/s"}), m.machine(t, Rate{Rate: "10/s"})
		for range 3 {
			for _, g := range []*Gate{a, b} {
				if n := let(t, g, "192.0.2.1", 20); n != 10 {
					t.Errorf("%d pass, want 10", n)
				}
			}
			time.Sleep(time.Second)
		}
		m.mu.Lock()
		m.down, m.slow = false, time.Hour
		m.mu.Unlock()
		time.Sleep(10 * time.Second)
		if n := let(t, a, "192.0.2.1", 20); n != 10 {
			t.Errorf("%d pass while the store is slow, want 10", n)
		}
		time.Sleep(10 * time.Second)
		m.mu.Lock()
		m.slow = 0
		m.mu.Unlock()
	})
}

// A store that answers no more costs a request 250 ms, and the next ones nothing.
func TestSharedSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machines{due: map[string]time.Time{}, slow: time.Hour}
		g := m.machine(t, Rate{Rate: "10/h"})
		began, passed := time.Now(), 0
		for range 20 {
			if g.Ask(&Request{Client: netip.MustParseAddr("192.0.2.1"), Now: time.Now(), Waits: true}).Passes() {
				passed++
			}
		}
		if took := time.Since(began); passed != 10 || took != borrowPatience {
			t.Errorf("%d pass within %v, want 10 within %v", passed, took, borrowPatience)
		}
	})
}

// What is remembered between two exchanges is bounded, and names do not show values.
func TestSharedBounds(t *testing.T) {
	table := NewTable()
	l, err := table.Limit(Rate{Rate: "10/s", Header: "X-Key"}, "here")
	if err != nil {
		t.Fatal(err)
	}
	s := table.Share(func(context.Context, []Use) ([]Status, error) { return nil, errors.New("down") })
	s.Close() // no exchange from here on
	l.Share(s, "everywhere")
	g := New(Rules{Rates: []*Limit{l}})
	for i := range 3 * maxNews {
		q := Request{Client: netip.MustParseAddr("192.0.2.1"), Now: time.Now()}
		q.Values[0] = fmt.Appendf(nil, "key-%d", i)
		if !g.Ask(&q).Passes() {
			t.Fatal("a client is refused")
		}
	}
	sum := 0
	for i := range s.shards {
		sum += len(s.shards[i].news)
		for _, n := range s.shards[i].news {
			if len(n.use.Name) != 24 {
				t.Fatalf("the name is %q", n.use.Name)
			}
		}
	}
	if sum != maxNews {
		t.Errorf("%d clients are remembered, want %d", sum, maxNews)
	}
}
