//go:build !linux

package record

import (
	"errors"
	"runtime"
	"time"
)

// errSystem is what everything here says off Linux.
func errSystem() error {
	return errors.New("processes are measured on Linux only, this is " + runtime.GOOS)
}

// target never comes to be.
type target struct{ missing []string }

func openTarget([]int, bool) (*target, error) { return nil, errSystem() }
func (t *target) read(bool) (Reading, error)  { return Reading{}, errSystem() }
func (t *target) close() error                { return nil }

// thread never comes to be.
type thread struct{}

func openThread() (thread, error) { return thread{}, errSystem() }

func (t *thread) read() (user, system time.Duration, instructions uint64, err error) {
	return 0, 0, 0, errSystem()
}
func (t *thread) close() error { return nil }

func describe(m *Machine) { m.Kernel = runtime.GOOS }

func readSystem() (System, error) { return System{}, errSystem() }

func readEverybody() (map[int]Usage, error) { return nil, errSystem() }

func probeCounters() string { return errSystem().Error() }

func readListeners() ([]listener, error) { return nil, errSystem() }

func owners([]listener) (pids []int, refused bool, err error) { return nil, false, errSystem() }

// Addresses finds where processes accept connections. On this system it
// returns an error.
func Addresses(...int) ([]string, error) { return nil, errSystem() }

// Group is the processes of a process group. On this system it returns an
// error.
func Group(int) ([]int, error) { return nil, errSystem() }
