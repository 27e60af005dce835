package h2

import (
	"slices"
	"time"

	"golang.org/x/net/http2/hpack"

	"millrace/internal/wire/stall"
)

// flow is the progress of a stream that net/http answers. Times are in Unix nanoseconds.
type flow struct {
	window     int64 // bytes that may be sent
	progressAt int64 // when the answer has last moved on; 0: it has not begun
	reset      bool  // the answer made no progress for too long, and net/http resets the stream
	bodyAt     int64 // when bytes of the request's body have come last; 0: it is complete
}

// begin notes a stream that net/http gets, its window, and whether a body follows.
func (in *inner) begin(id uint32, window int64, body bool) {
	f := flow{window: window}
	if body {
		f.bodyAt = time.Now().UnixNano()
	}
	in.mu.Lock()
	in.open[id] = f
	in.mu.Unlock()
	in.c.o.Budget.Add(1)
}

// connects reports whether the request is a CONNECT. Its stream is a connection, such as
// a WebSocket's (RFC 8441), on which the client may be silent for long; the job that
// answers has limits of its own for these.
func (c *Conn) connects() bool {
	return slices.ContainsFunc(c.run.list.fields, func(f hpack.HeaderField) bool { return f.Name == ":method" && f.Value == "CONNECT" })
}

// bodyReceived notes bytes of a request's body; end: the last ones.
func (in *inner) bodyReceived(id uint32, end bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	f, ok := in.open[id]
	if !ok || f.bodyAt == 0 {
		return
	}
	if f.bodyAt = 0; !end {
		f.bodyAt = time.Now().UnixNano()
	}
	in.open[id] = f
}

// progressed notes that n bytes of an answer were written, or its header.
func (in *inner) progressed(id uint32, n int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if f, ok := in.open[id]; ok {
		f.window -= n
		f.progressAt = time.Now().UnixNano()
		in.open[id] = f
	}
}

// growWindow adds to the window of a stream, and reports whether it is open.
func (in *inner) growWindow(id uint32, n int64) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	f, ok := in.open[id]
	if ok {
		f.window += n
		in.open[id] = f
	}
	return ok
}

// shiftWindows adds to the windows of all streams (RFC 9113, 6.9.2).
func (in *inner) shiftWindows(by int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for id, f := range in.open {
		f.window += by
		in.open[id] = f
	}
}

// Expire resets the streams whose answer had begun before the time given and has waited
// for the stream's window since then. It reports true where the connection's window is
// what is empty: the host should close the connection. Net/http has no limit for either.
func (c *Conn) Expire(since time.Time) (over bool) {
	in := c.inner.Load()
	if in == nil {
		return false
	}
	before := since.UnixNano()
	noWindow := c.window.emptyBefore(before)
	in.mu.Lock()
	defer in.mu.Unlock()
	for id, f := range in.open {
		switch {
		case f.progressAt == 0 || f.progressAt > before:
		case noWindow:
			c.setReason(Stalled)
			return true
		case f.window <= 0 && !f.reset:
			f.reset = true
			in.open[id] = f
			// An increment of 0 is an error (RFC 9113, 6.9): net/http answers with
			// RST_STREAM and ends the handler's write.
			in.pipe.insert(appendWindowUpdate(nil, id, 0))
		}
	}
	return false
}

// wasReset reports whether Expire had net/http reset a stream.
func (in *inner) wasReset(id uint32) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.open[id].reset
}

// Streams counts the streams that net/http has open, and those of them that wait for the
// client to send more of a request or to grant window for an answer. blocked: the client
// reads nothing from the connection, so all of them wait.
func (c *Conn) Streams(now time.Time, blocked bool) (n stall.Count) {
	in := c.inner.Load()
	if in == nil || c.evicted.Load() {
		return n
	}
	late := now.Add(-stall.StalledAfter).UnixNano()
	empty := c.window.emptyBefore(now.UnixNano())
	in.mu.Lock()
	defer in.mu.Unlock()
	n.Open = len(in.open)
	noWindow := 0
	for _, f := range in.open {
		stuck := f.progressAt != 0 && (f.window <= 0 || empty)
		if stuck {
			noWindow++
		}
		if blocked || stuck && f.progressAt <= late || f.bodyAt != 0 && f.bodyAt <= late {
			n.Waiting++
		}
	}
	if noWindow > stall.Few {
		n.Waiting = max(n.Waiting, noWindow)
	}
	return n
}

// Evict notes that the host closes the connection, since too many of its streams wait.
// With notify the client gets a GOAWAY first, unless another goroutine is writing.
func (c *Conn) Evict(notify bool) {
	c.setReason(TooMany)
	if c.evicted.Store(true); !notify || !c.w.mu.try() {
		return
	}
	defer c.w.mu.unlock()
	if c.w.settingsSent && !c.Parked() {
		_, _ = c.host.Write(appendGoaway(nil, c.goawayLast(), codeEnhanceYourCalm)) // the connection ends anyway
	}
}

// overBudget reports whether a further stream is to be refused: too many streams of the
// server wait for their clients, and this connection has more than a few of them.
func (c *Conn) overBudget() bool {
	in := c.inner.Load()
	if in == nil || !c.o.Budget.Pressed() {
		return false
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	n := 0
	for _, f := range in.open {
		if f.window < stall.SmallWindow || f.bodyAt != 0 {
			n++
		}
	}
	return n > stall.Few
}

// decline refuses a stream before anything of it was processed, so that the client may
// safely retry it (RFC 9113, 8.7).
func (c *Conn) decline(t *task, id uint32) error {
	c.o.Budget.Refuse()
	if c.resets.Many(time.Now()) {
		return c.flooded(t, Resets)
	}
	c.run.declined.add(id)
	t.out = appendReset(t.out, id, codeRefusedStream)
	return nil
}
