package load

import (
	"math"
	"slices"
	"testing"
	"time"
)

// due lists the arrivals before a time.
func due(a *arrivals, before time.Duration) (times []time.Duration) {
	for a.next < int64(before) {
		times = append(times, time.Duration(a.next))
		a.pop()
	}
	return times
}

func TestConstantArrivals(t *testing.T) {
	c := &Config{Arrival: Constant, Rate: 300, Duration: time.Second}
	var all []time.Duration
	for thread := range 3 {
		all = append(all, due(newArrivals(c, thread, 3, int64(time.Second)), 11*time.Second)...)
	}
	slices.Sort(all)
	if len(all) != 3000 {
		t.Fatalf("%d arrivals in 10 s at 300/s", len(all))
	}
	for i, at := range all {
		want := time.Second + time.Duration(float64(i)*1e9/300)
		if off := at - want; off < -time.Microsecond || off > time.Microsecond {
			t.Fatalf("arrival %d at %v, want %v", i, at, want)
		}
	}
}

func TestPoissonArrivals(t *testing.T) {
	c := &Config{Arrival: Poisson, Rate: 1000, Duration: time.Second}
	times := due(newArrivals(c, 0, 1, 0), 100*time.Second)
	// 100,000 expected; the standard deviation is 316.
	if n := len(times); n < 98_000 || n > 102_000 {
		t.Errorf("%d arrivals in 100 s at 1000/s", n)
	}
	// Gaps are exponential: 1/e of them exceed the mean.
	long := 0
	for i := 1; i < len(times); i++ {
		if times[i] < times[i-1] {
			t.Fatalf("arrival %d at %v comes after one at %v", i, times[i], times[i-1])
		}
		if times[i]-times[i-1] > time.Millisecond {
			long++
		}
	}
	if share := float64(long) / float64(len(times)); math.Abs(share-1/math.E) > 0.01 {
		t.Errorf("%.3f of the gaps exceed the mean, want %.3f", share, 1/math.E)
	}
	if again := due(newArrivals(c, 0, 1, 0), 100*time.Second); !slices.Equal(times, again) {
		t.Error("another run has other arrivals")
	}
	if other := due(newArrivals(c, 1, 2, 0), time.Second); slices.Equal(other, due(newArrivals(c, 0, 2, 0), time.Second)) {
		t.Error("two threads send at the same times")
	}
}

func TestRampArrivals(t *testing.T) {
	for _, ramp := range []struct{ from, to float64 }{{100, 300}, {300, 100}, {0, 200}, {200, 0}, {100, 100}} {
		c := &Config{Arrival: Constant, Rate: ramp.from, Stages: []Stage{{ramp.to, 10 * time.Second}}, Warmup: 2 * time.Second, Duration: 10 * time.Second}
		var all []time.Duration
		for thread := range 2 {
			all = append(all, due(newArrivals(c, thread, 2, 0), 12*time.Second)...)
		}
		before := func(at time.Duration) (n float64) {
			for _, d := range all {
				if d < at {
					n++
				}
			}
			return n
		}
		for at := time.Second; at <= 12*time.Second; at += time.Second {
			x := math.Max(at.Seconds()-2, 0)
			want := ramp.from*math.Min(at.Seconds(), 2) + ramp.from*x + (ramp.to-ramp.from)/10*x*x/2
			if got := before(at); math.Abs(got-want) > 2 {
				t.Errorf("ramp from %v to %v: %v arrivals in %v, want %v", ramp.from, ramp.to, got, at, want)
			}
		}
	}
}

// After the window a ramp goes on at its last rate, which may be none.
func TestRampAfterItsEnd(t *testing.T) {
	up := newArrivals(&Config{Arrival: Constant, Stages: []Stage{{100, time.Second}}, Duration: time.Second}, 0, 1, 0)
	if n := len(due(up, 2*time.Second)); n < 149 || n > 151 {
		t.Errorf("%d arrivals, want 50 in the ramp and 100 after it", n)
	}
	down := newArrivals(&Config{Arrival: Constant, Rate: 100, Stages: []Stage{{0, time.Second}}, Duration: time.Second}, 0, 1, 0)
	if n := len(due(down, time.Hour)); n > 51 {
		t.Errorf("%d arrivals, want none after the 50 of the ramp", n)
	}
}

func TestArrivalsSkip(t *testing.T) {
	a := newArrivals(&Config{Arrival: Constant, Rate: 1000, Duration: time.Second}, 0, 1, 0)
	if n := a.skip(int64(100*time.Millisecond), int64(40*time.Millisecond)); n < 59 || n > 61 {
		t.Errorf("%d dropped, want the 60 that were due after 40 ms", n)
	}
	if a.next < int64(100*time.Millisecond) {
		t.Errorf("the next one is due at %v", time.Duration(a.next))
	}
}

// Stages follow each other, also where nothing is sent between them, and Poisson
// arrivals have their rates too.
func TestStages(t *testing.T) {
	for _, arrival := range []Arrival{Constant, Poisson} {
		c := &Config{Arrival: arrival, Stages: []Stage{{1000, 10 * time.Second}, {1000, 10 * time.Second}, {0, 10 * time.Second}, {0, 10 * time.Second}, {500, 10 * time.Second}}}
		times := due(newArrivals(c, 0, 1, 0), 60*time.Second)
		for i, want := range []float64{5000, 10_000, 5000, 0, 2500, 5000} {
			from, n := time.Duration(i)*10*time.Second, 0.0
			for _, at := range times {
				if at >= from && at < from+10*time.Second {
					n++
				}
			}
			within := 2.0
			if arrival == Poisson {
				within = 5 * math.Sqrt(want)
			}
			if math.Abs(n-want) > within {
				t.Errorf("%s: stage %d has %v arrivals, want %v", arrival, i, n, want)
			}
		}
		if !slices.IsSorted(times) {
			t.Errorf("%s: arrivals are out of order", arrival)
		}
	}
}
