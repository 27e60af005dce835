package lane

import (
	"context"
	"fmt"
)

// CheckLoops has every loop say that it still goes round, and returns when all have.
// The error says which one has not by the end of ctx. Loops wait for nothing but
// their descriptors: one that does not answer hangs.
func (l *Lane) CheckLoops(ctx context.Context) error {
	if !l.on() {
		return nil
	}
	l.loopsOnce.Do(l.startLoops)
	for i, lp := range l.loops {
		answered := make(chan struct{})
		select {
		case lp.pings <- answered:
		default: // an earlier question waits: this one need not
			return fmt.Errorf("event loop %d has not answered the last time", i)
		}
		lp.waker.Wake()
		select {
		case <-answered:
		case <-ctx.Done():
			return fmt.Errorf("event loop %d does not answer: %w", i, ctx.Err())
		}
	}
	return nil
}

// pong answers who asks whether the loop goes round.
func (lp *loop) pong() {
	select {
	case answered := <-lp.pings:
		close(answered)
	default:
	}
}
