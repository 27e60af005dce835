// Package record holds what a measurement found ([Result]), and reads what processes
// use: CPU time, memory, threads, files,
// context switches, system calls and, where the machine has counters,
// instructions. It looks from outside, through /proc and perf_event_open(2), and
// never guesses: what cannot be read is missing, with the reason.
package record

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ErrEnded says that no process of a target is left.
var ErrEnded = errors.New("no process of the target is left")

// A Target is a process, or several that serve together, with all their
// children. Children are looked for anew at each reading, so that a server
// that forks workers is counted whole, and one that was seen stays in the
// target when its parent dies. Make it with Open, end it with Close. Its
// methods may be called by several goroutines.
//
// What a process used until it ended is known as far as its parent waited for
// it, if that belongs to the target (CPU time then to the tick of 10 ms, reads
// and writes exactly; context switches not). Otherwise what it used after the
// last reading is lost, all of it if it lived between two readings. Of
// instructions and system calls nothing is lost.
type Target struct {
	pids []int // that were named
	mu   sync.Mutex
	t    *target
}

// Open begins to watch processes. Counters begin at the moment of this call.
// It fails where a process does not exist or may not be looked at. System calls
// are not counted: see OpenTraced.
func Open(pids ...int) (*Target, error) { return open(pids, false) }

// OpenTraced is Open, and counts system calls, all of them and sendfile(2),
// where the kernel's tracepoints may be used (by root). Counting slows each
// system call of the machine, of the target's by some 0.1 µs: it is for the
// question what a server does, not for how fast it is.
func OpenTraced(pids ...int) (*Target, error) { return open(pids, true) }

func open(pids []int, traced bool) (*Target, error) {
	pids = slices.Compact(slices.Sorted(slices.Values(pids)))
	if len(pids) == 0 {
		return nil, errors.New("watching processes: none is named")
	}
	t, err := openTarget(pids, traced)
	if err != nil {
		return nil, err
	}
	return &Target{pids: pids, t: t}, nil
}

// Has reports whether a process is one of those that were named to Open.
func (t *Target) Has(pid int) bool { return slices.Contains(t.pids, pid) }

// Close gives the counters back. Readings after it fail.
func (t *Target) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.t.close()
}

// Missing says, one line each, what this machine or these rights do not show:
// "instructions: no hardware counters (perf_event_open: no such file or directory) …".
func (t *Target) Missing() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.t.missing)
}

// Read takes a reading now, without PSS. When no process of the target is left
// it fails with ErrEnded, and the reading holds the counters as they were seen
// last. It costs some 10 µs a process and as much a thread.
func (t *Target) Read() (Reading, error) { return t.read(false) }

// ReadMemory is Read with PSS, which the kernel adds up page by page: some
// milliseconds for a process of a gigabyte, during which the process cannot
// map memory.
func (t *Target) ReadMemory() (Reading, error) { return t.read(true) }

func (t *Target) read(pss bool) (Reading, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, err := t.t.read(pss)
	if err != nil {
		return r, fmt.Errorf("reading what the processes use: %w", err)
	}
	return r, nil
}

// A Reading is one look at a target. Counters only grow, over all processes
// that belong or belonged to the target; gauges are of now.
type Reading struct {
	At time.Time

	CPU    time.Duration // user and system, to the nanosecond (the processes' CPU clocks)
	User   time.Duration // as /proc/PID/stat has it, to the tick of 10 ms
	System time.Duration

	Instructions Instructions

	Voluntary   uint64 // context switches: it waited
	Involuntary uint64 // its time was up
	Syscalls    uint64 // by tracepoint; 0 and Missing where there is none
	ReadCalls   uint64 // read-like system calls, of /proc/PID/io
	WriteCalls  uint64
	Sendfiles   uint64 // sendfile(2) calls, by tracepoint
	ReadBytes   uint64 // bytes through read-like calls (rchar): what was copied to user space, and sendfile's
	WriteBytes  uint64 // bytes through write-like calls (wchar)

	RSS       uint64 // bytes
	PSS       uint64 // bytes; 0 where it was not asked for or may not be read
	Threads   int
	Files     int // open descriptors
	Processes int
}

// Instructions are retired instructions; zero where the machine has no counters.
type Instructions struct{ User, Kernel uint64 }

// Sub is what happened between an earlier reading and this one: counters are
// differences, gauges those of r. A counter that fell, as one of another
// target would, is 0.
func (r Reading) Sub(earlier Reading) Reading {
	return r.with(earlier, func(now, before time.Duration) time.Duration { return max(0, now-before) }, since)
}

// since is how far a counter went.
func since(now, earlier uint64) uint64 {
	if now < earlier {
		return 0
	}
	return now - earlier
}

// atLeast is r with counters not below those of an earlier reading. They
// would fall for a moment when a child's end is seen before its parent's
// counters show it, or was rounded down in them.
func (r Reading) atLeast(earlier Reading) Reading {
	return r.with(earlier,
		func(now, before time.Duration) time.Duration { return max(now, before) },
		func(now, before uint64) uint64 { return max(now, before) })
}

// with is r with what becomes of its CPU times and its other counters beside
// those of an earlier reading.
func (r Reading) with(earlier Reading, times func(now, before time.Duration) time.Duration, counters func(now, before uint64) uint64) Reading {
	r.CPU = times(r.CPU, earlier.CPU)
	r.User = times(r.User, earlier.User)
	r.System = times(r.System, earlier.System)
	r.Instructions.User = counters(r.Instructions.User, earlier.Instructions.User)
	r.Instructions.Kernel = counters(r.Instructions.Kernel, earlier.Instructions.Kernel)
	r.Voluntary = counters(r.Voluntary, earlier.Voluntary)
	r.Involuntary = counters(r.Involuntary, earlier.Involuntary)
	r.Syscalls = counters(r.Syscalls, earlier.Syscalls)
	r.ReadCalls = counters(r.ReadCalls, earlier.ReadCalls)
	r.WriteCalls = counters(r.WriteCalls, earlier.WriteCalls)
	r.Sendfiles = counters(r.Sendfiles, earlier.Sendfiles)
	r.ReadBytes = counters(r.ReadBytes, earlier.ReadBytes)
	r.WriteBytes = counters(r.WriteBytes, earlier.WriteBytes)
	return r
}

// System is the machine's state at one moment.
type System struct {
	At    time.Time
	Total time.Duration // CPU time of all cores, idle too
	Idle  time.Duration // waiting for a disk included
	Steal time.Duration // taken by the hypervisor
	Load1 float64       // processes that ran or wanted to, over the last minute
}

// ReadSystem reads /proc/stat and /proc/loadavg.
func ReadSystem() (System, error) {
	s, err := readSystem()
	if err != nil {
		return System{}, fmt.Errorf("reading the state of the machine: %w", err)
	}
	return s, nil
}

// Counters reports whether this machine counts instructions for us, and if
// not, why.
func Counters() (ok bool, why string) {
	why = probeCounters()
	return why == "", why
}
