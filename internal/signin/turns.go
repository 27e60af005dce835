package signin

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

const (
	// maxWaiting bounds how many requests wait for their passwords to be hashed. A
	// page with everything on it is a hundred.
	maxWaiting = 1024
	// waitForHash is how long a request waits for its turn.
	waitForHash = 10 * time.Second
	// maxGuessers bounds how many clients with wrong passwords are remembered, in
	// memory of some 64 bytes each, and forgetGuesser is for how long.
	maxGuessers   = 8192
	forgetGuesser = time.Minute
)

// turns say whose password is hashed next. A hash takes some 50 ms, so whoever
// guesses could keep everybody else out: the turn is that of the client with the
// fewest wrong passwords of late, together with those of its requests that were there
// before; then of who came first. When too many wait, the last in this order goes.
type turns struct {
	mu       sync.Mutex
	free     int
	waiting  []*waiter // in the order in which they came
	guessers map[netip.Prefix]guesser
}

// waiter is a request that waits for its turn.
type waiter struct {
	client netip.Prefix
	rank   int
	ready  chan struct{} // closed when ok is there
	ok     bool
}

// guesser is a client with wrong passwords.
type guesser struct {
	wrong int
	last  time.Time
}

func newTurns(n int) *turns {
	return &turns{free: n, guessers: map[netip.Prefix]guesser{}}
}

// clientOf is who has a turn of its own: an IPv4 address, or an IPv6 network of 64
// bits. Whoever has no address shares one.
func clientOf(a netip.Addr) netip.Prefix {
	p, _ := a.Prefix(min(a.BitLen(), 64)) // never an error
	return p
}

// take waits for a turn, which must be given back with done. It reports false if
// that did not come in time, or the client is gone.
func (t *turns) take(ctx context.Context, client netip.Prefix) bool {
	w := t.join(client)
	if w == nil {
		return true
	}
	late := time.NewTimer(waitForHash)
	defer late.Stop()
	select {
	case <-w.ready:
		return w.ok
	case <-ctx.Done():
	case <-late.C:
	}
	return t.leave(w)
}

// join takes a free turn (nil), or a place among those who wait.
func (t *turns) join(client netip.Prefix) *waiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free > 0 { // then nobody waits
		t.free--
		return nil
	}
	w := &waiter{client: client, ready: make(chan struct{})}
	if g, ok := t.guessers[client]; ok && time.Since(g.last) < forgetGuesser {
		w.rank = g.wrong
	}
	for _, other := range t.waiting {
		if other.client == client {
			w.rank++
		}
	}
	t.waiting = append(t.waiting, w)
	if len(t.waiting) > maxWaiting {
		last := 0
		for i, other := range t.waiting {
			if other.rank >= t.waiting[last].rank {
				last = i
			}
		}
		t.settle(last, false)
	}
	return w
}

// leave gives a place up, and reports whether the turn came at that moment.
func (t *turns) leave(w *waiter) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, other := range t.waiting {
		if other == w {
			t.settle(i, false)
			break
		}
	}
	return w.ok
}

// settle ends the waiting of one.
func (t *turns) settle(i int, ok bool) {
	w := t.waiting[i]
	t.waiting = append(t.waiting[:i], t.waiting[i+1:]...)
	w.ok = ok
	close(w.ready)
}

// done gives a turn back.
func (t *turns) done(client netip.Prefix, right bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !right {
		t.remember(client)
	}
	if len(t.waiting) == 0 {
		t.free++
		return
	}
	first := 0
	for i, w := range t.waiting {
		if w.rank < t.waiting[first].rank {
			first = i
		}
	}
	t.settle(first, true)
}

// remember counts a wrong password.
func (t *turns) remember(client netip.Prefix) {
	now := time.Now()
	g := t.guessers[client]
	if now.Sub(g.last) >= forgetGuesser {
		g.wrong = 0
	}
	g.wrong, g.last = g.wrong+1, now
	if len(t.guessers) >= maxGuessers {
		for c, other := range t.guessers {
			if now.Sub(other.last) >= forgetGuesser {
				delete(t.guessers, c)
			}
		}
		if len(t.guessers) >= maxGuessers {
			clear(t.guessers) // more guess than can be told apart
		}
	}
	t.guessers[client] = g
}
