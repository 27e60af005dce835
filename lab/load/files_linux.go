package load

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// RaiseFileLimit lets this process open as many files as it may, RLIMIT_NOFILE's
// hard limit, and returns how many that is.
func RaiseFileLimit() (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("read the limit of open files: %w", err)
	}
	if limit.Cur < limit.Max {
		limit.Cur = limit.Max
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			return 0, fmt.Errorf("raise the limit of open files to %d: %w", limit.Max, err)
		}
	}
	return limit.Cur, nil
}

// usage is the CPU time of this process.
func usage() cpu {
	var use unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &use); err != nil {
		return cpu{}
	}
	return cpu{user: time.Duration(use.Utime.Nano()), system: time.Duration(use.Stime.Nano())}
}

// nap sleeps, in a thread of its own: Go's timers come up to a millisecond late.
func nap(ns int64) {
	span := unix.NsecToTimespec(ns)
	_ = unix.Nanosleep(&span, nil)
}
