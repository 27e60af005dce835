package meter

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// The buckets tile the range: each starts where the one before ends, and
// bucketOf agrees with bucketRange at both ends of each.
func TestBucketsTile(t *testing.T) {
	var end time.Duration
	for b := range buckets {
		low, width := bucketRange(b)
		if low != end {
			t.Fatalf("bucket %d starts at %v, the one before ends at %v", b, low, end)
		}
		end = low + width
		if got := bucketOf(low); got != b {
			t.Fatalf("bucketOf(%v) = %d, want %d", low, got, b)
		}
		if got := bucketOf(end - 1); got != b {
			t.Fatalf("bucketOf(%v) = %d, want %d", end-1, got, b)
		}
		if v := bucketValue(b); v < low || v >= end {
			t.Fatalf("bucket %d from %v to %v is represented by %v", b, low, end, v)
		}
	}
	if end != Longest {
		t.Fatalf("the buckets end at %v, want %v", end, Longest)
	}
}

func TestObserveClamps(t *testing.T) {
	var h Histogram
	h.Observe(0, -time.Second)
	h.Observe(math.MaxUint32, time.Hour)
	s := h.Snapshot()
	if s.Count() != 2 || s.Sum() != time.Hour {
		t.Errorf("count %d, sum %v; want 2, 1h", s.Count(), s.Sum())
	}
	if low, high := s.Quantile(0), s.Quantile(1); low > 128 || high > Longest || high < Longest*9/10 {
		t.Errorf("quantiles 0 and 1 are %v and %v", low, high)
	}
}

func TestEmptySnapshot(t *testing.T) {
	var s Snapshot
	if s.Count() != 0 || s.Mean() != 0 || s.Quantile(0.5) != 0 || s.CountWithin(time.Hour) != 0 {
		t.Errorf("an empty snapshot has count %d, mean %v, median %v", s.Count(), s.Mean(), s.Quantile(0.5))
	}
}

// withinError says whether got is as near to want as the histogram promises.
func withinError(got, want time.Duration) bool {
	off := math.Abs(float64(got - want))
	return off <= 64 || off <= float64(want)/17+1
}

// distributions a server may see, and worse; all below Longest.
var distributions = map[string]func(*rand.Rand) time.Duration{
	"constant":    func(*rand.Rand) time.Duration { return 1234567 },
	"uniform":     func(r *rand.Rand) time.Duration { return time.Duration(r.Int64N(int64(Longest))) },
	"log-uniform": func(r *rand.Rand) time.Duration { return time.Duration(math.Exp2(r.Float64() * topBits)) },
	"tiny":        func(r *rand.Rand) time.Duration { return time.Duration(r.IntN(2000)) },
	"exponential": func(r *rand.Rand) time.Duration {
		return min(time.Duration(r.ExpFloat64()*float64(time.Millisecond)), Longest-1)
	},
	"two humps": func(r *rand.Rand) time.Duration {
		if r.IntN(100) == 0 {
			return 2*time.Second + time.Duration(r.IntN(1e6))
		}
		return 20*time.Microsecond + time.Duration(r.IntN(1e4))
	},
}

func TestQuantilesAgainstSorted(t *testing.T) {
	for name, draw := range distributions {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20) {
				r := rand.New(rand.NewPCG(seed, 1))
				sorted := make([]time.Duration, 1+r.IntN(3000))
				var h Histogram
				var sum time.Duration
				for i := range sorted {
					sorted[i] = draw(r)
					sum += sorted[i]
					h.Observe(r.Uint32(), sorted[i])
				}
				slices.Sort(sorted)
				s := h.Snapshot()
				if s.Count() != uint64(len(sorted)) || s.Sum() != sum || s.Mean() != sum/time.Duration(len(sorted)) {
					t.Fatalf("seed %d: count %d, sum %v, mean %v of %d durations, sum %v",
						seed, s.Count(), s.Sum(), s.Mean(), len(sorted), sum)
				}
				for _, q := range []float64{-1, 0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1, 2} {
					rank := int(math.Ceil(min(max(q, 0), 1) * float64(len(sorted))))
					want := sorted[max(rank, 1)-1]
					if got := s.Quantile(q); !withinError(got, want) {
						t.Fatalf("seed %d: quantile %v of %d is %v, want %v", seed, q, len(sorted), got, want)
					}
				}
			}
		})
	}
}

// CountWithin is off by at most the bucket of the limit, never sinks, and is
// exact where a bucket begins.
func TestCountWithin(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	var h Histogram
	var all []time.Duration
	for range 5000 {
		d := distributions["log-uniform"](r)
		all = append(all, d)
		h.Observe(r.Uint32(), d)
	}
	s := h.Snapshot()
	exact := func(limit time.Duration) (n uint64) {
		for _, d := range all {
			if d < limit {
				n++
			}
		}
		return n
	}
	for b := range buckets {
		low, width := bucketRange(b)
		if got, want := s.CountWithin(low), exact(low); got != want {
			t.Fatalf("CountWithin(%v) = %d, want %d", low, got, want)
		}
		last := s.CountWithin(low)
		for _, d := range []time.Duration{low + width/3, low + width/2, low + width - 1} {
			got := s.CountWithin(d)
			if got < last || got > exact(low+width) {
				t.Fatalf("CountWithin(%v) = %d, want %d to %d", d, got, last, exact(low+width))
			}
			last = got
		}
	}
	if s.CountWithin(-1) != 0 || s.CountWithin(Longest) != s.Count() || s.CountWithin(time.Hour) != s.Count() {
		t.Error("CountWithin is wrong outside the range")
	}
}

func TestMergeAndSince(t *testing.T) {
	var a, b, both Histogram
	r := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		d := distributions["exponential"](r)
		both.Observe(r.Uint32(), d)
		if r.IntN(2) == 0 {
			a.Observe(r.Uint32(), d)
		} else {
			b.Observe(r.Uint32(), d)
		}
	}
	sa, sb, want := a.Snapshot(), b.Snapshot(), both.Snapshot()
	merged := sa
	merged.Merge(&sb)
	if merged != want {
		t.Error("the merged snapshots differ from one histogram of everything")
	}
	if diff := merged.Since(&sa); diff != sb {
		t.Error("Since does not undo Merge")
	}
}

func TestHistogramConcurrent(t *testing.T) {
	var h Histogram
	var wg sync.WaitGroup
	const goroutines, each = 8, 5000
	for g := range uint32(goroutines) {
		wg.Go(func() {
			for i := range each {
				h.Observe(g, time.Duration(i)*time.Microsecond)
			}
		})
	}
	var last uint64
	for range 200 {
		s := h.Snapshot()
		if s.Count() < last {
			t.Fatalf("the count sank from %d to %d", last, s.Count())
		}
		last = s.Count()
	}
	wg.Wait()
	if s := h.Snapshot(); s.Count() != goroutines*each {
		t.Errorf("count %d, want %d", s.Count(), goroutines*each)
	}
}
