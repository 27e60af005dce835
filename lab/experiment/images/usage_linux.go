package images

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// lookCommand is how often a command's memory is read. What is read is the most
// that it had until then, so only what it takes in its last moments is missed.
const lookCommand = 5 * time.Millisecond

// watchCommand reads how much memory a process had resident at most, in bytes,
// until the function that it returns is called. The ru_maxrss of wait4(2) would
// not do: it begins with what the starting process has, which is more.
func watchCommand(pid int) (stop func() uint64) {
	quit, ended := make(chan struct{}), make(chan struct{})
	var most uint64
	go func() { // ends with stop, which waits for it
		defer close(ended)
		ticker := time.NewTicker(lookCommand)
		defer ticker.Stop()
		for {
			if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err == nil { // else it has ended
				most = max(most, highWater(text))
			}
			select {
			case <-quit:
				return
			case <-ticker.C:
			}
		}
	}()
	return func() uint64 {
		close(quit)
		<-ended
		return most
	}
}

// highWater is VmHWM of /proc/PID/status in bytes (proc_pid_status(5) gives KiB);
// 0 if it has none.
func highWater(status []byte) uint64 {
	_, rest, _ := bytes.Cut(status, []byte("\nVmHWM:"))
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, err := strconv.ParseUint(string(fields[0]), 10, 54)
	if err != nil {
		return 0
	}
	return kib << 10
}
