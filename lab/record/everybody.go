package record

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A Usage is the CPU time that one process used.
type Usage struct {
	PID  int
	Name string // of its program, at most 15 bytes, as it likes to be called
	CPU  time.Duration

	start uint64 // tells it from a later one of the same number
}

// Everybody reads the CPU time of every process of the machine that may be
// looked at, by number.
func Everybody() (map[int]Usage, error) {
	all, err := readEverybody()
	if err != nil {
		return nil, fmt.Errorf("reading who uses the CPU: %w", err)
	}
	return all, nil
}

// Takers are those that used CPU time between two readings, the greatest first. One that began in between counts from its beginning; one that
// ended in between is not seen.
func Takers(before, after map[int]Usage) []Usage {
	var takers []Usage
	for pid, u := range after {
		if was, ok := before[pid]; ok && was.start == u.start {
			u.CPU -= was.CPU
		}
		if u.CPU > 0 {
			takers = append(takers, u)
		}
	}
	slices.SortStableFunc(takers, func(a, b Usage) int {
		return cmp.Or(cmp.Compare(b.CPU, a.CPU), cmp.Compare(a.PID, b.PID))
	})
	return takers
}
