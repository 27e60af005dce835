package fill

import (
	"context"
	"time"
)

// Enter and Leave count the requests that want the outcome or read the body: each
// calls Enter and later, once, Leave. When none has been left for longer than the fill
// lingers, the leader's context ends.
//
// Enter returns false if that has happened, or the fill's time is up, or it was
// abandoned. The caller must not wait for this fill, owes no Leave, and should join
// again; it will get another fill. A refresh that nobody waits for enters for itself.
func (f *Fill[O]) Enter() bool {
	f.mu.Lock()
	over := f.over || !f.finished && f.ctx != nil && f.ctx.Err() != nil
	if !over {
		f.wanted++
		if f.wanted == 1 && f.timer != nil {
			f.timer.Stop()
		}
	}
	f.mu.Unlock()
	if over {
		f.Detach()
	}
	return !over
}

// Abandon ends a fill without an outcome, if the caller is the only one who wants it;
// its Leave is still owed. Otherwise it reports false: the fill has to go on for the
// others. Later requests start a fill of their own.
func (f *Fill[O]) Abandon() bool {
	f.group.mu.Lock()
	defer f.group.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.wanted > 1 || f.done {
		return f.done
	}
	f.finished, f.done, f.over = true, true, true
	f.group.remove(f)
	f.group.running--
	close(f.known)
	return true
}

// Leave undoes one Enter. It panics if there was none.
func (f *Fill[O]) Leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.wanted == 0 {
		panic("fill: Leave without Enter")
	}
	f.wanted--
	f.startLinger()
}

// Context is the leader's: it ends when nobody was interested for linger (with
// the cause ErrUnwanted), at limit after this call (context.DeadlineExceeded),
// or with Finish. A limit of 0 or less is none. Call it once, after the Enter
// of whoever the fill is for.
func (f *Fill[O]) Context(linger, limit time.Duration) context.Context {
	ctx, end := context.WithCancelCause(context.Background())
	if limit > 0 {
		limited, stop := context.WithTimeout(ctx, limit)
		cancel := end
		ctx, end = limited, func(cause error) { cancel(cause); stop() }
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ctx, f.end, f.linger = ctx, end, linger
	if f.finished {
		end(nil)
	}
	f.startLinger()
	return ctx
}

// startLinger starts the linger time if nobody is interested. f.mu is held.
func (f *Fill[O]) startLinger() {
	switch {
	case f.wanted > 0 || f.ctx == nil || f.finished:
	case f.linger <= 0:
		f.end(ErrUnwanted)
	default:
		f.idle = time.Now()
		if f.timer == nil {
			f.timer = time.AfterFunc(f.linger, f.lapse)
		} else {
			f.timer.Reset(f.linger)
		}
	}
}

// lapse ends the context when the fill has lingered. Where the timer fired just before
// somebody came and left again, the time is not up.
func (f *Fill[O]) lapse() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.wanted == 0 && !f.finished && time.Since(f.idle) >= f.linger {
		f.end(ErrUnwanted)
	}
}
