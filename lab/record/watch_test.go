package record

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// clockwork reads a target whose CPU time is the time since it began.
type clockwork struct {
	began   time.Time
	reads   int
	withPSS []time.Duration // when PSS was asked for
	ends    int             // after so many readings, 0: never
}

func (c *clockwork) read(pss bool) (Reading, error) {
	if c.ends > 0 && c.reads == c.ends {
		return Reading{}, ErrEnded
	}
	c.reads++
	r := Reading{At: time.Now(), CPU: time.Since(c.began)}
	if pss {
		c.withPSS = append(c.withPSS, r.CPU)
		r.PSS = uint64(len(c.withPSS))
	}
	return r, nil
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clockwork{began: time.Now()}
		ctx, cancel := context.WithTimeout(t.Context(), 1050*time.Millisecond)
		defer cancel()
		var seen []Reading
		got, err := watch(ctx, 100*time.Millisecond, c.read, func(r Reading) { seen = append(seen, r) })
		if err != nil || len(got) != 12 || len(seen) != 12 {
			t.Fatalf("%d readings, %d seen, %v; want 12: at once, 10 in time, and the last", len(got), len(seen), err)
		}
		for i, r := range got {
			if want := time.Duration(i) * 100 * time.Millisecond; r.CPU != want && i < 11 {
				t.Errorf("reading %d at %v, want %v", i, r.CPU, want)
			}
			if r != seen[i] {
				t.Errorf("reading %d is %+v, seen was %+v", i, r, seen[i])
			}
		}
		if last := got[11].CPU; last != 1050*time.Millisecond {
			t.Errorf("the last reading is at %v, want the end", last)
		}
		if len(c.withPSS) != 2 || c.withPSS[1] != time.Second || got[9].PSS != 1 || got[10].PSS != 2 {
			t.Errorf("PSS was read at %v, want once a second and repeated", c.withPSS)
		}
	})
}

// TestWatchLong is a run much longer than its readings' number has room for.
func TestWatchLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clockwork{began: time.Now()}
		const long = time.Hour
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		got, err := watch(ctx, 10*time.Millisecond, c.read, nil)
		if err != nil || len(got) > MaxReadings || len(got) < MaxReadings/2-1 {
			t.Fatalf("%d readings, %v; want %d to %d", len(got), err, MaxReadings/2-1, MaxReadings)
		}
		if got[0].CPU != 0 || got[len(got)-1].CPU != long {
			t.Errorf("readings from %v to %v, want all of %v", got[0].CPU, got[len(got)-1].CPU, long)
		}
		const most = long / (MaxReadings / 2) * 2
		step := got[1].CPU
		for i := 1; i < len(got); i++ {
			d := got[i].CPU - got[i-1].CPU
			if d <= 0 || d > most || i < len(got)-1 && d != step && i < len(got)/2 {
				t.Errorf("%v between readings %d and %d, the first are %v apart", d, i-1, i, step)
			}
		}
	})
}

func TestWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clockwork{began: time.Now(), ends: 5}
		got, err := watch(t.Context(), time.Second, c.read, nil)
		if !errors.Is(err, ErrEnded) || len(got) != 5 {
			t.Errorf("%d readings, %v; want 5 and ErrEnded", len(got), err)
		}
		// A target that ends with ctx has nothing more to say, and no error.
		c = clockwork{began: time.Now(), ends: 1}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		got, err = watch(ctx, time.Second, c.read, nil)
		if err != nil || len(got) != 1 {
			t.Errorf("%d readings, %v; want 1", len(got), err)
		}
	})
}

// TestWatchInterval: nonsense intervals are the shortest.
func TestWatchInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clockwork{began: time.Now()}
		ctx, cancel := context.WithTimeout(t.Context(), 10*MinInterval+1)
		defer cancel()
		got, err := watch(ctx, -1, c.read, nil)
		if err != nil || len(got) != 12 {
			t.Errorf("%d readings, %v; want 12", len(got), err)
		}
	})
}
