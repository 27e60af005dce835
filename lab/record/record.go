// Package record reads what processes use: CPU time, memory, threads, files,
// context switches, system calls and, where the machine has counters,
// instructions. It looks from outside, through /proc and perf_event_open(2), and
// never guesses: what cannot be read is missing, with the reason.
package record

import (
	"context"
	"time"
)

// A Target is a process, or several that serve together, with all their
// children. Children are looked for anew at each reading, so that a server
// that forks workers is counted whole. Make it with Open, end it with Close.
type Target struct{}

// Open begins to watch processes. Counters begin at the moment of this call.
// It fails where a process does not exist or may not be looked at.
func Open(pids ...int) (*Target, error) { panic("not built") }

// Close gives the counters back.
func (t *Target) Close() error { panic("not built") }

// Missing says, one line each, what this machine or these rights do not show:
// "instructions: no hardware counters (perf_event_open: no such file or directory)".
func (t *Target) Missing() []string { panic("not built") }

// Read takes a reading now. It fails when no process of the target is left.
func (t *Target) Read() (Reading, error) { panic("not built") }

// Watch takes a reading at once and then every interval until ctx ends or the
// target does; it returns them in order (at most MaxReadings: beyond that every
// second one is dropped and the interval doubled, so that a long run is kept
// whole).
func (t *Target) Watch(ctx context.Context, every time.Duration, each func(Reading)) ([]Reading, error) {
	panic("not built")
}

// A Reading is one look at a target. Counters only grow, over all processes
// that belong or belonged to the target; gauges are of now.
type Reading struct {
	At time.Time

	CPU    time.Duration // user and system, to the nanosecond (the processes' CPU clocks)
	User   time.Duration // as /proc/PID/stat or schedstat has it, to the tick of 10 ms
	System time.Duration

	Instructions Instructions

	Voluntary   uint64 // context switches: it waited
	Involuntary uint64 // its time was up
	Syscalls    uint64 // by tracepoint; 0 and Missing where there is none
	ReadCalls   uint64 // read-like system calls, of /proc/PID/io
	WriteCalls  uint64
	Sendfiles   uint64 // sendfile(2) calls, by tracepoint
	ReadBytes   uint64 // bytes through read-like calls (rchar): what was copied to user space
	WriteBytes  uint64 // bytes through write-like calls (wchar)

	RSS       uint64 // bytes
	PSS       uint64 // bytes; 0 where it may not be read
	Threads   int
	Files     int // open descriptors
	Processes int
}

// Instructions are retired instructions; zero where the machine has no counters.
type Instructions struct{ User, Kernel uint64 }

// Sub is what happened between an earlier reading and this one: counters are
// differences, gauges those of r.
func (r Reading) Sub(earlier Reading) Reading { panic("not built") }

// System is the machine's state at one moment.
type System struct {
	At    time.Time
	Total time.Duration // CPU time of all cores, idle too
	Idle  time.Duration
	Steal time.Duration // taken by the hypervisor
	Load1 float64
}

// ReadSystem reads /proc/stat and /proc/loadavg.
func ReadSystem() (System, error) { panic("not built") }

// Thread counts the calling thread's own instructions and CPU time; the
// generator's threads use it. The caller must be locked to its thread.
type Thread struct{}

// OpenThread begins to count the calling thread.
func OpenThread() (*Thread, error) { panic("not built") }

// Read is the CPU time (user, system) and user instructions (0 where there are
// no counters) since OpenThread.
func (t *Thread) Read() (user, system time.Duration, instructions uint64, err error) {
	panic("not built")
}

// Close gives the counters back.
func (t *Thread) Close() error { panic("not built") }

// Counters reports whether this machine counts instructions for us, and if
// not, why.
func Counters() (ok bool, why string) { panic("not built") }
