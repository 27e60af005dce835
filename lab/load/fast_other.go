//go:build !linux

package load

import (
	"errors"
	"time"
)

// fastPath is false where there is no epoll: all goes by goroutines.
const fastPath = false

var errNoEpoll = errors.New("this system has no epoll")

// RaiseFileLimit lets this process open as many files as it may. Only on Linux
// it can.
func RaiseFileLimit() (uint64, error) { return 0, errNoEpoll }

func newEpoll(*plan) (driver, error) { return nil, errNoEpoll }

// usage is the CPU time of this process; only on Linux it is known.
func usage() cpu { return cpu{} }

func nap(ns int64) { time.Sleep(time.Duration(ns)) }
