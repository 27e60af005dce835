//go:build unix

package main

import (
	"os"
	"syscall"
)

// taken are the signals that a slim server knows.
func taken() []os.Signal {
	return []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGHUP}
}
