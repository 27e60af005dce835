//go:build unix

package cli

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// What was begun is taken back also when the terminal is closed.
func TestUntilInterrupted(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if signal.Ignored(sig) {
			continue // by nohup, and so it stays
		}
		ctx, stop := UntilInterrupted()
		if err := syscall.Kill(os.Getpid(), sig); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Minute):
			t.Errorf("%v did not end it", sig)
		}
		stop()
	}
}

func TestIgnoredHangup(t *testing.T) {
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	_, stop := UntilInterrupted()
	defer stop()
	if !signal.Ignored(syscall.SIGHUP) {
		t.Error("nohup has no effect any more")
	}
}
