package load

import (
	"fmt"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"millrace/internal/wire/epoll"
)

const (
	// eventsAtOnce is how many connections a loop is told of at once. Few, so
	// that an open loop looks at the clock often enough.
	eventsAtOnce = 256
	// bufferSize is what a loop reads at once, into the one buffer it has: large
	// for large bodies, yet at home in the second-level cache.
	bufferSize = 256 << 10
	// readsAtOnce is how often a connection is read before others have their
	// turn: 4 MB.
	readsAtOnce = 16

	// maxConnecting bounds the connections of one loop that are being opened,
	// and carefulConnecting those while the target refuses: servers have
	// backlogs of 128 and more.
	maxConnecting     = 128
	carefulConnecting = 32
	// dialTime is how long a loop goes on opening connections before it looks
	// after the others again: each takes some 10 µs, but far longer when local
	// ports run out.
	dialTime = int64(500 * time.Microsecond)
	// shortestBackoff and longestBackoff are how long a loop waits before it
	// opens more connections after one failed; an answer ends the waiting.
	shortestBackoff = int64(10 * time.Millisecond)
	longestBackoff  = int64(500 * time.Millisecond)
	// fullBacklogPause is how long a UNIX socket's full backlog is given.
	fullBacklogPause = int64(time.Millisecond)
)

// A loop is one thread that serves its share of the connections. Everything in
// it belongs to that thread, but for the channels, and other between two orders.
type loop struct {
	*plan
	number  int // of d.Threads
	set     *epoll.Set
	waker   *epoll.Waker // an order was given
	dialer  *dialer
	conns   []conn
	pages   []page
	events  []epoll.Event
	buf     []byte
	oneShot bool // every request asks for the connection to be closed

	arrivals *arrivals // nil in a closed loop
	idle     ring      // connections free for the next request
	toOpen   ring      // connections to be opened
	running  bool      // requests may be sent
	stopped  bool

	supply *supply // of the visitors
	woken  int64   // when the last wait ended; of open loops only

	opening  int   // connections in the state opening
	open     int   // connections in the states resting and asking
	untried  int   // connections that were neither opened nor refused yet
	backoff  int64 // ns; 0: no connection failed since the last answer
	retryAt  int64
	sweepAt  int64
	sweeping int64 // ns between looks for timeouts; 0: at each cut is often enough
	waiting  bool  // for all connections to be tried

	limited  bool   // left counts
	notified bool   // that none is left, and none in flight
	left     uint64 // requests still to be sent
	flying   uint64 // requests in flight
	flownAt  int64  // until when cur.requestTime is up to date
	opensAt  int64  // when the window opened

	cur, other *tally
	cutAt      int64
	gaps       gaps // of closed loops
	cpu        meter
	connect    Histogram

	orders  chan order
	obeyed  chan struct{} // after each
	settled chan struct{} // once, when all connections were tried
	filled  func()        // called once, when no more answers are wanted
	done    chan struct{} // closed at the end
	err     error
}

// run is the thread. It ends on the order to, with all connections closed.
func (l *loop) run() {
	// Never unlocked: the thread, with its timer slack, ends with run.
	runtime.LockOSThread()
	defer close(l.done)
	if l.Arrival != Closed {
		// Timers may else be 50 µs late.
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	}
	l.cpu.start()
	defer l.cpu.stop()
	for !l.stopped {
		n, err := l.set.Wait(l.events, l.pollTimeout())
		if err != nil {
			l.err = fmt.Errorf("wait for connections: %w", err)
			l.other.reset()
			break
		}
		if l.arrivals != nil {
			l.woken = l.clock()
		}
		for i := range l.events[:n] {
			if e := &l.events[i]; e.Key() != epoll.WakeKey {
				l.event(&l.conns[e.Key()], e.Events)
			} else {
				l.obey()
			}
		}
		if l.arrivals != nil || l.toOpen.count > 0 || l.waiting || l.sweeping > 0 {
			l.chores()
		}
	}
	for i := range l.conns {
		l.close(&l.conns[i])
	}
}

// pollTimeout is how long to wait for events, in ns; negative: as long as it takes.
func (l *loop) pollTimeout() int64 {
	until := int64(never)
	if l.toOpen.count > 0 && l.opening < l.mayOpen() {
		until = l.retryAt
	}
	if l.arrivals != nil && l.idle.count > 0 && l.mayAsk() {
		until = min(until, l.arrivals.next)
	}
	if l.waiting || l.sweeping > 0 {
		until = min(until, l.sweepAt)
	}
	if until == never {
		return -1
	}
	return max(until-l.clock(), 0)
}

// chores are what is due by the clock.
func (l *loop) chores() {
	now := l.clock()
	if now >= l.sweepAt && (l.waiting || l.sweeping > 0) {
		l.sweep(now)
	}
	for until := now + dialTime; l.toOpen.count > 0 && l.opening < l.mayOpen() && now >= l.retryAt && now < until; now = l.clock() {
		i, _ := l.toOpen.pop()
		l.dial(&l.conns[i], now)
	}
	if l.waiting && (l.untried == 0 || l.open+l.opening == 0 && l.backoff > 0 || now > int64(openGrace)) {
		l.waiting = false
		l.settled <- struct{}{}
	}
	if l.arrivals != nil && l.running {
		l.sendDue(now)
	}
}

// sendDue sends what is due while connections are free.
func (l *loop) sendDue(now int64) {
	l.cur.dropped += l.arrivals.skip(now-int64(l.Timeout), l.opensAt)
	for l.arrivals.next <= now && l.mayAsk() {
		c := l.rested()
		if c == nil {
			return
		}
		// A connection was free when it was due, so all delay is ours.
		now = l.clock()
		l.askDue(c, l.arrivals.next, now)
	}
}

// rested takes a connection that is free; nil: there is none.
func (l *loop) rested() *conn {
	for {
		i, ok := l.idle.pop()
		if !ok {
			return nil
		}
		if c := &l.conns[i]; c.state == resting { // it may have been lost meanwhile
			return c
		}
	}
}

// mayAsk reports whether a request may be sent now.
func (l *loop) mayAsk() bool { return l.running && (!l.limited || l.left > 0) }

func (l *loop) mayOpen() int {
	if l.backoff > 0 {
		return carefulConnecting
	}
	return maxConnecting
}

// next finds something to do for a connection that has become free.
func (l *loop) next(c *conn, now int64) {
	switch {
	case !l.mayAsk():
		l.setIdle(c)
	case l.arrivals == nil:
		l.ask(c, now, now)
	case l.arrivals.next <= now:
		// It was free since the loop woke up to its answer, as far as can be known.
		l.askDue(c, max(l.arrivals.next, l.woken), now)
	default:
		l.setIdle(c)
	}
}

// askDue sends the next arrival, which could have been sent at a time.
func (l *loop) askDue(c *conn, could, now int64) {
	due := l.arrivals.next
	l.arrivals.pop()
	if now-could > int64(LateAfter) {
		l.cur.late++
	}
	l.ask(c, due, now)
}

// sweep looks for what takes too long.
func (l *loop) sweep(now int64) {
	l.sweepAt = now + max(l.sweeping, int64(10*time.Millisecond))
	tooOld := now - int64(l.Timeout)
	for i := range l.conns {
		switch c := &l.conns[i]; {
		case c.since > tooOld:
		case c.state == opening:
			l.notOpened(c, syscall.ETIMEDOUT, now)
		case c.state == asking:
			l.lose(c, &l.cur.errors.Timeout, errTooSlow(l.Timeout))
		}
	}
}

func errTooSlow(timeout time.Duration) error { return fmt.Errorf("no answer within %v", timeout) }

// fly counts requests in flight over time.
func (l *loop) fly(now int64, change int) {
	l.cur.requestTime += int64(l.flying) * (now - l.flownAt)
	l.flownAt = now
	l.flying += uint64(change)
}

// setback makes the loop wait before it opens more connections, twice as long
// as the last time if nothing was answered since.
func (l *loop) setback(now int64) {
	if now >= l.retryAt {
		l.backoff = min(max(2*l.backoff, shortestBackoff), longestBackoff)
		l.retryAt = now + l.backoff
	}
}
