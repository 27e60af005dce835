//go:build unix

package dashboard

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"
)

// usage is the CPU time that this process has had, and its resident memory in
// bytes, 0 where the system does not say.
func usage() (cpu time.Duration, memory uint64) {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) == nil {
		cpu = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	b, err := os.ReadFile("/proc/self/statm") // proc(5): the second figure is in pages
	if fields := bytes.Fields(b); err == nil && len(fields) > 1 {
		pages, _ := strconv.ParseUint(string(fields[1]), 10, 64)
		memory = pages * uint64(os.Getpagesize())
	}
	return cpu, memory
}
