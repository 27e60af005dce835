package servecmd

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestStops: a server that hangs ends when it has been asked to often enough,
// in its start also after a while.
func TestStops(t *testing.T) {
	for name, c := range map[string]struct {
		up    bool
		sent  []os.Signal
		after time.Duration
		want  bool
	}{
		"one, up":            {true, []os.Signal{syscall.SIGTERM}, time.Hour, false},
		"two, up":            {true, []os.Signal{syscall.SIGTERM, syscall.SIGINT}, time.Hour, false},
		"three, up":          {true, []os.Signal{syscall.SIGTERM, syscall.SIGTERM, syscall.SIGTERM}, 0, true},
		"one, starting":      {false, []os.Signal{syscall.SIGTERM}, startGrace - 1, false},
		"one, still so":      {false, []os.Signal{syscall.SIGTERM}, startGrace, true},
		"two, starting":      {false, []os.Signal{syscall.SIGTERM, syscall.SIGTERM}, 0, true},
		"others, starting":   {false, []os.Signal{syscall.SIGHUP, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2}, time.Hour, false},
		"more than are kept": {true, slices.Repeat([]os.Signal{syscall.SIGHUP}, 2*signalQueue), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Signals{taken: make(chan os.Signal, signalQueue), out: make(chan os.Signal, signalQueue), quit: make(chan struct{}), done: make(chan struct{})}
				s.up.Store(c.up)
				exited := false
				go s.watch(func() { exited = true })
				for _, sig := range c.sent { // nobody takes them from it
					s.taken <- sig
					synctest.Wait()
				}
				time.Sleep(c.after)
				synctest.Wait()
				if exited != c.want {
					t.Errorf("ended: %t, want %t", exited, c.want)
				}
				s.stop()
			})
		})
	}
}

// TestRelease: what has come for a command that serves nothing does what it
// would have done.
func TestRelease(t *testing.T) {
	s := TakeSignals(nil)
	s.taken <- syscall.SIGUSR1
	other := make(chan os.Signal, 1) // instead of the end of this test
	signal.Notify(other, syscall.SIGUSR1)
	defer signal.Stop(other)
	s.Release()
	if sig := <-other; sig != syscall.SIGUSR1 {
		t.Errorf("got %v", sig)
	}
}

// Commands that serve nothing go on under nohup.
func TestReleaseUnderNohup(t *testing.T) {
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	TakeSignals(nil).Release()
	if !signal.Ignored(syscall.SIGHUP) {
		t.Error("nohup has no effect any more")
	}
}
