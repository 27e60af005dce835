//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// signalQueue holds what came while one signal was being served. More than a
// few at once say nothing new.
const signalQueue = 8

// notify takes over the signals that a server knows.
func notify() (<-chan os.Signal, func()) {
	c := make(chan os.Signal, signalQueue)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	return c, func() { signal.Stop(c) }
}

func isReload(s os.Signal) bool  { return s == syscall.SIGHUP }
func isReopen(s os.Signal) bool  { return s == syscall.SIGUSR1 }
func isProfile(s os.Signal) bool { return s == syscall.SIGUSR2 }
