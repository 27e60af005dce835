package upstream

import (
	"slices"
	"time"
)

// Many servers have few workers, each of which serves one connection until that ends:
// Apache's prefork, Puma, Python's http.server. A kept connection keeps its worker,
// and new connections wait in the listen queue for as long as the kept one is used, or
// stays idle. Nobody tells how many workers there are. So where a new connection waits
// for its first answer for too long, another one gives way: it is closed when its
// answer is complete, or while it is idle, instead of being kept.
//
// One is enough, as workers take connections in their order. Where it was not, as the
// server was merely slow, or not the worker of that connection was needed, another one
// follows after a second, the next after two: a slow page does not cost the others
// their connections.

const (
	// patience is how long a connection waits for its first answer at least before
	// another one gives way, and how long that may be used at least: a turn, where
	// there are more connections than workers. On a busy machine a first answer of a
	// server that is well takes that long, too.
	patience = 50 * time.Millisecond
	// patienceTrips is how many times as long as connecting took, for servers that are
	// far away: twice there and back for TLS, once for the answer, and the work.
	patienceTrips = 6
	// mostPatience is for connecting that was slow for another reason.
	mostPatience = time.Second
	// patienceAgain is how much later a further one gives way to the same connection.
	patienceAgain = time.Second
)

// newcomer is a new connection that waits for its first answer. It is nil for servers
// that accept any number of connections. Its client's mu guards it.
type newcomer struct {
	client     *client
	connecting time.Duration // how long that took
	prev, next *newcomer
	waits      bool          // it is in the list
	given      bool          // another connection gave way
	since      time.Duration // when it began to wait
	due        time.Duration // when another connection gives way
	had        time.Duration // when it had its first answer; 0: it had none
}

// newcomers are those of one client, the oldest first.
type newcomers struct {
	first, last *newcomer
	timer       *time.Timer // has an idle connection give way
}

// begin enters n into the list, unless it has had an answer or is in it already.
func (n *newcomer) begin() {
	if n == nil || n.had != 0 {
		return
	}
	c := n.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.waits || c.closed {
		return
	}
	list := &c.newcomers
	n.since = time.Since(c.started)
	n.due = n.since + min(max(patience, patienceTrips*n.connecting), mostPatience)
	n.waits, n.given, n.prev, n.next = true, false, list.last, nil
	if n.prev != nil {
		n.prev.next = n
	} else {
		list.first = n
	}
	list.last = n
	c.arm(n.since)
}

// gotAnswer notes that bytes of an answer came. The first end the wait. It also shows
// that connections which began to wait clearly earlier have a worker: they wait for
// something slow. Only who drives the connection calls it, so had needs no lock.
func (n *newcomer) gotAnswer() {
	if n == nil || n.had != 0 {
		return
	}
	c := n.client
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Since(c.started)
	if n.had = max(now, 1); !n.waits {
		return
	}
	list := &c.newcomers
	for other := list.first; other != nil; other = other.next {
		switch {
		case other.since+patience <= n.since:
			other.postpone(now)
		case other.given && !n.given: // the server has taken n first
			other.given, other.due, n.given = false, now, true
		}
	}
	list.remove(n)
}

// end takes a connection that is closed out of the list.
func (n *newcomer) end() {
	if n == nil {
		return
	}
	n.client.mu.Lock()
	defer n.client.mu.Unlock()
	n.client.newcomers.remove(n)
}

// postpone has no connection give way to n for a while.
func (n *newcomer) postpone(now time.Duration) {
	n.due = max(n.due, now+max(patienceAgain, now-n.since))
}

// remove takes n out, if it is in.
func (list *newcomers) remove(n *newcomer) {
	if !n.waits {
		return
	}
	n.waits = false
	if n.prev != nil {
		n.prev.next = n.next
	} else {
		list.first = n.next
	}
	if n.next != nil {
		n.next.prev = n.prev
	} else {
		list.last = n.prev
	}
	n.prev, n.next = nil, nil
}

// givesWay reports, with c.mu held, whether a connection whose answer is complete is
// closed so that its worker can serve a new connection. It is if it was used for a
// turn's time since its first answer, and was already due to give way when it was free
// before; in a burst of new connections none was.
func (c *client) givesWay(now, free, began time.Duration) bool {
	if now-began < patience {
		return false
	}
	for n := c.newcomers.first; n != nil; n = n.next {
		if n.due <= free {
			n.given = true
			n.postpone(now)
			return true
		}
	}
	return false
}

// arm sets the timer for when an idle connection gives way, with c.mu held.
func (c *client) arm(now time.Duration) {
	list := &c.newcomers
	if list.first == nil || len(c.idle)+c.lined == 0 {
		return
	}
	at := list.first.due
	for n := list.first.next; n != nil; n = n.next {
		at = min(at, n.due)
	}
	wait := max(at, c.oldest()+patience) - now
	if list.timer == nil {
		list.timer = time.AfterFunc(wait, c.relieve)
	} else {
		list.timer.Reset(wait)
	}
}

// relieve closes idle connections for new ones that wait, those first that were idle
// longest.
func (c *client) relieve() {
	now := time.Since(c.started)
	var wires []*wire
	var lines []*line
	c.mu.Lock()
	for n := c.newcomers.first; n != nil && len(c.idle)+c.lined > 0 && now >= c.oldest()+patience; n = n.next {
		if n.due > now {
			continue
		}
		n.given = true
		n.postpone(now)
		if w, l := c.takeOldest(); w != nil {
			wires = append(wires, w)
		} else {
			lines = append(lines, l)
		}
	}
	c.arm(now)
	c.mu.Unlock()
	for _, l := range lines {
		c.giveUpLine(l)
	}
	for _, w := range wires {
		c.giveUp(w)
	}
}

// oldest is when the connection that is idle longest became idle, with c.mu held.
// There must be one.
func (c *client) oldest() time.Duration {
	oldest := longest + time.Since(c.started)
	if len(c.idle) > 0 {
		oldest = c.idle[0].since
	}
	for _, lines := range c.lines {
		if len(lines) > 0 {
			oldest = min(oldest, lines[0].since)
		}
	}
	return oldest
}

// takeOldest takes that connection out.
func (c *client) takeOldest() (*wire, *line) {
	oldest := c.oldest()
	if len(c.idle) > 0 && c.idle[0].since == oldest {
		w := c.idle[0]
		c.idle = slices.Delete(c.idle, 0, 1)
		return w, nil
	}
	for i, lines := range c.lines {
		if len(lines) > 0 && lines[0].since == oldest {
			l := lines[0]
			c.lines[i] = slices.Delete(lines, 0, 1)
			c.lined--
			return nil, l
		}
	}
	return nil, nil
}
