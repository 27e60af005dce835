package load

import (
	"cmp"
	"slices"
	"time"
)

// A Hole is a stretch of a closed loop's window in which nothing at all was
// answered, far longer than answers take otherwise. The loop stops asking
// meanwhile, so that each connection counts one long latency where visitors who
// come by the clock would have been many ("coordinated omission").
type Hole struct {
	At     time.Duration // since the window opened
	Length time.Duration
}

const (
	// shortestHole is how long a hole is at least: what is shorter may be the
	// generator's own, when others wanted its processor.
	shortestHole = 50 * time.Millisecond
	// holeIntervals is how many of the usual intervals between a connection's
	// answers it is at least.
	holeIntervals = 10
	// maxGaps bounds the stretches that a driver remembers.
	maxGaps = 4096
)

// A span is a stretch of the run's clock, in ns.
type span struct{ from, to int64 }

// gaps finds the stretches without an answer.
type gaps struct {
	last  int64 // when the last answer came, or the window opened; 0: it has not
	spans []span
}

// open begins to look.
func (q *gaps) open(now int64) { q.last, q.spans = now, q.spans[:0] }

// answered is called for each answer, and at the end of the window.
func (q *gaps) answered(now int64) {
	switch {
	case q.last == 0: // not within the window
		return
	case now-q.last >= int64(shortestHole) && len(q.spans) < maxGaps:
		q.spans = append(q.spans, span{q.last, now})
	}
	q.last = now
}

// close ends it.
func (q *gaps) close(now int64) {
	q.answered(now)
	q.last = 0
}

// together are the stretches that are in both lists, each in its order.
func together(a, b []span) []span {
	var both []span
	for len(a) > 0 && len(b) > 0 {
		s := span{max(a[0].from, b[0].from), min(a[0].to, b[0].to)}
		if s.to-s.from >= int64(shortestHole) {
			both = append(both, s)
		}
		if a[0].to < b[0].to {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return both
}

// holes are the stretches that are far longer than a connection's interval.
func holes(spans []span, opened int64, interval time.Duration) []Hole {
	var found []Hole
	for _, s := range spans {
		if length := time.Duration(s.to - s.from); length >= holeIntervals*interval {
			found = append(found, Hole{time.Duration(s.from - opened), length})
		}
	}
	return found
}

// Silent is how long a result's holes are together, and the longest of them.
func (r *Result) Silent() (all, longest time.Duration) {
	for _, h := range r.Holes {
		all += h.Length
	}
	if len(r.Holes) > 0 {
		longest = slices.MaxFunc(r.Holes, func(a, b Hole) int { return cmp.Compare(a.Length, b.Length) }).Length
	}
	return all, longest
}

// Corrected is the histogram that requests sent once each interval would have
// made: for every duration that is longer, it counts those that would have
// waited behind it, as HdrHistogram and wrk correct coordinated omission. An
// interval of 0 corrects nothing.
func (h *Histogram) Corrected(interval time.Duration) Histogram {
	out := *h
	step := uint64(max(interval, 0))
	if step < uint64(Shortest) || h.count == 0 {
		return out
	}
	for i := bucketOf(h.min); i <= bucketOf(h.max); i++ {
		n := h.counts[i]
		if n == 0 {
			continue
		}
		for v := uint64(h.value(int(i))); v >= 2*step; {
			v -= step
			out.counts[bucketOf(v)] += n
			out.count += n
			out.sum += n * v
			out.min = min(out.min, v)
		}
	}
	return out
}
