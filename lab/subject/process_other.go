//go:build !linux

package subject

import (
	"errors"
	"os/exec"
	"runtime"
	"syscall"
)

// setGroup refuses: without Linux nothing could be measured of the server, nor
// would it end with us.
func setGroup(*exec.Cmd) error {
	return errors.New("servers to measure are started on Linux only, this is " + runtime.GOOS)
}

// awaitEnd is not reached, as no process starts.
func awaitEnd(int) {}

// killGroup is not reached either.
func killGroup(int, syscall.Signal) {}
