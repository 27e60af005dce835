package bus_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"millrace/store/bus"
)

// deaf does nothing with what it is told.
type deaf struct{}

func (deaf) Deliver(bus.Message)                 {}
func (deaf) Placed(string, string, uint64)       {}
func (deaf) Reset(string)                        {}
func (deaf) State(error)                         {}
func (deaf) Members(channel string) []bus.Member { return nil }

// BenchmarkMemoryPublish publishes 100 bytes, by all cores, to one channel and
// to a thousand.
func BenchmarkMemoryPublish(b *testing.B) {
	data := make([]byte, 100)
	for _, channels := range []int{1, 1000} {
		for _, keep := range []bus.Keep{{}, {Messages: 100, Age: time.Minute, Bytes: 64 << 20}} {
			b.Run(fmt.Sprintf("channels=%d/kept=%d", channels, keep.Messages), func(b *testing.B) {
				m := bus.NewMemory(keep)
				m.Start(deaf{})
				defer m.Close()
				names := make([]string, channels)
				for i := range names {
					names[i] = fmt.Sprint("channel", i)
					m.Listen(names[i])
				}
				var next atomic.Uint64
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for i := next.Add(7919); pb.Next(); i++ {
						m.Publish(context.Background(), bus.Message{Channel: names[i%uint64(channels)], Data: data})
					}
				})
			})
		}
	}
}

// BenchmarkMemoryListen says what a channel costs that is listened to and does
// nothing.
func BenchmarkMemoryListen(b *testing.B) {
	m := bus.NewMemory(bus.Keep{Messages: 100})
	m.Start(deaf{})
	defer m.Close()
	heap := func() uint64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	const n = 200_000
	for b.Loop() {
		before := heap()
		for i := range n {
			m.Listen(fmt.Sprint("channel", i))
		}
		b.ReportMetric(float64(heap()-before)/n, "bytes/channel")
		for i := range n {
			m.Ignore(fmt.Sprint("channel", i))
		}
	}
}
