package load

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Shortest and Longest bound what a Histogram tells apart: what is shorter or
// longer is counted as that short or long.
const (
	Shortest = 100 * time.Nanosecond
	Longest  = 5 * time.Minute
)

const (
	// subBits are the bits kept of a duration below its highest one. Six make
	// buckets 1/64 of their lower end wide, so that their middle is at most
	// 0.8 % off.
	subBits = 6
	// buckets is one past the bucket of Longest.
	buckets = (38-subBits+1)<<subBits + (5*60*1e9)>>(38-subBits) - 1<<subBits + 1
)

// A Histogram counts durations in buckets that are exact to 0.8 % from 100 ns
// to 5 minutes. Its zero value is empty and ready for use; a copy is a
// histogram of its own. It is not safe for use by several goroutines at once.
type Histogram struct {
	counts   [buckets]uint64
	count    uint64
	sum      uint64 // ns
	min, max uint64 // ns, exact; meaningless while count is 0
}

// bucketOf is the bucket of a duration of v ns, v at most Longest. Below 2^7
// each ns has a bucket of its own; above, each power of two has 2^subBits.
func bucketOf(v uint64) uint {
	e := uint(bits.Len64(v | 1<<subBits)) // position of the highest bit, from 1, at least subBits+1
	shift := e - subBits - 1
	return shift<<subBits + uint(v>>shift)
}

// middle is the middle of a bucket in ns.
func middle(bucket int) uint64 {
	if bucket < 2<<subBits {
		return uint64(bucket)
	}
	shift := uint(bucket)>>subBits - 1
	low := (uint64(bucket)&(1<<subBits-1) | 1<<subBits) << shift
	return low + 1<<shift>>1
}

// Record counts one duration.
func (h *Histogram) Record(d time.Duration) {
	v := uint64(min(max(d, Shortest), Longest))
	h.counts[bucketOf(v)]++
	h.sum += v
	if h.count == 0 || v < h.min {
		h.min = v
	}
	if v > h.max {
		h.max = v
	}
	h.count++
}

// Merge adds what another histogram counted.
func (h *Histogram) Merge(other *Histogram) {
	if other.count == 0 {
		return
	}
	if h.count == 0 || other.min < h.min {
		h.min = other.min
	}
	h.max = max(h.max, other.max)
	h.count += other.count
	h.sum += other.sum
	// Only the stretch between the shortest and the longest can hold anything.
	for i := bucketOf(other.min); i <= bucketOf(other.max); i++ {
		h.counts[i] += other.counts[i]
	}
}

// reset empties the histogram, in time proportional to how far its durations
// lie apart.
func (h *Histogram) reset() {
	if h.count == 0 {
		return
	}
	clear(h.counts[bucketOf(h.min) : bucketOf(h.max)+1])
	h.count, h.sum, h.min, h.max = 0, 0, 0, 0
}

// Count is how many durations were recorded.
func (h *Histogram) Count() uint64 { return h.count }

// Mean is their exact mean, 0 when there are none.
func (h *Histogram) Mean() time.Duration {
	if h.count == 0 {
		return 0
	}
	return time.Duration(h.sum / h.count)
}

// Min is the shortest, exactly, 0 when there are none.
func (h *Histogram) Min() time.Duration {
	if h.count == 0 {
		return 0
	}
	return time.Duration(h.min)
}

// Max is the longest, exactly, 0 when there are none.
func (h *Histogram) Max() time.Duration { return time.Duration(h.max) }

// Quantile is the duration that a share q of the durations, 0 to 1, does not
// exceed, to 0.8 %: 0.5 is the median. It is 0 when there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.count == 0 {
		return 0
	}
	rank := h.rank(q)
	var seen uint64
	for i := bucketOf(h.min); i <= bucketOf(h.max); i++ {
		if seen += h.counts[i]; seen >= rank {
			return h.value(int(i))
		}
	}
	return h.Max()
}

// rank is which of the durations in their order, from 1, is the quantile.
func (h *Histogram) rank(q float64) uint64 {
	if !(q > 0) { // NaN too
		return 1
	}
	return min(max(uint64(math.Ceil(q*float64(h.count))), 1), h.count)
}

// value is what a bucket stands for: its middle, unless the exact ends say that
// none of its durations is that short or long.
func (h *Histogram) value(bucket int) time.Duration {
	return time.Duration(min(max(middle(bucket), h.min), h.max))
}

// Points are at most n pairs of a quantile (0 to 1) and its duration in ns, for
// a chart: both rise, the last is the longest duration. Their quantiles
// lie evenly on a logarithmic scale of what is left to 1, as far as there are
// durations to tell them apart, so that tails are drawn as finely as middles.
func (h *Histogram) Points(n int) [][2]float64 {
	if h.count == 0 || n < 1 {
		return nil
	}
	points := make([][2]float64, 0, n)
	tail := math.Log(float64(h.count)) // of 1 ÷ the share of the last one
	var (
		seen uint64
		at   = int(bucketOf(h.min))
	)
	for i := range n - 1 {
		q := 1 - math.Exp(-tail*float64(i)/float64(n-1))
		rank := h.rank(q)
		for seen+h.counts[at] < rank {
			seen += h.counts[at]
			at++
		}
		points = append(points, [2]float64{q, float64(h.value(at))})
	}
	return append(points, [2]float64{1, float64(h.max)})
}

// String is a line with the most asked for figures.
func (h Histogram) String() string {
	return fmt.Sprintf("%d durations, p50 %v, p99 %v, max %v", h.count, h.Quantile(0.5), h.Quantile(0.99), h.Max())
}

// A packed histogram is its JSON: pairs of bucket and count, and the exact ends.
type packed struct {
	Count   uint64      `json:"count"`
	Sum     uint64      `json:"sum_ns"`
	Min     uint64      `json:"min_ns"`
	Max     uint64      `json:"max_ns"`
	Buckets [][2]uint64 `json:"buckets"` // number, count
}

// MarshalJSON writes the histogram without its empty buckets.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	p := packed{Count: h.count, Sum: h.sum, Min: h.min, Max: h.max, Buckets: [][2]uint64{}}
	for i, n := range h.counts {
		if n > 0 {
			p.Buckets = append(p.Buckets, [2]uint64{uint64(i), n})
		}
	}
	return json.Marshal(p)
}

// UnmarshalJSON reads what MarshalJSON wrote, and refuses what contradicts
// itself.
func (h *Histogram) UnmarshalJSON(text []byte) error {
	var p packed
	if err := json.Unmarshal(text, &p); err != nil {
		return fmt.Errorf("read a histogram: %w", err)
	}
	read := Histogram{count: p.Count, sum: p.Sum, min: p.Min, max: p.Max}
	var count uint64
	for _, b := range p.Buckets {
		if b[0] >= buckets || read.counts[b[0]] != 0 {
			return fmt.Errorf("read a histogram: bucket %d does not exist or stands there twice", b[0])
		}
		read.counts[b[0]] = b[1]
		count += b[1]
	}
	if count != p.Count {
		return fmt.Errorf("read a histogram: its buckets hold %d durations and its count says %d", count, p.Count)
	}
	if count > 0 && (p.Min > p.Max || p.Max > uint64(Longest) || read.counts[bucketOf(p.Min)] == 0 || read.counts[bucketOf(p.Max)] == 0) {
		return fmt.Errorf("read a histogram: the buckets of its ends, %d and %d ns, are empty", p.Min, p.Max)
	}
	*h = read
	return nil
}
