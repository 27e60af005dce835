// Package proc reads what the kernel knows about other processes: the CPU time
// they used and the memory they hold. Linux only.
package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// CPU is the processor time that a group of processes has used so far.
type CPU struct {
	// Total is the sum of the processes' CPU clocks, in the scheduler's own
	// nanoseconds.
	Total time.Duration `json:"total"`
	// User and Kernel split it, in the clock ticks (10 ms) of
	// /proc/PID/stat: right over seconds, useless over milliseconds.
	User   time.Duration `json:"user"`
	Kernel time.Duration `json:"kernel"`
}

// Sub is what was used between before and c.
func (c CPU) Sub(before CPU) CPU {
	return CPU{c.Total - before.Total, c.User - before.User, c.Kernel - before.Kernel}
}

// tick is USER_HZ, which is 100 on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// ReadCPU sums what the given processes have used so far.
func ReadCPU(pids []int) (CPU, error) {
	var sum CPU
	for _, pid := range pids {
		total, err := clock(pid)
		if err != nil {
			return CPU{}, fmt.Errorf("reading the CPU clock of process %d: %w", pid, err)
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return CPU{}, fmt.Errorf("reading the CPU times of process %d: %w", pid, err)
		}
		st, err := parseStat(string(text))
		if err != nil {
			return CPU{}, fmt.Errorf("reading the CPU times of process %d: %w", pid, err)
		}
		sum.Total += total
		sum.User += st.user
		sum.Kernel += st.kernel
	}
	return sum, nil
}

// clock reads the CPU clock of a process, all its threads together, living
// and dead. Its clock's number is made from its pid as in
// clock_getcpuclockid(3): the complement of the pid above three bits, of which
// 2 stands for the scheduler's nanosecond count.
func clock(pid int) (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &ts); err != nil {
		return 0, err
	}
	return time.Duration(ts.Nano()), nil
}

// stat is what we need of /proc/PID/stat.
type stat struct {
	parent       int
	user, kernel time.Duration
}

// parseStat reads a line of /proc/PID/stat (proc_pid_stat(5)). The name in
// brackets may hold anything, brackets and spaces too.
func parseStat(line string) (stat, error) {
	_, rest, ok := cutLast(line, ")")
	if !ok {
		return stat{}, errors.New("stat line has no name in brackets")
	}
	fields := strings.Fields(rest) // the first is field 3 of the manual page
	if len(fields) < 13 {
		return stat{}, fmt.Errorf("stat line has only %d fields after the name", len(fields))
	}
	parent, err1 := strconv.Atoi(fields[1])
	user, err2 := strconv.ParseInt(fields[11], 10, 64)
	kernel, err3 := strconv.ParseInt(fields[12], 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		return stat{}, err
	}
	return stat{parent, time.Duration(user) * tick, time.Duration(kernel) * tick}, nil
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// Family is pid and its children, its workers: two generations, lowest pid
// first.
func Family(pid int) ([]int, error) {
	entries, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	family := []int{pid}
	for _, entry := range entries {
		text, err := os.ReadFile(entry)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it ended while we looked
		}
		if err != nil {
			return nil, err
		}
		st, err := parseStat(string(text))
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", entry, err)
		}
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(entry)))
		if err == nil && st.parent == pid {
			family = append(family, child)
		}
	}
	slices.Sort(family)
	return family, nil
}
