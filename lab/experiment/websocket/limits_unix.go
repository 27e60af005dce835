//go:build unix

package websocket

import (
	"fmt"
	"math"
	"syscall"
)

// openFileLimit is how many descriptors a process that is started here may
// raise its limit to.
func openFileLimit() (int, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("reading how many descriptors a process may hold: %w", err)
	}
	return int(min(limit.Max, math.MaxInt32)), nil // bounded just now
}
