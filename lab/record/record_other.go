//go:build !linux

package record

import (
	"errors"
	"runtime"
)

// errSystem is what everything here says off Linux.
func errSystem() error {
	return errors.New("processes are measured on Linux only, this is " + runtime.GOOS)
}

func readListeners() ([]listener, error) { return nil, errSystem() }

func owners([]listener) (pids []int, refused bool, err error) { return nil, false, errSystem() }

// Addresses finds where processes accept connections. On this system it
// returns an error.
func Addresses(...int) ([]string, error) { return nil, errSystem() }

// Group is the processes of a process group. On this system it returns an
// error.
func Group(int) ([]int, error) { return nil, errSystem() }
