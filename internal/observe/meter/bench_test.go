package meter

import (
	"sync/atomic"
	"testing"
	"time"
)

// each hands every goroutine of a parallel benchmark its own shard number.
func each(b *testing.B, body func(shard uint32)) {
	var next atomic.Uint32
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		shard := next.Add(1)
		for pb.Next() {
			body(shard)
		}
	})
}

func BenchmarkCounter(b *testing.B) {
	var c Counter
	each(b, func(shard uint32) { c.Add(shard, 1) })
}

func BenchmarkHistogram(b *testing.B) {
	var h Histogram
	each(b, func(shard uint32) { h.Observe(shard, 12345) })
}

func BenchmarkTraffic(b *testing.B) {
	var t Traffic
	each(b, func(shard uint32) { t.Observe(shard, 200, 501, 20*time.Microsecond) })
}

func BenchmarkTrafficOneShard(b *testing.B) {
	var t Traffic
	each(b, func(uint32) { t.Observe(0, 200, 501, 20*time.Microsecond) })
}

func BenchmarkSnapshot(b *testing.B) {
	var h Histogram
	h.Observe(1, time.Millisecond)
	b.ReportAllocs()
	for b.Loop() {
		s := h.Snapshot()
		if s.Quantile(0.99) == 0 {
			b.Fatal("empty")
		}
	}
}
