package upstream

import (
	"math/rand/v2"
	"net"
	"time"

	"millrace/internal/wire/epoll"
)

// line is an idle connection, without TLS, that an event loop watches; Go's poller
// does not know it. What the comment of [wire] says of stray answers holds for lines,
// too.
type line struct {
	fd     int
	serial uint32      // random: tells it from who had its descriptor before
	watch  epoll.Watch // its loop's; nil: its loop does not know it
	dialed *dialed     // while its loop connects; nil: it is connected
	past
}

// dialed is what is known of a connection that a loop has begun to make.
type dialed struct {
	began  time.Duration // on the pool's clock
	others bool          // the name has other addresses, which were not tried
	asked  bool          // it was not there at once
}

// justNow reports whether the loop has connected this moment: nothing can have come yet.
func (d *dialed) justNow() bool { return d != nil && !d.asked }

// begin notes that a request was sent.
func (l *line) begin(now time.Duration) {
	if l.dialed != nil {
		l.newcomer.connecting = now - l.dialed.began
		l.dialed = nil
	}
	l.newcomer.begin()
}

// takeLine is the line of a loop that was used last, or an idle connection that
// becomes one; nil: there is neither.
func (c *client) takeLine(loop int, now time.Duration) *line {
	c.mu.Lock()
	l := c.lastLine(loop, now)
	c.mu.Unlock()
	if l != nil {
		l.uses++
		return l
	}
	w := c.takeIdle(now)
	if w == nil {
		if l = c.detachLine(now); l != nil {
			l.uses++
		}
		return l
	}
	if l = lineOf(w); l == nil {
		c.put(w, now)
		return nil
	}
	l.uses++
	return l
}

// lineFor is takeLine where a connection was just made, if that is not nil.
func (c *client) lineFor(made *wire, loop int, now time.Duration) *line {
	if made == nil {
		return c.takeLine(loop, now)
	}
	l := lineOf(made)
	if l == nil {
		c.putPreconnected(made, now)
		return nil
	}
	l.uses++
	return l
}

// lastLine takes out the line of a loop that was used last, with c.mu held; nil:
// none.
func (c *client) lastLine(loop int, now time.Duration) *line {
	if loop >= len(c.lines) {
		return nil
	}
	n := len(c.lines[loop]) - 1
	if n < 0 || now-c.lines[loop][n].since >= c.keep {
		return nil
	}
	l := c.lines[loop][n]
	c.lines[loop][n] = nil
	c.lines[loop] = c.lines[loop][:n]
	c.lined--
	return l
}

// detachLine is an idle line of any loop, which no longer watches it; nil: there is
// none.
func (c *client) detachLine(now time.Duration) (l *line) {
	c.mu.Lock()
	for loop := 0; loop < len(c.lines) && l == nil; loop++ {
		l = c.lastLine(loop, now)
	}
	c.mu.Unlock()
	if l != nil && l.watch != nil {
		l.watch.End(l.fd)
		l.watch = nil
	}
	return l
}

// take is an idle connection for a goroutine; nil: there is none.
func (c *client) take(now time.Duration) *wire {
	if w := c.takeIdle(now); w != nil {
		return w
	}
	l := c.detachLine(now)
	if l == nil {
		return nil
	}
	w, err := l.wire()
	if err != nil {
		return nil
	}
	return w
}

// putLine keeps a line whose answer is complete.
func (c *client) putLine(l *line, loop int, now time.Duration) {
	c.mu.Lock()
	if !c.keeps(l.newcomer, now, l.since) {
		c.mu.Unlock()
		l.close()
		return
	}
	l.since = now
	for loop >= len(c.lines) {
		c.lines = append(c.lines, nil)
	}
	c.lines[loop] = append(c.lines[loop], l)
	c.lined++
	if c.timer == nil {
		c.timer = time.AfterFunc(c.keep, c.expire)
	}
	c.arm(now)
	c.mu.Unlock()
}

// oldLines takes out the lines that were idle for too long, with c.mu held, and
// says since when the oldest of the others is.
func (c *client) oldLines(now time.Duration) (old []*line, oldest time.Duration) {
	oldest = now
	for i, lines := range c.lines {
		n := 0
		for n < len(lines) && now-lines[n].since >= c.keep {
			n++
		}
		old = append(old, lines[:n]...)
		rest := copy(lines, lines[n:])
		clear(lines[rest:])
		if c.lines[i] = lines[:rest]; rest > 0 {
			oldest = min(oldest, lines[0].since)
		}
	}
	c.lined -= len(old)
	return old, oldest
}

// allLines takes all idle lines out, with c.mu held.
func (c *client) allLines() []*line {
	var all []*line
	for _, lines := range c.lines {
		all = append(all, lines...)
	}
	c.lines, c.lined = nil, 0
	return all
}

// giveUpLine is giveUp for a line.
func (c *client) giveUpLine(l *line) {
	if found, _ := l.look(); found == unsolicited {
		l.reportUnsolicited(c.server)
	}
	l.close()
}

// wire is the line as a goroutine drives it.
func (l *line) wire() (*wire, error) {
	nc, err := l.conn()
	if err != nil {
		l.newcomer.end()
		return nil, err
	}
	return l.wireOf(nc), nil
}

// wireOf is the same for one whose descriptor nc has.
func (l *line) wireOf(nc net.Conn) *wire {
	w := newWire(nc)
	w.past = l.past
	return w
}

// newLine takes a detached descriptor over.
func newLine(fd int, w *wire) *line { return &line{fd: fd, serial: rand.Uint32(), past: w.past} }
