package pgo

import (
	"errors"
	"regexp"
)

// ErrNoSignal is a process that SIGUSR2 would end or that does not hear it.
var ErrNoSignal = errors.New("it does not take a profile at SIGUSR2")

// signalFile is how millrace names the profiles that it takes at SIGUSR2:
// millrace-PID-TIME.pprof, in the folder for temporary files.
var signalFile = regexp.MustCompile(`^millrace-\d+-\d{8}T\d{6}(\.\d+)?\.pprof$`)
