package proc

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Machine is what a reader must know to compare figures.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`
	Memory uint64 `json:"memory"` // bytes
}

// ThisMachine describes the machine we run on.
func ThisMachine() (Machine, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return Machine{}, fmt.Errorf("asking for the kernel's version: %w", err)
	}
	cpuinfo, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return Machine{}, err
	}
	meminfo, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return Machine{}, err
	}
	total, err := kilobytes(string(meminfo), "MemTotal:")
	if err != nil {
		return Machine{}, fmt.Errorf("reading the machine's memory: %w", err)
	}
	return Machine{
		CPU:    cpuModel(string(cpuinfo)),
		Cores:  runtime.NumCPU(),
		Kernel: unix.ByteSliceToString(name.Sysname[:]) + " " + unix.ByteSliceToString(name.Release[:]),
		Memory: total,
	}, nil
}

// cpuModel is the first "model name" of /proc/cpuinfo; ARM machines have none.
func cpuModel(cpuinfo string) string {
	for line := range strings.Lines(cpuinfo) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH + ", model unknown"
}

// Load is what all processors together did since the start of the machine.
type Load struct {
	Busy  time.Duration // neither idle nor waiting for a disk
	Steal time.Duration // wanted to run, and the host gave the core to another guest
}

// Sub is what was done between before and l.
func (l Load) Sub(before Load) Load {
	return Load{l.Busy - before.Busy, l.Steal - before.Steal}
}

// ReadLoad reads the first line of /proc/stat.
func ReadLoad() (Load, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return Load{}, err
	}
	return parseLoad(string(text))
}

// parseLoad reads the line "cpu user nice system idle iowait irq softirq steal
// guest guest_nice" (proc_stat(5)). Guest time is part of user time.
func parseLoad(text string) (Load, error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return Load{}, errors.New("reading /proc/stat: its first line is not that of all processors")
	}
	var n [8]time.Duration
	for i := range n {
		ticks, err := strconv.ParseInt(fields[i+1], 10, 64)
		if err != nil {
			return Load{}, fmt.Errorf("reading /proc/stat: %w", err)
		}
		n[i] = time.Duration(ticks) * tick
	}
	return Load{Busy: n[0] + n[1] + n[2] + n[5] + n[6], Steal: n[7]}, nil
}
