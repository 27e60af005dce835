package record

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of the times in /proc (USER_HZ), 10 ms on every
// architecture that Go runs Linux on.
const tick = 10 * time.Millisecond

// A stat is what is used of /proc/PID/stat (proc_pid_stat(5)).
type stat struct {
	State   byte // 'Z' and 'X' are dead
	Parent  int
	Group   int
	User    time.Duration
	System  time.Duration
	Threads int
	Start   uint64 // ticks since boot: tells a process from a later one of the same number
	RSS     int64  // pages
}

// parseStat reads a line of /proc/PID/stat or /proc/PID/task/TID/stat. The
// name in brackets may hold anything, brackets, spaces and line ends too, so
// fields are counted from the last closing bracket.
func parseStat(text string) (stat, error) {
	end := strings.LastIndexByte(text, ')')
	if end < 0 {
		return stat{}, errors.New("no name in brackets")
	}
	f := strings.Fields(text[end+1:]) // f[0] is field 3 of the manual page
	if len(f) < 22 {
		return stat{}, fmt.Errorf("only %d fields after the name", len(f))
	}
	s := stat{State: f[0][0]}
	var err error
	number := func(field int) int64 {
		n, e := strconv.ParseInt(f[field-3], 10, 64)
		if e != nil && err == nil {
			err = fmt.Errorf("field %d: %w", field, e)
		}
		return n
	}
	s.Parent = int(number(4))
	s.Group = int(number(5))
	s.User = ticks(number(14))
	s.System = ticks(number(15))
	s.Threads = int(number(20))
	s.Start = uint64(number(22))
	s.RSS = number(24)
	if err != nil {
		return stat{}, err
	}
	return s, nil
}

// ticks is n ticks as a duration; numbers that are no time are 0.
func ticks(n int64) time.Duration {
	if n < 0 || n > int64(1<<63-1)/int64(tick) {
		return 0
	}
	return time.Duration(n) * tick
}

// fields finds lines "key: number …" in text and stores the numbers where
// wanted points to. A wanted key that is not there, or has no number, is an
// error.
func fields(text string, wanted map[string]*uint64) error {
	found := 0
	for line := range strings.Lines(text) {
		key, rest, ok := strings.Cut(line, ":")
		if !ok || wanted[key] == nil {
			continue
		}
		value, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return fmt.Errorf("line %q: %w", strings.TrimSpace(line), err)
		}
		*wanted[key] = n
		found++
	}
	if found < len(wanted) {
		return fmt.Errorf("%d of %d lines are missing", len(wanted)-found, len(wanted))
	}
	return nil
}
