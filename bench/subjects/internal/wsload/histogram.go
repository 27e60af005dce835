package wsload

import (
	"math/bits"
	"time"
)

// fine is how many leading bits of a duration are kept: less than 1 % is lost.
const fine = 7

// histogram counts durations by their leading bits. It takes some 60 KB and no
// time to speak of.
type histogram struct {
	counts [(64 - fine + 1) << fine]uint64
	total  uint64
	most   int64
}

// add counts a duration in ns; one below zero counts as none.
func (h *histogram) add(ns int64) {
	ns = max(ns, 0)
	h.counts[bucket(uint64(ns))]++
	h.total++
	h.most = max(h.most, ns)
}

// bucket is where a duration is counted.
func bucket(ns uint64) int {
	shift := max(0, bits.Len64(ns)-fine-1)
	return shift<<fine + int(ns>>shift)
}

// least is the shortest duration of a bucket.
func least(bucket int) int64 {
	if bucket < 2<<fine {
		return int64(bucket)
	}
	shift := bucket>>fine - 1
	return int64(bucket-shift<<fine) << shift
}

// times are the figures; all 0 where nothing was counted.
func (h *histogram) times() Times {
	return Times{P50: h.quantile(0.5), P99: h.quantile(0.99), Max: time.Duration(h.most)}
}

// quantile is the duration that so large a share does not exceed, rounded down
// to a bucket's least.
func (h *histogram) quantile(q float64) time.Duration {
	rank, seen := uint64(q*float64(h.total)), uint64(0)
	for i, n := range h.counts {
		if seen += n; seen > rank {
			return time.Duration(least(i))
		}
	}
	return time.Duration(h.most)
}
