package meter

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// The buckets are log-linear, as in an HDR histogram: every power of two is
// cut into eight equal parts. Time is measured in units of 128 ns, so that
// the first power of two that is cut starts at 1.024 µs; what is shorter
// falls into eight buckets of one unit each.
const (
	unitBits = 7  // 128 ns
	subBits  = 3  // eight buckets to a power of two: at most 1/17 off, see bucketValue
	topBits  = 36 // 2^36 ns = 68.7 s: longer than any timeout of the server

	subBuckets = 1 << subBits
	buckets    = (topBits - unitBits - subBits + 1) * subBuckets
)

// Longest is the end of a [Histogram]'s range, about 68.7 s. A longer duration
// is counted as if it were just below.
const Longest = time.Duration(1) << topBits

// Histogram is a sharded distribution of durations. From 1 µs to [Longest] it
// remembers each to 6 %, below that to 64 ns. The zero value is ready.
type Histogram struct {
	shard [shards]struct {
		counts [buckets]atomic.Uint64
		nanos  atomic.Uint64 // sum
		_      [cacheLine]byte
	}
}

// Observe counts one duration, without locks and without allocations. shard is
// as in [Counter.Add]. A negative duration (a clock that was set back) counts
// as zero.
func (h *Histogram) Observe(shard uint32, d time.Duration) {
	d = max(d, 0)
	s := &h.shard[shard&shardMask]
	s.counts[bucketOf(d)].Add(1)
	s.nanos.Add(uint64(d))
}

// Snapshot adds the shards up. Its count is that of its buckets, so that it is
// consistent in itself even while others observe.
func (h *Histogram) Snapshot() Snapshot {
	var snap Snapshot
	for i := range h.shard {
		s := &h.shard[i]
		for b := range s.counts {
			n := s.counts[b].Load()
			snap.counts[b] += n
			snap.count += n
		}
		snap.nanos += s.nanos.Load()
	}
	return snap
}

// Snapshot is a distribution that does not change any more. The zero value is
// empty.
type Snapshot struct {
	counts [buckets]uint64
	count  uint64
	nanos  uint64
}

// Count is the number of durations.
func (s *Snapshot) Count() uint64 { return s.count }

// Sum is the exact sum of all durations.
func (s *Snapshot) Sum() time.Duration { return time.Duration(min(s.nanos, math.MaxInt64)) }

// Mean is the exact average; zero when there is nothing.
func (s *Snapshot) Mean() time.Duration {
	if s.count == 0 {
		return 0
	}
	return time.Duration(s.nanos / s.count)
}

// Merge adds what o holds.
func (s *Snapshot) Merge(o *Snapshot) {
	for b := range s.counts {
		s.counts[b] += o.counts[b]
	}
	s.count += o.count
	s.nanos += o.nanos
}

// Since is what was observed after an earlier snapshot of the same histogram.
func (s *Snapshot) Since(earlier *Snapshot) Snapshot {
	var diff Snapshot
	for b := range s.counts {
		diff.counts[b] = s.counts[b] - earlier.counts[b]
		diff.count += diff.counts[b]
	}
	diff.nanos = s.nanos - earlier.nanos
	return diff
}

// Quantile is the duration that the share q of all durations does not exceed:
// of n sorted durations the one at place ⌈q·n⌉, or the first, to within the
// histogram's error. q is clamped to 0…1; zero when there is nothing.
func (s *Snapshot) Quantile(q float64) time.Duration {
	rank := uint64(1)
	if q > 0 {
		rank = max(1, min(s.count, uint64(math.Ceil(min(q, 1)*float64(s.count)))))
	}
	for b, n := range s.counts {
		if n >= rank {
			return bucketValue(b)
		}
		rank -= n
	}
	return 0
}

// CountWithin is the number of durations up to d. Of the bucket that d falls
// into, durations count in proportion, so that the result never sinks as time
// goes on or as d grows.
func (s *Snapshot) CountWithin(d time.Duration) uint64 {
	switch {
	case d < 0:
		return 0
	case d >= Longest:
		return s.count
	}
	last := bucketOf(d)
	var n uint64
	for _, c := range s.counts[:last] {
		n += c
	}
	low, width := bucketRange(last)
	share := float64(d-low) / float64(width)
	return n + uint64(share*float64(s.counts[last]))
}

// bucketOf is the bucket that counts d, which is not negative.
func bucketOf(d time.Duration) int {
	u := uint64(min(d, Longest-1)) >> unitBits
	if u < subBuckets {
		return int(u)
	}
	octave := bits.Len64(u) - 1 - subBits // 0 for the first that is cut into parts
	return (octave+1)*subBuckets + int(u>>octave)&(subBuckets-1)
}

// bucketRange is the shortest duration that a bucket counts, and the bucket's width.
func bucketRange(b int) (low, width time.Duration) {
	if b < subBuckets {
		return time.Duration(b) << unitBits, 1 << unitBits
	}
	octave := b/subBuckets - 1
	low = time.Duration(subBuckets+b%subBuckets) << (octave + unitBits)
	return low, 1 << (octave + unitBits)
}

// bucketValue stands for all durations of a bucket. From 1 µs on it is the
// harmonic mean of the bucket's ends: no other choice has a smaller largest
// relative error, width/(low+high), which is at most 1/17.
func bucketValue(b int) time.Duration {
	low, width := bucketRange(b)
	if b < subBuckets {
		return low + width/2
	}
	high := low + width
	return time.Duration(2 * float64(low) * float64(high) / float64(low+high))
}
