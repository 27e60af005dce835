package load

import (
	"math"
	"math/rand/v2"
	"time"
)

// arrivals are the intended send times of an open loop, in order, in ns since
// the run began. They are worked out one by one, so a backlog of any length
// costs no memory: requests that wait are those whose time has passed.
//
// Each is the time at which the number of arrivals reaches its count. Counts are
// whole numbers one apart, or, for Poisson arrivals, exponentially distributed steps
// of one on average.
type arrivals struct {
	legs   []leg
	count  float64    // of the next one
	random *rand.Rand // nil: not Poisson
	next   int64      // the earliest that is still to be sent
}

// A leg is a stretch of time in which the rate changes evenly. The last one has no
// end.
type leg struct {
	from, length float64 // ns
	rate, slope  float64 // per ns, and what it grows by per ns; of one thread
	before       float64 // arrivals before it
}

// arrivals in a leg.
func (l *leg) size() float64 { return (l.rate + l.slope*l.length/2) * l.length }

// newArrivals gives one of several threads its share of a plan's arrivals. The
// load begins at begin, and the stages with the window.
func newArrivals(c *Config, thread, threads int, begin int64) *arrivals {
	share := 1 / float64(threads) / float64(time.Second)
	rate := c.Rate * share
	a := &arrivals{count: float64(thread) / float64(threads)} // threads take turns
	if c.Arrival == Poisson {
		// The same arrivals in each run: a difference between two runs is then
		// none of the dice's. A sum of Poisson processes is one.
		a.random = rand.New(rand.NewPCG(1, uint64(thread)))
		a.count = a.random.ExpFloat64()
	}
	from, before := float64(begin), 0.0
	add := func(to, length float64) {
		l := leg{from: from, length: length, rate: rate, slope: (to - rate) / length, before: before}
		a.legs = append(a.legs, l)
		rate, from, before = to, from+length, before+l.size()
	}
	if len(c.Stages) > 0 && c.Warmup > 0 {
		add(rate, float64(c.Warmup))
	}
	for _, s := range c.Stages {
		add(s.Rate*share, float64(s.Length))
	}
	a.legs = append(a.legs, leg{from: from, length: math.Inf(1), rate: rate, before: before})
	a.next = a.time()
	return a
}

// pop takes the next arrival.
func (a *arrivals) pop() {
	if a.random != nil {
		a.count += a.random.ExpFloat64()
	} else {
		a.count++
	}
	a.next = a.time()
}

// time is when the arrival of this count is due. It comes from the count, so that no
// rounding adds up.
func (a *arrivals) time() int64 {
	for len(a.legs) > 1 && a.count >= a.legs[1].before {
		a.legs = a.legs[1:]
	}
	l := &a.legs[0]
	n := a.count - l.before
	switch {
	case n == 0: // nothing to divide by, if it begins at nothing
		if l.rate == 0 && l.slope == 0 {
			return never
		}
		return clampTime(l.from)
	case l.slope == 0:
		return clampTime(l.from + n/l.rate)
	}
	// n arrivals into it: rate·t + slope·t²/2 = n. The form with the root below the
	// line keeps its digits when slope is small.
	return clampTime(l.from + 2*n/(l.rate+math.Sqrt(l.rate*l.rate+2*l.slope*n)))
}

// never is a time that no run reaches.
const never = math.MaxInt64

// clampTime is t as a time; a rate of (nearly) nothing is never due.
func clampTime(t float64) int64 {
	if !(t < never) { // NaN too
		return never
	}
	return int64(t)
}

// skip drops the arrivals before a time, and says how many of them were due at
// or after since.
func (a *arrivals) skip(before, since int64) (dropped uint64) {
	for a.next < before {
		if a.next >= since {
			dropped++
		}
		a.pop()
	}
	return dropped
}
