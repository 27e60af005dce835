package admit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
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

func (m *machines) together(ctx context.Context, uses []Use) ([]time.Duration, error) {
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
	ahead := make([]time.Duration, len(uses))
	for i, u := range uses {
		due := m.due[u.Name]
		if now := time.Now(); due.Before(now) {
			due = now
		}
		m.due[u.Name] = due.Add(u.Cost)
		ahead[i] = time.Until(m.due[u.Name])
	}
	return ahead, nil
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
		if g.Ask(&Request{Client: netip.MustParseAddr(client), Now: time.Now()}).Passes() {
			n++
		}
	}
	if !time.Now().Equal(began) {
		t.Error("a request waited")
	}
	return n
}

// Two machines let a client have the rate of one, but for what they let pass until
// they hear of each other.
func TestSharedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machines{due: map[string]time.Time{}}
		o := Rate{Rate: "10/s", Burst: 20}
		a, b := m.machine(t, o), m.machine(t, o)
		const client, other = "192.0.2.1", "192.0.2.2"
		if n := let(t, a, client, 15); n != 15 {
			t.Errorf("%d of the burst pass", n)
		}
		time.Sleep(exchangeEvery + time.Millisecond)
		// The other machine hears of them with its own first request.
		if n := let(t, b, client, 1); n != 1 {
			t.Error("the first one elsewhere does not pass")
		}
		time.Sleep(exchangeEvery + time.Millisecond)
		if n := let(t, b, client, 100); n < 4 || n > 7 {
			t.Errorf("%d of the rest of the burst pass elsewhere, want about 6", n)
		}
		if n := let(t, b, other, 20); n != 20 {
			t.Errorf("another client has %d", n)
		}
		// For a minute, both are asked as often as can be: 600, and the burst.
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
		if n := let(t, a, "192.0.2.1", 20); n != 10 {
			t.Errorf("%d pass while the store is slow, want 10", n)
		}
		time.Sleep(10 * time.Second)
		m.mu.Lock()
		m.slow = 0
		m.mu.Unlock()
	})
}

// What is remembered between two exchanges is bounded, and names do not show values.
func TestSharedBounds(t *testing.T) {
	table := NewTable()
	l, err := table.Limit(Rate{Rate: "10/s", Header: "X-Key"}, "here")
	if err != nil {
		t.Fatal(err)
	}
	s := table.Share(func(context.Context, []Use) ([]time.Duration, error) { return nil, errors.New("down") })
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
