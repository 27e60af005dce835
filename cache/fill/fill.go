// Package fill gets one thing once, however many wait for it: a Group joins
// requests for the same key to one Fill, whose Body they read while it grows.
//
// The life of a fill, as package cache leads it:
//
//  1. A request misses and calls [Group.Join]. The first one for a key is told
//     that it is the leader; it starts the leader's goroutine, which belongs to
//     the cache and not to a client, and then waits like all others.
//  2. Each of them calls [Fill.Enter], [Fill.Wait] with its own context and, at
//     the end of its answer, [Fill.Leave]. When all have left for longer than
//     the fill lingers, the leader's context ends.
//  3. The leader learns from the response's header what the fill leads to and
//     says so with [Fill.Settle]; that lets everybody go on at once and in
//     parallel. If the answer is not for everyone, it calls [Fill.Detach] first,
//     so that nobody else joins.
//  4. It writes the response's content into the [Body], out of which the others
//     read meanwhile, closes it, stores it if it is whole, and calls [Fill.Finish].
//
// Nothing here polls, and nothing has a goroutine: whoever waits does so in its
// own, on a channel that is closed when there is something new.
package fill

import (
	"context"
	"errors"
	"sync"
	"time"
)

var (
	// ErrBroken is what readers of a Body get when its source failed before its
	// end; the cause is wrapped.
	ErrBroken = errors.New("the fill broke off")
	// ErrUnwanted is the cause with which a fill's context ends when nobody has
	// been interested in it for as long as it lingers.
	ErrUnwanted = errors.New("nobody waits for the fill any more")
	// ErrUnread is what the writer of a window gets when all its readers have gone.
	ErrUnread = errors.New("nobody reads the fill any more")
)

// Group joins requests by key. The zero value is ready. It holds one entry for
// each fill under way, of which there are as many as the caller lets run.
//
// One mutex is enough: it is held for a map access, once at the beginning and
// once at the end of a fetch from an origin that takes a thousand times longer.
type Group[O any] struct {
	mu      sync.Mutex
	fills   map[string]*Fill[O] // those that can be joined
	running int                 // all, also those that cannot
}

// Join returns the running fill for a key, or starts one: then leader is true
// and the caller must run it, in a goroutine that does not end with its client,
// up to Finish.
func (g *Group[O]) Join(key string) (f *Fill[O], leader bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.fills[key]; f != nil {
		return f, false
	}
	if g.fills == nil {
		g.fills = make(map[string]*Fill[O])
	}
	f = &Fill[O]{group: g, key: key, known: make(chan struct{})}
	g.fills[key] = f
	g.running++
	return f, true
}

// Running is the number of fills under way, detached ones too.
func (g *Group[O]) Running() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running
}

// Fill is one fetch from the origin. O is what it leads to, known when the
// response's header is.
type Fill[O any] struct {
	group *Group[O]
	key   string

	known   chan struct{} // closed when the outcome is known, or will never be
	outcome O             // set before known is closed
	settled bool          // likewise

	mu       sync.Mutex // of all below, and of closing known
	done     bool       // known is closed
	finished bool
	over     bool      // by Abandon
	wanted   int       // Enter without Leave
	idle     time.Time // since when wanted is 0
	linger   time.Duration
	timer    *time.Timer // of linger; nil until it is first needed
	ctx      context.Context
	end      context.CancelCauseFunc
}

// Settle tells all who wait what the fill has led to; who joins later gets it
// at once. Only the first call counts, and none after Finish.
func (f *Fill[O]) Settle(o O) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done {
		return
	}
	f.outcome, f.settled, f.done = o, true, true
	close(f.known)
}

// Detach makes the next request for the key start a fill of its own, without
// ending this one: its answer is not for everyone, or is no longer joinable.
func (f *Fill[O]) Detach() {
	f.group.mu.Lock()
	defer f.group.mu.Unlock()
	f.group.remove(f)
}

// remove takes f out, unless its key is another fill's by now; g.mu is held.
func (g *Group[O]) remove(f *Fill[O]) {
	if g.fills[f.key] == f {
		delete(g.fills, f.key)
	}
}

// Finish ends the fill: it is no longer found, and its context ends. Without a
// Settle before, those who wait get ErrBroken. A second call does nothing.
func (f *Fill[O]) Finish() {
	f.mu.Lock()
	if f.finished {
		f.mu.Unlock()
		return
	}
	f.finished = true
	broken := !f.done
	f.done = true
	if f.timer != nil {
		f.timer.Stop()
	}
	end := f.end
	f.mu.Unlock()

	f.group.mu.Lock()
	f.group.remove(f)
	f.group.running--
	f.group.mu.Unlock()
	if broken {
		close(f.known) // only now: who is told, and asks again, must not join this fill
	}
	if end != nil {
		end(nil)
	}
}

// Wait returns the outcome, or ctx's error, or ErrBroken. An outcome that is
// known already is returned even if ctx has ended.
func (f *Fill[O]) Wait(ctx context.Context) (O, error) {
	select {
	case <-f.known:
	default:
		select {
		case <-f.known:
		case <-ctx.Done():
			var none O
			return none, ctx.Err()
		}
	}
	if !f.settled {
		return f.outcome, ErrBroken
	}
	return f.outcome, nil
}
