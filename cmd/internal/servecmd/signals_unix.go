//go:build unix

package servecmd

import (
	"os"
	"syscall"
)

// serverSignals are those that a server knows.
func serverSignals() []os.Signal {
	return []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2}
}

// raise sends this process a signal.
func raise(s os.Signal) {
	if n, ok := s.(syscall.Signal); ok {
		_ = syscall.Kill(os.Getpid(), n) // a process may always signal itself
	}
}

// hangUp asks a server to read its config again.
func hangUp(p *os.Process) error { return p.Signal(syscall.SIGHUP) } //nolint:wrapcheck // the caller says what was done

func isReload(s os.Signal) bool  { return s == syscall.SIGHUP }
func isReopen(s os.Signal) bool  { return s == syscall.SIGUSR1 }
func isProfile(s os.Signal) bool { return s == syscall.SIGUSR2 }
