package h2

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2/hpack"

	"millrace/internal/wire/stall"
)

// flows are the streams that are answered beside Run: by net/http, or by a [Stream].
type flows struct {
	c        *Conn
	mu       sync.Mutex
	open     []*flow
	midFrame bool   // the client is in the middle of a frame or a header block
	taken    int    // streams that Run answers, when ReportWait has looked last
	cut      recent // streams that net/http has reset
}

// flow is the progress of such a stream. Times are in Unix nanoseconds.
type flow struct {
	id     uint32
	inner  *inner  // of net/http's streams
	stream *Stream // of the others

	// Guarded by flows.mu.
	window     int64 // bytes that may be sent
	progressAt int64 // when the answer has last moved on; 0: it has not begun
	reset      bool  // the answer made no progress for too long, and the stream is reset
	uploads    bool  // the request's body, or tunnel, has not ended
	bodyAt     int64 // when bytes of the body have come last; 0: it is complete, or a tunnel
	answered   bool  // the answer is complete, and the body is not
}

// begin notes a new stream. It reports false if net/http's side has ended.
func (l *flows) begin(f *flow) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if in := f.inner; in != nil {
		if in.retired {
			return false
		}
		in.streams++
	}
	l.open = append(l.open, f)
	l.c.o.Budget.Add(1)
	return true
}

// find returns an open stream; nil: there is none.
func (l *flows) find(id uint32) *flow {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.findLocked(id)
}

func (l *flows) findLocked(id uint32) *flow {
	for _, f := range l.open {
		if f.id == id {
			return f
		}
	}
	return nil
}

// count returns how many are open.
func (l *flows) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}

// end notes the end of a stream, by either side, and reports whether it was open and
// net/http's.
func (l *flows) end(id uint32) (inner bool) {
	l.mu.Lock()
	f := l.findLocked(id)
	if f == nil {
		l.mu.Unlock()
		return false
	}
	l.removeLocked(f)
	cancel := f.stream.overLocked()
	l.mu.Unlock()
	cancel()
	return f.inner != nil
}

// endAll ends the streams of a connection that has ended.
func (l *flows) endAll() {
	l.mu.Lock()
	var cancel []func()
	for _, f := range l.open {
		if f.inner != nil {
			f.inner.streams--
		}
		cancel = append(cancel, f.stream.overLocked())
	}
	l.c.o.Budget.Add(-len(l.open))
	l.open = nil
	l.mu.Unlock()
	for _, f := range cancel {
		f()
	}
}

func (l *flows) removeLocked(f *flow) {
	l.open = slices.DeleteFunc(l.open, func(other *flow) bool { return other == f })
	if f.inner != nil {
		f.inner.streams--
	}
	l.c.o.Budget.Add(-1)
	if len(l.open) > 0 {
		return
	}
	l.open = nil
	if l.taken == 0 && !l.midFrame {
		l.c.host.Awaits(WaitRequest)
	}
}

// answered notes that net/http's answer is complete.
func (l *flows) answered(id uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.findLocked(id)
	switch {
	case f == nil:
	case f.uploads:
		f.answered = true
	default:
		l.removeLocked(f)
	}
}

// connects reports whether the request is a CONNECT. Its stream is a connection, such as
// a WebSocket's (RFC 8441), on which the client may be silent for long; the job that
// answers has limits of its own for these.
func (c *Conn) connects() bool {
	return slices.ContainsFunc(c.run.list.fields, func(f hpack.HeaderField) bool { return f.Name == ":method" && f.Value == "CONNECT" })
}

// bodyReceived notes bytes of the body of a request that net/http has; end: the last ones. It
// reports false if net/http has it no more.
func (l *flows) bodyReceived(id uint32, end bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.findLocked(id)
	switch {
	case f == nil || f.inner == nil:
		return false
	case end:
		f.uploads, f.bodyAt = false, 0
		if f.answered {
			l.removeLocked(f)
		}
	case f.bodyAt != 0:
		f.bodyAt = time.Now().UnixNano()
	}
	return true
}

// cutOff ends a stream that net/http has reset: what the client still sends is not its fault.
func (l *flows) cutOff(id uint32) {
	l.end(id)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut.add(id)
}

// wasCutOff reports whether net/http has reset a stream of late.
func (l *flows) wasCutOff(id uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut.has(id)
}

// progressed notes that n bytes of an answer were written, or its header.
func (l *flows) progressed(id uint32, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.findLocked(id); f != nil {
		f.window -= n
		f.progressAt = time.Now().UnixNano()
	}
}

// growWindow adds to the window of a stream. What is wrong with that net/http reports itself.
func (l *flows) growWindow(f *flow, n int64) code {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case f.inner != nil:
	case n == 0:
		return codeProtocol
	case f.window+n > maxWindow:
		return codeFlowControl
	}
	f.window += n
	f.stream.notify()
	return codeNo
}

// windowGrown has streams look at the connection's window again.
func (l *flows) windowGrown() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.open {
		if f.window > 0 {
			f.stream.notify()
		}
	}
}

// shiftWindows adds to the windows of all streams (RFC 9113, 6.9.2). It reports false where
// one becomes too large.
func (l *flows) shiftWindows(by int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.open {
		if f.window += by; f.window > maxWindow && f.inner == nil {
			return false
		}
		f.stream.notify()
	}
	return true
}

// settings notes that net/http gets SETTINGS, which it acknowledges. It reports false where
// its side has ended.
func (l *flows) settings(in *inner) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if in == nil || in.retired {
		return false
	}
	in.acks++
	return true
}

// Expire resets the streams whose answer had begun before the time given and has waited
// for the stream's window since then. It reports true where the connection's window is
// what is empty: the host should close the connection. Net/http has no limit for either.
func (c *Conn) Expire(since time.Time) (over bool) {
	before := since.UnixNano()
	noWindow := c.window.emptyBefore(before)
	c.flows.mu.Lock()
	defer c.flows.mu.Unlock()
	for _, f := range c.flows.open {
		switch {
		case f.progressAt == 0 || f.progressAt > before:
		case noWindow:
			c.setReason(Stalled)
			return true
		case f.window <= 0 && !f.reset:
			f.reset = true
			if f.inner == nil {
				f.stream.notify() // it resets itself
				continue
			}
			// An increment of 0 is an error (RFC 9113, 6.9): net/http answers with
			// RST_STREAM and ends the handler's write.
			f.inner.pipe.insert(appendWindowUpdate(nil, f.id, 0))
		}
	}
	return false
}

// wasReset reports whether Expire has reset a stream.
func (l *flows) wasReset(id uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.findLocked(id)
	return f != nil && f.reset
}

// Streams counts the streams that are answered beside Run, and those of them that wait for the
// client to send more of a request or to grant window for an answer. blocked: the client
// reads nothing from the connection, so all of them wait.
func (c *Conn) Streams(now time.Time, blocked bool) (n stall.Count) {
	if c.evicted.Load() {
		return n
	}
	late := now.Add(-stall.StalledAfter).UnixNano()
	empty := c.window.emptyBefore(now.UnixNano())
	c.flows.mu.Lock()
	defer c.flows.mu.Unlock()
	n.Open = len(c.flows.open)
	noWindow := 0
	for _, f := range c.flows.open {
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
// The client gets a GOAWAY first, unless another goroutine is writing.
func (c *Conn) Evict() {
	c.setReason(TooMany)
	if c.evicted.Store(true); !c.w.mu.try() {
		return
	}
	defer c.w.mu.unlock()
	if c.w.settingsSent && c.host.Full() == nil {
		_, _ = c.host.Write(appendGoaway(nil, c.goawayLast(), codeEnhanceYourCalm)) // the connection ends anyway
	}
}

// overBudget reports whether a further stream is to be refused: too many streams of the
// server wait for their clients, and this connection has more than a few of them.
func (c *Conn) overBudget() bool {
	if !c.o.Budget.Pressed() {
		return false
	}
	c.flows.mu.Lock()
	defer c.flows.mu.Unlock()
	n := 0
	for _, f := range c.flows.open {
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
	c.run.declined.add(id)
	return c.reset(t, id, codeRefusedStream)
}
