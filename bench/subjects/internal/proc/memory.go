package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Memory is what a group of processes holds, in bytes.
type Memory struct {
	// RSS counts every resident page of each process; a page that several
	// share is counted in each, so a server of many processes looks larger.
	RSS uint64 `json:"rss"`
	// PSS divides a shared page among those that share it.
	PSS uint64 `json:"pss"`
}

// ReadMemory sums what the given processes hold now.
func ReadMemory(pids []int) (Memory, error) {
	var sum Memory
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return Memory{}, fmt.Errorf("reading the memory of process %d: %w", pid, err)
		}
		m, err := parseRollup(string(text))
		if err != nil {
			return Memory{}, fmt.Errorf("reading the memory of process %d: %w", pid, err)
		}
		sum.RSS += m.RSS
		sum.PSS += m.PSS
	}
	return sum, nil
}

// parseRollup reads /proc/PID/smaps_rollup (proc_pid_smaps(5)).
func parseRollup(text string) (Memory, error) {
	rss, err := kilobytes(text, "Rss:")
	if err != nil {
		return Memory{}, err
	}
	pss, err := kilobytes(text, "Pss:")
	if err != nil {
		return Memory{}, err
	}
	return Memory{RSS: rss, PSS: pss}, nil
}

// kilobytes finds the line "key N kB" in text and gives N in bytes.
func kilobytes(text, key string) (uint64, error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == key && fields[2] == "kB" {
			n, err := strconv.ParseUint(fields[1], 10, 54)
			if err != nil {
				return 0, fmt.Errorf("reading the line %q: %w", strings.TrimSpace(line), err)
			}
			return n << 10, nil
		}
	}
	return 0, fmt.Errorf("no line %q with a number of kB", key)
}

// ReadRSS is the resident memory of one process from /proc/PID/statm: quicker
// than ReadMemory, for reading often, and behind the truth by some pages for
// each thread (proc_pid_statm(5)).
func ReadRSS(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("reading the memory of process %d: %q is no statm", pid, text)
	}
	pages, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	return pages * uint64(os.Getpagesize()), nil
}

// ReadAnonymous is the part of a process's resident memory that is no page of a
// file, from /proc/PID/status (proc_pid_status(5)). The rest is mostly the pages
// of its program, which the kernel takes back when it needs room.
func ReadAnonymous(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	n, err := kilobytes(string(text), "RssAnon:")
	if err != nil {
		return 0, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	return n, nil
}
