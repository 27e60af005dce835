package console

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// UntilInterrupted is a context that an interrupt ends; a second one ends the
// program.
func UntilInterrupted() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
