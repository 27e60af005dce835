package accesslog

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/observe/meter"
)

// The whole way of a line to a file that costs nothing, as the hot path sees it.
func BenchmarkWrite(b *testing.B) {
	for _, name := range []string{"combined", "common", "json"} {
		b.Run(name, func(b *testing.B) {
			var dropped meter.Counter
			l, err := Open(Options{Format: name, File: os.DevNull}, &dropped, nil)
			if err != nil {
				b.Fatal(err)
			}
			var next atomic.Uint32
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				r := example
				r.Shard = next.Add(1)
				r.UserAgent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"
				r.Time = time.Now()
				for i := 0; pb.Next(); i++ {
					l.Write(&r)
					if i%256 == 0 {
						runtime.Gosched() // as a server does all the time: the writer must get its turn
					}
				}
			})
			b.StopTimer()
			l.Close()
			b.ReportMetric(float64(dropped.Load())/float64(b.N), "dropped/op")
		})
	}
}

// A line that is written, never dropped: what a request pays for it.
func BenchmarkWriteRoom(b *testing.B) {
	for name, f := range map[string]format{"combined": combined, "json": jsonLines} {
		b.Run(name, func(b *testing.B) {
			l := &Log{format: f, dropped: new(meter.Counter), some: make(chan struct{}, 1), full: make(chan struct{}, 1)}
			for i := range l.shard {
				l.shard[i].buf = make([]byte, 0, shardBytes)
			}
			r := example
			r.UserAgent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"
			shard := &l.shard[r.Shard&shardMask]
			b.ReportAllocs()
			for b.Loop() {
				l.Write(&r)
				if len(shard.buf) > shardBytes/2 {
					shard.buf = shard.buf[:0] // as the writer does
				}
			}
			if l.dropped.Load() > 0 {
				b.Error("lines were dropped")
			}
		})
	}
}

// A line alone.
func BenchmarkAppendLine(b *testing.B) {
	r := example
	r.UserAgent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"
	for name, f := range map[string]format{"combined": combined, "json": jsonLines} {
		b.Run(name, func(b *testing.B) {
			var c clock
			buf := make([]byte, 0, maxLine)
			b.ReportAllocs()
			for b.Loop() {
				buf = appendLine(buf[:0], f, nil, &r, &c)
			}
			b.SetBytes(int64(len(buf)))
		})
	}
}
