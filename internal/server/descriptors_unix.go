//go:build unix

package server

import "golang.org/x/sys/unix"

// Descriptors is how many descriptors this process may have; 0: not known. Go
// has raised the limit to what is allowed when the program began.
func Descriptors() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > 1<<30 {
		return 0
	}
	return int(limit.Cur) // below 2^30
}
