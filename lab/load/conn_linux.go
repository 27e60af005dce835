package load

import (
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"millrace/internal/wire/epoll"
)

// state is what a connection is doing.
type state uint8

const (
	closed  state = iota // stands in toOpen
	opening              // waits for the target to accept
	resting              // has nothing to do
	asking               // waits for an answer
)

// A conn is one connection, or the place for one.
type conn struct {
	fd     int32 // while not closed
	number int32 // in loop.conns
	page   int32 // asked for, or to be asked for next
	sent   int32 // bytes of the request that are written, while unsent
	state  state
	unsent bool // the request is not written completely
	tried  bool // opened or refused at least once
	// since is when the request was written or, while opening, when that began;
	// kept while closed if a full backlog let nothing begin.
	since  int64
	due    int64 // when the request should have been written
	answer answer
	// visitor is nil where requests are always the same; out is its request.
	visitor *visitor
	out     []byte
}

// The events that connections are registered for. They come once for each
// change (edge-triggered), so that the kernel need not look at connections
// again that were read empty.
const (
	whenAccepted = epoll.Out | epoll.Edge
	whenReadable = epoll.In | epoll.PeerShut | epoll.Edge
	whenEither   = whenReadable | epoll.Out
	hungUp       = epoll.PeerShut | epoll.HungUp | epoll.Failed
)

// watch begins to watch a connection.
func (l *loop) watch(c *conn, events uint32) error {
	return watched(l.set.Add(int(c.fd), events, c.number, 0))
}

// rewatch changes what it is watched for.
func (l *loop) rewatch(c *conn, events uint32) error {
	return watched(l.set.Change(int(c.fd), events, c.number, 0))
}

func watched(err error) error {
	if err != nil {
		return fmt.Errorf("watch a connection: %w", err)
	}
	return nil
}

// event handles what epoll says about a connection.
func (l *loop) event(c *conn, events uint32) {
	switch c.state {
	case closed: // by what came before in the same batch
		return
	case opening:
		now := l.clock()
		err := connected(c.fd)
		if err == nil {
			err = l.rewatch(c, whenReadable)
		}
		if err != nil {
			l.notOpened(c, err, now)
			return
		}
		l.opening--
		l.accepted(c, now)
		return
	}
	if events&epoll.Out != 0 && c.unsent {
		l.write(c)
	}
	if events&(epoll.In|hungUp) != 0 && c.state != closed {
		l.read(c, events&hungUp != 0)
	}
}

// dial begins to open a connection.
func (l *loop) dial(c *conn, now int64) {
	if c.since == 0 {
		c.since = now
	}
	fd, done, err := l.dialer.dial(int(c.number))
	c.fd = fd
	l.opening++
	c.state = opening
	switch {
	case err != nil:
	case done:
		if err = l.watch(c, whenReadable); err == nil {
			l.opening--
			l.accepted(c, l.clock())
			return
		}
	default:
		err = l.watch(c, whenAccepted)
	}
	if err != nil {
		l.notOpened(c, err, now)
	}
}

// accepted is called when a connection is open.
func (l *loop) accepted(c *conn, now int64) {
	l.connect.Record(time.Duration(now - c.since))
	l.open++
	l.hasTried(c)
	l.next(c, now)
}

func (l *loop) hasTried(c *conn) {
	if !c.tried {
		c.tried = true
		l.untried--
	}
}

// notOpened is called when a connection could not be opened.
func (l *loop) notOpened(c *conn, err error, now int64) {
	since := c.since
	l.close(c)
	l.toOpen.push(c.number)
	if l.network == "unix" && errors.Is(err, unix.EAGAIN) && now-since < int64(l.Timeout) {
		// The backlog of a UNIX socket is full: what TCP waits out by itself.
		c.since = since
		l.retryAt = max(l.retryAt, now+fullBacklogPause)
		return
	}
	l.hasTried(c)
	l.cur.fail(&l.cur.errors.Connect, fmt.Errorf("connect to %s: %w", l.address, err))
	l.setback(now)
}

// close closes a connection, whatever it does.
func (l *loop) close(c *conn) {
	switch c.state {
	case closed:
		return
	case opening:
		l.opening--
	case asking:
		now := l.clock()
		l.fly(now, -1)
		l.cur.under(c.since, now, l.opensAt)
		defer l.isFull()
		fallthrough
	default:
		l.open--
	}
	if c.fd >= 0 {
		_ = unix.Close(int(c.fd)) // epoll forgets it
	}
	if c.answer.sample != nil && !c.answer.sample.done {
		*c.answer.sample = sample{} // another answer may be the first
	}
	c.answer.reset()
	c.state, c.unsent, c.since = closed, false, 0
}

// reopen closes a connection and opens it again.
func (l *loop) reopen(c *conn) {
	l.close(c)
	l.toOpen.push(c.number)
}

// lose counts an error and opens the connection again, not too soon.
func (l *loop) lose(c *conn, kind *uint64, err error) {
	l.cur.fail(kind, err)
	if l.scenario && c.state == asking {
		c.page = l.after(c.page, false, c.visitor)
	}
	l.reopen(c)
	l.setback(l.clock())
}

// setIdle leaves a connection without a request.
func (l *loop) setIdle(c *conn) {
	c.state = resting
	l.idle.push(c.number)
}

// ask sends the next request.
func (l *loop) ask(c *conn, due, now int64) {
	c.state, c.due, c.since = asking, due, now
	l.fly(now, 1)
	if l.limited {
		l.left--
	}
	step := l.steps[c.page]
	request := l.pages[c.page].request
	if request == nil {
		c.visitor.next()
		c.out = step.text(c.out[:0], c.visitor)
		request = c.out
	}
	c.answer.bodyless = step.method == http.MethodHead
	c.answer.keepHead, c.answer.keepBody = step.readHead, step.readBody
	n, errno := transmit(c.fd, request)
	if n < len(request) {
		l.unsent(c, n, errno)
	}
}

// unsent is called when there was no room for all of a request.
func (l *loop) unsent(c *conn, n int, errno syscall.Errno) {
	if errno != 0 && errno != syscall.EAGAIN {
		l.lose(c, &l.cur.errors.Closed, fmt.Errorf("send a request: %w", errno))
		return
	}
	c.sent, c.unsent = int32(n), true
	if err := l.rewatch(c, whenEither); err != nil {
		l.lose(c, &l.cur.errors.Closed, err)
	}
}

// write sends what is left of a request.
func (l *loop) write(c *conn) {
	request := l.pages[c.page].request
	if request == nil {
		request = c.out
	}
	rest := request[c.sent:]
	n, errno := transmit(c.fd, rest)
	switch {
	case errno != 0 && errno != syscall.EAGAIN:
		l.lose(c, &l.cur.errors.Closed, fmt.Errorf("send a request: %w", errno))
	case n < len(rest):
		c.sent += int32(n)
	default:
		c.unsent = false
		if err := l.rewatch(c, whenReadable); err != nil {
			l.lose(c, &l.cur.errors.Closed, err)
		}
	}
}

// read takes what came. When it is known that the target will send no more, it
// reads on to that end.
func (l *loop) read(c *conn, ends bool) {
	for range readsAtOnce {
		n, errno := receive(c.fd, l.buf)
		switch {
		case errno == syscall.EAGAIN:
			return
		case errno != 0 && c.state == resting:
			l.deserted(c)
			return
		case errno != 0:
			l.lose(c, &l.cur.errors.Closed, fmt.Errorf("%w, after %d bytes: %w", errBroken, c.answer.bytes, errno))
			return
		case n == 0:
			l.ended(c)
			return
		}
		l.take(c, l.buf[:n], ends)
		if c.state == closed || n < len(l.buf) && !ends {
			return
		}
	}
	// There may be more. Registering again tells of it again.
	if err := l.rewatch(c, whenReadable); err != nil {
		l.lose(c, &l.cur.errors.Closed, err)
	}
}

// deserted is called when the target has closed a connection that asked for
// nothing: its right.
func (l *loop) deserted(c *conn) {
	l.reopen(c)
	l.setback(l.clock())
}

// ended is called when the target has closed a connection.
func (l *loop) ended(c *conn) {
	if c.state == resting {
		l.deserted(c)
		return
	}
	if err := c.answer.end(); err != nil {
		l.lose(c, &l.cur.errors.Closed, err)
		return
	}
	l.complete(c, &c.answer.head, c.answer.body, c.answer.bytes, true)
}

// take handles bytes that came. ends says that the connection is half closed:
// it will not carry another answer.
func (l *loop) take(c *conn, p []byte, ends bool) {
	if c.state != asking {
		l.lose(c, &l.cur.errors.Protocol, malformed("bytes that nobody asked for: %q", clip(p)))
		return
	}
	page := &l.pages[c.page]
	k := &page.known
	if len(p) == k.whole && c.answer.bytes == 0 && page.sample.taken && !c.answer.keepHead && !c.answer.keepBody && k.matches(p) {
		// Nearly all answers: the known head, and as many bytes of body as it says.
		l.complete(c, &k.head, k.head.length, int64(len(p)), ends)
		return
	}
	first := &page.sample
	if first.taken {
		first = nil
	}
	used, err := c.answer.feed(p, k, first)
	if err == nil && used < len(p) {
		err = malformed("bytes behind the end of the answer: %q", clip(p[used:]))
	}
	switch {
	case err != nil:
		l.lose(c, &l.cur.errors.Protocol, err)
	case c.answer.at == whole:
		l.complete(c, &c.answer.head, c.answer.body, c.answer.bytes, ends)
	}
}

// complete counts an answer and goes on with the next request.
func (l *loop) complete(c *conn, h *head, body, bytes int64, ends bool) {
	now := l.clock()
	if now-c.since > int64(l.Timeout) {
		l.lose(c, &l.cur.errors.Timeout, errTooSlow(l.Timeout))
		return
	}
	l.fly(now, -1)
	if l.arrivals == nil {
		l.gaps.answered(now)
	}
	page, t := &l.pages[c.page], l.cur
	right := page.plain && h.status == page.status && body == page.body || t.judge(l.plan, page, l.steps[c.page], c.visitor, seen{h.status, body, c.answer.received()})
	if !l.limited || c.since >= l.opensAt { // else it was sent before the window, beside those that are counted
		t.requests++
		t.bytes += uint64(bytes)
		t.body += uint64(body)
		t.status[h.status]++
		t.answered(int(c.page), right, l.arrivals != nil, times{c.due, c.since, now, l.opensAt})
	} else {
		t.under(c.since, now, l.opensAt)
	}
	if l.backoff > 0 {
		l.backoff, l.retryAt = 0, 0
	}
	ends = ends || h.last || l.oneShot || c.unsent // h may be c.answer's own
	if c.answer.bytes > 0 {
		c.answer.sampled()
		c.answer.reset()
	}
	c.page = l.after(c.page, right, c.visitor)
	c.state = resting
	l.isFull()
	if ends {
		l.reopen(c)
		return
	}
	l.next(c, now)
}

// isFull tells, once, that as many requests as are wanted were sent and have ended.
func (l *loop) isFull() {
	if l.limited && l.left == 0 && l.flying == 0 && !l.notified {
		l.notified = true
		l.filled()
	}
}
