package load

import (
	"math"
	"math/rand/v2"
	"time"
)

// arrivals are the intended send times of an open loop, in order, in ns since
// the run began. They are worked out one by one, so a backlog of any length
// costs no memory: requests that wait are those whose time has passed.
type arrivals struct {
	arrival Arrival
	rate    float64 // per ns, of this thread
	slope   float64 // of a ramp: what the rate grows by per ns
	begin   float64 // ns: of the load, or of the ramp once it has begun
	ramp    float64 // ns: when the ramp begins
	length  float64 // ns: of the ramp
	count   float64 // arrivals since begin, this thread's offset included
	random  *rand.Rand
	next    int64 // the earliest that is still to be sent
}

// newArrivals gives one of several threads its share of a plan's arrivals. The
// load begins at begin, and a ramp with the window.
func newArrivals(c *Config, thread, threads int, begin int64) *arrivals {
	share := 1 / float64(threads) / float64(time.Second)
	a := &arrivals{
		arrival: c.Arrival,
		rate:    c.Rate * share,
		begin:   float64(begin),
		ramp:    float64(begin) + float64(c.Warmup),
		length:  float64(c.Duration),
		count:   float64(thread) / float64(threads), // threads take turns
	}
	switch c.Arrival {
	case Poisson:
		// The same arrivals in each run: a difference between two runs is then
		// none of the dice's. A sum of Poisson processes is one.
		a.random = rand.New(rand.NewPCG(1, uint64(thread)))
		a.count = 0
		a.next = begin
		a.pop()
	case Ramp:
		a.slope = (c.RampTo - c.Rate) * share / a.length
		fallthrough
	default:
		a.next = a.time()
	}
	return a
}

// pop takes the next arrival.
func (a *arrivals) pop() {
	if a.arrival == Poisson {
		a.begin += a.random.ExpFloat64() / a.rate
		a.next = int64(a.begin)
		return
	}
	a.count++
	a.next = a.time()
}

// time is when the arrival of this count is due. The times of a constant rate
// come from the count, so that no rounding adds up.
func (a *arrivals) time() int64 {
	if a.slope == 0 {
		return clampTime(a.begin + a.count/a.rate)
	}
	flat := (a.ramp - a.begin) * a.rate // arrivals before the ramp
	if a.count < flat {
		return clampTime(a.begin + a.count/a.rate)
	}
	// n arrivals into the ramp: rate·t + slope·t²/2 = n. The form with the root
	// below the line keeps its digits when slope is small.
	n := a.count - flat
	if n == 0 { // nothing to divide by, if it begins at nothing
		return clampTime(a.ramp)
	}
	full := (a.rate + a.slope*a.length/2) * a.length
	if n >= full { // the window is over, or a little late: go on at the last rate
		return clampTime(a.ramp + a.length + (n-full)/(a.rate+a.slope*a.length))
	}
	return clampTime(a.ramp + 2*n/(a.rate+math.Sqrt(a.rate*a.rate+2*a.slope*n)))
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
