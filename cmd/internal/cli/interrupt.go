package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// UntilInterrupted is a context that an interrupt ends, or a terminal that is closed;
// a second one ends the program.
func UntilInterrupted() (context.Context, context.CancelFunc) {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup has it ignored
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
