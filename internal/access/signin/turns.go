package signin

import (
	"context"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	// maxWaiting bounds how many requests wait. A page with everything on it has about a
	// hundred.
	maxWaiting = 1024
	// warnInterval is how often the log says that too many wait.
	warnInterval = time.Minute
	// maxGuessers bounds how many clients with wrong passwords are remembered, in
	// memory of some 64 bytes each, and forgetGuesser is for how long.
	maxGuessers   = 8192
	forgetGuesser = time.Minute
)

// checkQueue bounds how many requests are checked at once, and decides which is next. A
// password's hash takes some 50 ms, and another server takes its time, so one client could
// keep all others out. Each waiting request has a rank: its client's wrong passwords of
// late plus its client's requests that wait already. The lowest rank is next, among equals
// the oldest. A client has at most half of the checks at once. When too many wait, the
// highest rank is refused.
type checkQueue struct {
	mu       sync.Mutex
	free     int
	most     int                  // checks of one client
	running  map[netip.Prefix]int // checks that run, by client
	waiting  []*waiter            // in the order in which they came
	guessers map[netip.Prefix]guesser
	warnedAt time.Time
}

// waiter is a request that waits for its check.
type waiter struct {
	client netip.Prefix
	rank   int
	ready  chan struct{} // closed when ok is set
	ok     bool
}

// guesser is a client with wrong passwords.
type guesser struct {
	wrong int
	last  time.Time
}

func newCheckQueue(n int) *checkQueue {
	return &checkQueue{free: n, most: max(1, n/2), running: map[netip.Prefix]int{}, guessers: map[netip.Prefix]guesser{}}
}

// clientOf returns what counts as one client: an IPv4 address, or an IPv6 network of 64
// bits. Clients of UNIX sockets count as one.
func clientOf(a netip.Addr) netip.Prefix {
	p, _ := a.Prefix(min(a.BitLen(), 64)) // never an error
	return p
}

// acquire waits until a request may be checked; release must follow. It reports false if
// ctx ends before, or too many wait.
func (t *checkQueue) acquire(ctx context.Context, client netip.Prefix) bool {
	w := t.join(client)
	if w == nil {
		return true
	}
	select {
	case <-w.ready:
		return w.ok
	case <-ctx.Done():
	}
	return t.leave(w)
}

// join starts the check if there is room (nil), or adds a waiter.
func (t *checkQueue) join(client netip.Prefix) *waiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mayStart(client) { // then no waiter could start
		t.start(client)
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
		t.finish(last, false)
	}
	return w
}

func (t *checkQueue) mayStart(client netip.Prefix) bool {
	return t.free > 0 && t.running[client] < t.most
}

func (t *checkQueue) start(client netip.Prefix) {
	t.free--
	t.running[client]++
}

// leave ends the wait, and reports whether the check was granted at that moment.
func (t *checkQueue) leave(w *waiter) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, other := range t.waiting {
		if other == w {
			t.finish(i, false)
			break
		}
	}
	return w.ok
}

// shouldWarn reports whether to log that a request was not checked, at most once in
// warnInterval.
func (t *checkQueue) shouldWarn(r *http.Request) bool {
	if r.Context().Err() != nil {
		return false // the client has gone
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if !t.warnedAt.IsZero() && now.Sub(t.warnedAt) < warnInterval {
		return false
	}
	t.warnedAt = now
	return true
}

// finish ends the wait of one request.
func (t *checkQueue) finish(i int, ok bool) {
	w := t.waiting[i]
	t.waiting = append(t.waiting[:i], t.waiting[i+1:]...)
	w.ok = ok
	close(w.ready)
}

// release ends a check, and starts the next one. right: the password was right.
func (t *checkQueue) release(client netip.Prefix, right bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !right {
		t.remember(client)
	}
	t.free++
	if t.running[client]--; t.running[client] == 0 {
		delete(t.running, client)
	}
	first := -1
	for i, w := range t.waiting {
		if t.mayStart(w.client) && (first < 0 || w.rank < t.waiting[first].rank) {
			first = i
		}
	}
	if first >= 0 {
		t.start(t.waiting[first].client)
		t.finish(first, true)
	}
}

// remember counts a wrong password.
func (t *checkQueue) remember(client netip.Prefix) {
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
			clear(t.guessers) // too many clients guess to remember them
		}
	}
	t.guessers[client] = g
}
