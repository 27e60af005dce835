package record

import (
	"context"
	"errors"
	"time"
)

const (
	// MaxReadings is how many readings Watch keeps: a chart has no more points
	// across, and at ten a second it is two minutes before the first halving.
	MaxReadings = 1200
	// MinInterval is the shortest time between two readings of Watch: at some
	// 0.3 ms a reading it costs 3 % of a core.
	MinInterval = 10 * time.Millisecond
	// memoryInterval is the shortest time between two readings of PSS, which
	// are dear and hold up the target.
	memoryInterval = time.Second
)

// Watch takes a reading at once and then every interval (MinInterval at least)
// until ctx ends, when it takes the last, or the target does; it returns them
// in order, at most MaxReadings: beyond that every second one is dropped and
// the interval doubled, so that a long run is kept whole. PSS is read once a
// second at most; readings in between repeat it. each, which may be nil, gets
// every reading, also those dropped later.
//
// The end of ctx is not an error; that of the target is ErrEnded, with the
// readings up to it.
func (t *Target) Watch(ctx context.Context, every time.Duration, each func(Reading)) ([]Reading, error) {
	return watch(ctx, every, t.read, each)
}

// watch is Watch with the way to read handed in.
func watch(ctx context.Context, every time.Duration, read func(pss bool) (Reading, error), each func(Reading)) ([]Reading, error) {
	every = max(every, MinInterval)
	readings := make([]Reading, 0, min(MaxReadings, 64))
	var memory time.Time // when PSS was read last
	take := func() error {
		withPSS := memory.IsZero() || time.Since(memory) >= memoryInterval
		r, err := read(withPSS)
		if err != nil {
			return err
		}
		if withPSS {
			memory = time.Now()
		} else if len(readings) > 0 {
			r.PSS = readings[len(readings)-1].PSS
		}
		readings = append(readings, r)
		if each != nil {
			each(r)
		}
		return nil
	}
	clock := time.NewTicker(every)
	defer clock.Stop()
	for {
		if err := take(); err != nil {
			return readings, err
		}
		// One place is left free for the reading at the end.
		if len(readings) == MaxReadings-1 {
			readings = halve(readings)
			every *= 2
			clock.Reset(every)
		}
		select {
		case <-clock.C:
		case <-ctx.Done():
			if err := take(); err != nil && !errors.Is(err, ErrEnded) {
				return readings, err
			}
			return readings, nil
		}
	}
}

// halve keeps every second reading, the first among them.
func halve(readings []Reading) []Reading {
	kept := readings[:0]
	for i := 0; i < len(readings); i += 2 {
		kept = append(kept, readings[i])
	}
	return kept
}
