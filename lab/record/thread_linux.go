package record

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// thread is the part of Thread that knows the system.
type thread struct {
	id           int
	event        int // descriptor of the counter, -1 where there is none
	user, system time.Duration
}

func openThread() (thread, error) {
	t := thread{id: unix.Gettid(), event: -1}
	var err error
	if t.user, t.system, err = threadTimes(); err != nil {
		return thread{}, err
	}
	attr, err := attributes(userInstructions)
	if err != nil {
		return thread{}, err
	}
	if fd, err := openEvent(attr, 0); err == nil { // Counters says why it fails
		t.event = fd
	}
	return t, nil
}

func (t *thread) read() (user, system time.Duration, instructions uint64, err error) {
	if id := unix.Gettid(); id != t.id {
		return 0, 0, 0, fmt.Errorf("thread %d is asked what thread %d used: its goroutine is not locked to it", id, t.id)
	}
	if user, system, err = threadTimes(); err != nil {
		return 0, 0, 0, err
	}
	if t.event >= 0 {
		if instructions, err = readEvent(t.event); err != nil {
			return 0, 0, 0, err
		}
	}
	return user - t.user, system - t.system, instructions, nil
}

func (t *thread) close() error {
	if t.event >= 0 {
		_ = unix.Close(t.event)
		t.event = -1
	}
	return nil
}

// threadTimes is what the calling thread used: the sum is exact to the
// microsecond, its parts are as the kernel's ticks saw them.
func threadTimes() (user, system time.Duration, err error) {
	var use unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &use); err != nil {
		return 0, 0, os.NewSyscallError("getrusage", err)
	}
	return time.Duration(use.Utime.Nano()), time.Duration(use.Stime.Nano()), nil
}
