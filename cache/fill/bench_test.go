package fill

import (
	"context"
	"io"
	"strconv"
	"sync"
	"testing"
)

// BenchmarkJoin is a fill's bookkeeping from its beginning to its end, on all
// cores at once: what one mutex for all keys costs.
func BenchmarkJoin(b *testing.B) {
	var g Group[int]
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		keys := make([]string, 1000)
		for i := range keys {
			keys[i] = "http://example.org/" + strconv.Itoa(i)
		}
		for i := 0; pb.Next(); i++ {
			f, leader := g.Join(keys[i%len(keys)])
			if leader {
				f.Settle(1)
				f.Finish()
			}
		}
	})
}

// BenchmarkWait is 100 followers that wait for one outcome.
func BenchmarkWait(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		var g Group[int]
		f, _ := g.Join("a")
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				f, _ := g.Join("a")
				f.Enter()
				defer f.Leave()
				if _, err := f.Wait(context.Background()); err != nil {
					b.Error(err)
				}
			})
		}
		f.Settle(1)
		wg.Wait()
		f.Finish()
	}
}

// BenchmarkKnown is Wait for an outcome that is there.
func BenchmarkKnown(b *testing.B) {
	var g Group[int]
	f, _ := g.Join("a")
	f.Settle(1)
	b.ReportAllocs()
	for b.Loop() {
		f.Wait(b.Context())
	}
	f.Finish()
}

// BenchmarkFollow is 100 followers that stream a body of 1 MiB while it grows.
func BenchmarkFollow(b *testing.B) {
	p := text(32 << 10)
	b.SetBytes(100 << 20)
	b.ReportAllocs()
	for b.Loop() {
		body := NewBody(BodyOptions{Expected: -1, Memory: 2 << 20})
		var wg sync.WaitGroup
		for range 100 {
			r := body.Reader(b.Context(), 0)
			wg.Go(func() {
				defer r.Close()
				if n, err := r.WriteTo(io.Discard); n != 1<<20 || err != nil {
					b.Error(n, err)
				}
			})
		}
		for range 32 {
			body.Write(p)
		}
		body.Close(nil)
		wg.Wait()
	}
}

// BenchmarkSmall is the body of a small answer, of known and unknown length.
func BenchmarkSmall(b *testing.B) {
	p := text(40)
	for _, expected := range []int64{40, -1} {
		b.Run(strconv.FormatInt(expected, 10), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				body := NewBody(BodyOptions{Expected: expected, Memory: 1 << 20})
				body.Write(p)
				body.Close(nil)
				r := body.Reader(b.Context(), 0)
				r.WriteTo(io.Discard)
				r.Close()
				body.Bytes()
			}
		})
	}
}
