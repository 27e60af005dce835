//go:build !unix

package main

import (
	"os"
	"os/signal"
)

// signalQueue holds what came while one signal was being served.
const signalQueue = 8

// notify takes over the one signal there is: Ctrl+C.
func notify() (<-chan os.Signal, func()) {
	c := make(chan os.Signal, signalQueue)
	signal.Notify(c, os.Interrupt)
	return c, func() { signal.Stop(c) }
}

func isReload(os.Signal) bool  { return false }
func isReopen(os.Signal) bool  { return false }
func isProfile(os.Signal) bool { return false }
