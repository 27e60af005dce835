//go:build amd64 || arm64

package record

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// Of ptrace(2); package syscall does not name these.
const (
	ptraceSyscall     = 24
	ptraceDetach      = 17
	ptraceSeize       = 0x4206
	ptraceInterrupt   = 0x4207
	ptraceSyscallInfo = 0x420e

	optionSysgood = 1 // stops at system calls are told from others by a bit in the signal
	optionClone   = 8 // threads that begin are traced, too
	optionFork    = 2

	sysgoodBit  = 0x80
	infoEntry   = 1
	infoExit    = 2
	waitAll     = 0x40000000 // __WALL: threads, too
	waitOwnOnly = 0x20000000 // __WNOTHREAD: leaves the children of our other threads to them

	// tracePoll is how often threads that are to be released are looked at.
	tracePoll = 100 * time.Microsecond
	// seizePasses is how often new threads are looked for; servers that serve
	// nobody begin none.
	seizePasses = 5
	// traceEnd bounds the release of all threads; a stop takes microseconds.
	traceEnd = 5 * time.Second
)

// syscallInfo is struct ptrace_syscall_info of linux/ptrace.h, as far as entry
// and exit need it.
type syscallInfo struct {
	op   uint8
	_    [3]byte
	arch uint32
	_    [2]uint64 // instruction and stack pointer
	nr   uint64    // at entry: the call's number; at exit: what it returned
	args [6]uint64
	_    [2]uint64
}

// A tracer counts what the system calls of other processes move. All of it
// runs on one thread, as ptrace demands.
type tracer struct {
	Moved
	calls map[int]uint64 // by thread: the call that it is in
	held  map[int]bool   // threads that are traced
}

// TraceMoves counts the system calls of processes while do runs. They must be
// descendants of this process but not its children, of which the kernel would tell any
// thread that waits; a cautious one allows no others.
func TraceMoves(pids []int, do func() error) (Moved, error) {
	type outcome struct {
		Moved
		err error
	}
	result := make(chan outcome, 1)
	go func() { // ends with the trace, which is waited for below
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		t := &tracer{calls: map[int]uint64{}, held: map[int]bool{}}
		err := t.run(pids, do)
		result <- outcome{t.Moved, err}
	}()
	o := <-result
	return o.Moved, o.err
}

func (t *tracer) run(pids []int, do func() error) error {
	err := t.seize(pids)
	if err == nil {
		done := make(chan error, 1)
		go func() { // waited for in follow
			done <- do()
			// The tracer waits for stops only: so here is one, by a signal that
			// servers ignore or, those in Go, expect at any time.
			_ = syscall.Kill(pids[0], syscall.SIGURG) // fails only where that has ended, which is a stop, too
		}()
		err = t.follow(done)
	}
	return errors.Join(err, t.release())
}

// seize begins to trace all threads of the processes, and lets them run on. It
// looks again until nobody new is there: a thread that is not traced yet may
// begin others.
func (t *tracer) seize(pids []int) error {
	for range seizePasses {
		before := len(t.held)
		for _, pid := range pids {
			tasks, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
			if err != nil {
				return fmt.Errorf("tracing process %d: %w", pid, err)
			}
			for _, task := range tasks {
				tid, err := strconv.Atoi(task.Name())
				if err == nil && !t.held[tid] {
					err = t.seizeOne(tid)
				}
				if err != nil {
					return fmt.Errorf("tracing process %d (a container may forbid it): %w", pid, err)
				}
			}
		}
		if len(t.held) == before {
			break
		}
	}
	return nil
}

func (t *tracer) seizeOne(tid int) error {
	switch err := ptrace(ptraceSeize, tid, 0, optionSysgood|optionClone|optionFork); {
	case errors.Is(err, syscall.ESRCH):
		return nil // it has ended meanwhile
	case errors.Is(err, syscall.EPERM) && tracedBy(tid) == syscall.Gettid():
		return nil // begun by a thread that was traced already: it stops by itself
	case err != nil:
		return err
	}
	t.held[tid] = true
	return ptrace(ptraceInterrupt, tid, 0, 0)
}

// tracedBy is the thread that traces another, 0 for none.
func tracedBy(tid int) int {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(tid), "status"))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "\nTracerPid:")
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		return 0
	}
	return n
}

// follow counts until the download is over.
func (t *tracer) follow(done <-chan error) error {
	for {
		tid, status, err := nextStop(0)
		if err != nil {
			return errors.Join(err, <-done)
		}
		if signal, stopped := t.stop(tid, status); stopped {
			_ = ptrace(ptraceSyscall, tid, 0, signal) // fails for a thread that was killed
		}
		select {
		case err := <-done:
			return err
		default:
		}
	}
}

// release lets all threads go.
func (t *tracer) release() error {
	for tid := range t.held {
		_ = ptrace(ptraceInterrupt, tid, 0, 0) // fails for one that has ended
	}
	for end := time.Now().Add(traceEnd); len(t.held) > 0 && time.Now().Before(end); {
		tid, status, err := nextStop(syscall.WNOHANG)
		if err != nil {
			return nil // nobody is traced any more
		}
		if tid == 0 {
			time.Sleep(tracePoll)
			continue
		}
		if signal, stopped := t.stop(tid, status); stopped {
			_ = ptrace(ptraceDetach, tid, 0, signal)
			delete(t.held, tid)
		}
	}
	if len(t.held) > 0 {
		return fmt.Errorf("%d threads of the server did not stop to be released", len(t.held))
	}
	return nil
}

// nextStop is a traced thread that has stopped or ended; with WNOHANG it is 0
// when there is none now.
func nextStop(options int) (tid int, status syscall.WaitStatus, err error) {
	for {
		tid, err = syscall.Wait4(-1, &status, options|waitAll|waitOwnOnly, nil)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return 0, 0, fmt.Errorf("waiting for the traced server: %w", err)
	}
	return tid, status, nil
}

// stop takes note of why a thread has stopped. It returns the signal to let it
// go on with, and false when it has ended.
func (t *tracer) stop(tid int, status syscall.WaitStatus) (signal uintptr, stopped bool) {
	if !status.Stopped() {
		delete(t.held, tid)
		delete(t.calls, tid)
		return 0, false
	}
	t.held[tid] = true
	switch event := int(status>>16) & 0xff; {
	case status.StopSignal() == syscall.SIGTRAP|sysgoodBit:
		t.count(tid)
		return 0, true
	case event != 0:
		return 0, true
	}
	return uintptr(status.StopSignal()), true // meant for the server
}

// count looks at the system call that a thread enters or leaves.
func (t *tracer) count(tid int) {
	var info syscallInfo
	// The pointer becomes a number only here, where the compiler keeps it alive
	// and in its place.
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, ptraceSyscallInfo, uintptr(tid),
		unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 {
		return // it was killed
	}
	if info.op == infoEntry {
		t.calls[tid] = info.nr
		return
	}
	call, seen := t.calls[tid]
	if info.op != infoExit || !seen {
		return
	}
	delete(t.calls, tid)
	n := int64(info.nr) // a result may be negative: an error
	switch call {
	case syscall.SYS_SENDFILE:
		t.Sendfile.add(n)
	case syscall.SYS_SPLICE:
		t.Splice.add(n)
	case syscall.SYS_READ, syscall.SYS_PREAD64, syscall.SYS_READV, syscall.SYS_PREADV, syscall.SYS_RECVFROM, syscall.SYS_RECVMSG:
		t.Read.add(n)
	case syscall.SYS_WRITE, syscall.SYS_PWRITE64, syscall.SYS_WRITEV, syscall.SYS_PWRITEV, syscall.SYS_SENDTO, syscall.SYS_SENDMSG:
		t.Write.add(n)
	default:
		t.Other++
	}
}

func ptrace(request, tid int, address, data uintptr) error {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, uintptr(request), uintptr(tid), address, data, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
