package handover

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// MonotonicTime is the system's monotonic clock in microseconds, which systemd
// wants to know with RELOADING=1.
func MonotonicTime() string {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return "0"
	}
	return strconv.FormatInt(t.Nano()/1000, 10)
}
