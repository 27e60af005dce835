package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxCounters bounds the descriptors that counting takes, one for each thread
// of the target and kind: a process may hold about 20,000 on small machines,
// and the generator needs most of them.
const maxCounters = 4096

// A kind of event is one that the kernel counts for us.
type kind int

const (
	userInstructions kind = iota
	kernelInstructions
	systemCalls
	sendfiles
	kinds
)

// String is the event's name in what is missing.
func (k kind) String() string {
	return [...]string{"user instructions", "kernel instructions", "system calls", "sendfile calls"}[k]
}

// counters are events counted by the kernel (perf_event_open(2)) in the threads
// that a target had when they were opened, and in all threads and processes
// that those start later; the ended are held, too.
type counters struct {
	events [kinds][]int // descriptors
}

// openTries is how often counters are opened anew because threads started
// meanwhile: a server that just begins starts a few, one that starts some all
// the time never comes to rest.
const openTries = 10

// openCounters begins to count in all threads, which list lists. What cannot be
// counted is said, not an error.
//
// A thread that starts while counters are opened may have one from its creator
// or not, which nobody can tell: then all are opened anew.
func openCounters(list func() ([]int, error), traced bool) (counters, []string, error) {
	for try := 1; ; try++ {
		threads, err := list()
		if err != nil {
			return counters{}, nil, err
		}
		c, missing := openOnce(threads, traced)
		now, err := list()
		if err != nil {
			c.close()
			return counters{}, nil, err
		}
		started := slices.ContainsFunc(now, func(tid int) bool { return !slices.Contains(threads, tid) })
		if started && try == openTries {
			missing = append(missing, "some events: the target starts threads all the time, and those that did while counting began are not counted")
		}
		if !started || try == openTries {
			return c, missing, nil
		}
		c.close()
	}
}

// openOnce opens counters in threads.
func openOnce(threads []int, traced bool) (counters, []string) {
	var c counters
	var missing []string
	for k := range kinds {
		if !traced && (k == systemCalls || k == sendfiles) {
			missing = append(missing, k.String()+": not counted here, as counting slows each of them")
			continue
		}
		if len(threads) > maxCounters/int(kinds) {
			missing = append(missing, fmt.Sprintf("%v: the target has %d threads, and one descriptor for each is too many", k, len(threads)))
			continue
		}
		attr, err := attributes(k)
		if err == nil {
			attr.Bits |= unix.PerfBitInherit
			c.events[k], err = openEvents(attr, threads)
		}
		if err != nil {
			missing = append(missing, fmt.Sprintf("%v: %s", k, reason(k, err)))
		}
	}
	return c, shorten(missing)
}

// shorten says in one line that both kinds of instructions are missing for
// one reason.
func shorten(missing []string) []string {
	if len(missing) < 2 {
		return missing
	}
	user, ok1 := strings.CutPrefix(missing[0], userInstructions.String())
	kernel, ok2 := strings.CutPrefix(missing[1], kernelInstructions.String())
	if !ok1 || !ok2 || user != kernel {
		return missing
	}
	return append([]string{"instructions" + user}, missing[2:]...)
}

// attributes describe an event to the kernel.
func attributes(k kind) (*unix.PerfEventAttr, error) {
	attr := &unix.PerfEventAttr{
		Size:        unix.PERF_ATTR_SIZE_VER1, // what is used of it is as old
		Read_format: unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING,
	}
	switch k {
	case userInstructions, kernelInstructions:
		attr.Type = unix.PERF_TYPE_HARDWARE
		attr.Config = unix.PERF_COUNT_HW_INSTRUCTIONS
		attr.Bits = unix.PerfBitExcludeHv | unix.PerfBitExcludeKernel
		if k == kernelInstructions {
			attr.Bits = unix.PerfBitExcludeHv | unix.PerfBitExcludeUser
		}
		return attr, nil
	case systemCalls:
		return attr, tracepoint(attr, "raw_syscalls/sys_enter")
	case sendfiles:
		return attr, tracepoint(attr, "syscalls/sys_enter_sendfile64")
	}
	return nil, fmt.Errorf("no event of kind %d", k)
}

// tracepoint makes attr that of a tracepoint, whose number the kernel gave out
// at its start.
func tracepoint(attr *unix.PerfEventAttr, name string) error {
	var first error
	for _, root := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		text, err := os.ReadFile(filepath.Join(root, "events", name, "id"))
		if err != nil {
			if first == nil {
				first = err
			}
			continue
		}
		id, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return fmt.Errorf("the number of tracepoint %s: %w", name, err)
		}
		attr.Type, attr.Config = unix.PERF_TYPE_TRACEPOINT, id
		return nil
	}
	return first
}

// openEvents opens one event in each thread; none where one fails. Threads that
// have ended have none.
func openEvents(attr *unix.PerfEventAttr, threads []int) ([]int, error) {
	var events []int
	for _, tid := range threads {
		fd, err := openEvent(attr, tid)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			closeEvents(events)
			return nil, err
		}
		events = append(events, fd)
	}
	return events, nil
}

// openEvent begins to count an event in a thread; 0 is the calling one.
func openEvent(attr *unix.PerfEventAttr, tid int) (int, error) {
	fd, err := unix.PerfEventOpen(attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("perf_event_open", err)
	}
	return fd, nil
}

func closeEvents(events []int) {
	for _, fd := range events {
		_ = unix.Close(fd) // only read from: nothing is lost
	}
}

// reason says in one line why an event cannot be counted and what helps.
func reason(k kind, err error) string {
	instructions := k == userInstructions || k == kernelInstructions
	switch {
	case !instructions && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM):
		return fmt.Sprintf("no tracepoint (%v)", err)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENODEV):
		return fmt.Sprintf("no hardware counters (%v); a virtual machine has them only if its host passes them on", err)
	case errors.Is(err, unix.ENOSYS):
		return fmt.Sprintf("this kernel counts no events (%v)", err)
	case !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM):
		return err.Error()
	case !instructions:
		return fmt.Sprintf("not allowed (%v): run this as root", err)
	}
	enough := 2 - int(k) // 2 for user instructions, 1 for the kernel's
	return fmt.Sprintf("not allowed (%v, kernel.perf_event_paranoid is %s): run this as root, or as the process's user with sysctl kernel.perf_event_paranoid=%d",
		err, paranoid(), enough)
}

// paranoid is how much the kernel forbids.
func paranoid() string {
	text, err := os.ReadFile("/proc/sys/kernel/perf_event_paranoid")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}

// read stores the counts since the counters were opened in r.
func (c *counters) read(r *Reading) error {
	for k, to := range [kinds]*uint64{&r.Instructions.User, &r.Instructions.Kernel, &r.Syscalls, &r.Sendfiles} {
		*to = 0
		for _, fd := range c.events[k] {
			n, err := readEvent(fd)
			if err != nil {
				return fmt.Errorf("counting %v: %w", kind(k), err)
			}
			*to += n
		}
	}
	return nil
}

// readEvent reads one counter.
func readEvent(fd int) (uint64, error) {
	var raw [24]byte // value, time enabled, time running
	for {
		n, err := unix.Read(fd, raw[:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n != len(raw):
			return 0, fmt.Errorf("the kernel gave %d bytes of a counter", n)
		default:
			number := binary.NativeEndian.Uint64
			return scale(number(raw[:]), number(raw[8:]), number(raw[16:])), nil
		}
	}
}

// scale is what a counter would show had it run all the time: the processor has
// few, and others may want them, too.
func scale(count, enabled, running uint64) uint64 {
	if running == 0 || running >= enabled {
		return count
	}
	high, low := bits.Mul64(count, enabled)
	if high >= running {
		return math.MaxUint64
	}
	scaled, _ := bits.Div64(high, low, running)
	return scaled
}

func (c *counters) close() {
	for k := range c.events {
		closeEvents(c.events[k])
		c.events[k] = nil
	}
}

// probeCounters says why instructions cannot be counted, or nothing where they
// can.
func probeCounters() string {
	attr, err := attributes(userInstructions)
	if err != nil {
		return err.Error()
	}
	fd, err := openEvent(attr, 0)
	if err != nil {
		return reason(userInstructions, err)
	}
	_ = unix.Close(fd)
	return ""
}
