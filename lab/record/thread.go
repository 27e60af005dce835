package record

import (
	"fmt"
	"time"
)

// Thread counts the calling thread's own instructions and CPU time; the
// generator's threads use it. The caller must be locked to its thread
// (runtime.LockOSThread) from OpenThread to the last Read.
type Thread struct{ t thread }

// OpenThread begins to count the calling thread.
func OpenThread() (*Thread, error) {
	t, err := openThread()
	if err != nil {
		return nil, fmt.Errorf("counting what a thread uses: %w", err)
	}
	return &Thread{t}, nil
}

// Read is the CPU time (user, system) and user instructions (0 where there are
// no counters) since OpenThread. The sum of both times is exact to the
// microsecond; how it is split is as good as the kernel's ticks of some
// milliseconds. It fails on another thread than OpenThread's.
func (t *Thread) Read() (user, system time.Duration, instructions uint64, err error) {
	user, system, instructions, err = t.t.read()
	if err != nil {
		return 0, 0, 0, fmt.Errorf("counting what a thread uses: %w", err)
	}
	return user, system, instructions, nil
}

// Close gives the counters back. Any thread may call it.
func (t *Thread) Close() error { return t.t.close() }
