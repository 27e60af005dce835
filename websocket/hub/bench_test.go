package hub

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"millrace/store/bus"
)

// million is how many subscribers the benchmarks have, without sockets.
const million = 1_000_000

// quietBus answers at once and keeps nothing: what is measured is the hub's.
type quietBus struct{ bus.Bus }

func (quietBus) Start(bus.Listener) error { return nil }
func (quietBus) Listen(string) error      { return nil }
func (quietBus) Ignore(string)            {}
func (quietBus) Close() error             { return nil }

func (quietBus) History(_ string, _ *bus.Position, _ int, done func(bus.History, error)) {
	done(bus.History{}, nil)
}

// seat8 is a subscriber that costs next to nothing, as large as it needs to be
// to show that it was served.
type seat8 struct{ served uint64 }

func (s *seat8) Deliver(*Publication) { s.served++ }

// crowd is a hub with a million subscribers in so many channels.
type crowd struct {
	hub   *Hub
	run   *runners
	names []string
	seats []seat8
	subs  []*Subscription

	joined time.Duration
	heap   uint64 // without names, seats and subs
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func newCrowd(b *testing.B, channels int) *crowd {
	b.Helper()
	const shards = 3 // two loops, and the one for goroutines
	c := &crowd{run: newRunners(shards), seats: make([]seat8, million), subs: make([]*Subscription, million)}
	for i := range channels {
		c.names = append(c.names, fmt.Sprint("channel-", i))
	}
	var err error
	if c.hub, err = New(Options{}, quietBus{}, shards, c.run.post); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.hub.Close() })
	before := heap()
	began := time.Now()
	answered := 0
	done := func(_ Answer, err error) {
		if answered++; err != nil {
			b.Error(err)
		}
	}
	for i := range c.subs {
		c.subs[i], err = c.hub.Subscribe(Request{
			// Both loops have subscribers of every channel; the last shard has none.
			Shard: i / channels % 2, Subscriber: &c.seats[i], Channel: c.names[i%channels], Done: done,
		})
		if err != nil {
			b.Fatal(err)
		}
		if i%1024 == 0 {
			c.run.drain()
		}
	}
	for answered < million { // the last ones' Listen
		c.run.drain()
		runtime.Gosched()
	}
	c.joined = time.Since(began)
	c.heap = heap() - before
	return c
}

// BenchmarkMillion publishes to one channel after the other, and delivers. An
// operation is one publication. Beside ns/delivery it reports what a
// subscription costs, with its share of its channel: bytes of heap, and ns to
// subscribe.
func BenchmarkMillion(b *testing.B) {
	for _, channels := range []int{1, 1000, 100_000, million} {
		b.Run(fmt.Sprint("channels=", channels), func(b *testing.B) {
			c := newCrowd(b, channels)
			data := make([]byte, 100)
			n := 0
			b.ReportAllocs()
			b.ResetTimer()
			for b.Loop() {
				c.hub.Deliver(bus.Message{Channel: c.names[n%channels], Offset: uint64(n/channels + 1), Data: data})
				c.run.drain()
				n++
			}
			b.StopTimer()
			delivered := float64(n) * million / float64(channels)
			if got := c.hub.o.Meters.Delivered.Load(); got != uint64(delivered) {
				b.Fatalf("%d deliveries, want %.0f", got, delivered)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/delivered, "ns/delivery")
			b.ReportMetric(float64(c.heap)/million, "B/subscription")
			b.ReportMetric(float64(c.joined.Nanoseconds())/million, "ns/subscribe")
			runtime.KeepAlive(c)
		})
	}
}

// BenchmarkPublish is a small channel, from the publisher to the last
// subscriber, the bus in memory included.
func BenchmarkPublish(b *testing.B) {
	for _, subscribers := range []int{1, 10, 1000} {
		b.Run(fmt.Sprint("subscribers=", subscribers), func(b *testing.B) {
			run := newRunners(1)
			h, err := New(Options{}, bus.NewMemory(bus.Keep{}), 1, run.post)
			if err != nil {
				b.Fatal(err)
			}
			defer h.Close()
			answered := 0
			for range subscribers {
				if _, err := h.Subscribe(Request{
					Subscriber: &seat8{}, Channel: "x", Done: func(Answer, error) { answered++ },
				}); err != nil {
					b.Fatal(err)
				}
			}
			for answered < subscribers {
				run.drain()
				runtime.Gosched()
			}
			data := make([]byte, 100)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := h.Publish(context.Background(), bus.Message{Channel: "x", Data: data}); err != nil {
					b.Fatal(err)
				}
				run.drain()
			}
		})
	}
}

// BenchmarkComeAndGo subscribes to a channel with a million subscribers, and
// leaves it.
func BenchmarkComeAndGo(b *testing.B) {
	c := newCrowd(b, 1)
	request := Request{Subscriber: &seat8{}, Channel: c.names[0], Done: func(Answer, error) {}}
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		s, err := c.hub.Subscribe(request)
		if err != nil {
			b.Fatal(err)
		}
		c.hub.Unsubscribe(s)
	}
}
