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

	parent int
	start  uint64 // tells it from a later one of the same number
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

// kernelThreads is the process whose children are those of Linux.
const kernelThreads = 2

// Strangers are the takers that are none of some processes, have not been started by
// one of them, and are no threads of the kernel, which works for all.
func Strangers(before, after map[int]Usage, ours ...int) []Usage {
	return slices.DeleteFunc(Takers(before, after), func(u Usage) bool {
		for pid := u.PID; pid > 1; pid = after[pid].parent { // 0 for one that has ended
			if pid == kernelThreads || slices.Contains(ours, pid) {
				return true
			}
		}
		return false
	})
}
