package lane

import (
	"context"
	"fmt"
)

// CheckLoops asks every loop for a sign of life, and returns when all have given it. The
// error says which one has not before ctx has ended: a loop waits for nothing but events, so
// that one hangs.
func (l *Lane) CheckLoops(ctx context.Context) error {
	if !l.on() {
		return nil
	}
	l.loopsOnce.Do(l.startLoops)
	for i, lp := range l.loops {
		answered := make(chan struct{})
		select {
		case lp.pings <- answered:
		default: // it has not answered the last CheckLoops
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

// pong answers a CheckLoops.
func (lp *loop) pong() {
	select {
	case answered := <-lp.pings:
		close(answered)
	default:
	}
}
