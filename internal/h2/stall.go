package h2

import (
	"slices"
	"time"

	"golang.org/x/net/http2/hpack"

	"millrace/internal/stall"
)

// flow is what is known of a stream that net/http answers.
type flow struct {
	left  int64 // of the stream's window
	moved int64 // when the answer has last moved on, in Unix nanoseconds; 0: it has not begun
	cut   bool  // it has not for too long: net/http was told
	fed   int64 // when something of the request's body has come last; 0: all of it has
}

// begin notes that a stream was passed on, with that window, and whether a body
// follows.
func (in *inner) begin(id uint32, window int64, body bool) {
	f := flow{left: window}
	if body {
		f.fed = time.Now().UnixNano()
	}
	in.mu.Lock()
	in.open[id] = f
	in.mu.Unlock()
	in.c.o.Budget.Add(1)
}

// connects reports whether the request is a CONNECT: its stream is a connection, such as
// a WebSocket's (RFC 8441), on which the client may be silent for long. Who answers has
// its own limits for these.
func (c *Conn) connects() bool {
	return slices.ContainsFunc(c.list.fields, func(f hpack.HeaderField) bool { return f.Name == ":method" && f.Value == "CONNECT" })
}

// fed notes that something of a body has come, and whether that was its end.
func (in *inner) fed(id uint32, end bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	f, ok := in.open[id]
	if !ok || f.fed == 0 {
		return
	}
	if f.fed = 0; !end {
		f.fed = time.Now().UnixNano()
	}
	in.open[id] = f
}

// moved notes that n bytes of an answer, or its header, have gone.
func (in *inner) moved(id uint32, n int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if f, ok := in.open[id]; ok {
		f.left -= n
		f.moved = time.Now().UnixNano()
		in.open[id] = f
	}
}

// widen adds to the window of a stream, and reports whether it is open.
func (in *inner) widen(id uint32, n int64) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	f, ok := in.open[id]
	if ok {
		f.left += n
		in.open[id] = f
	}
	return ok
}

// shift adds to the windows of all streams (RFC 9113, 6.9.2).
func (in *inner) shift(by int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for id, f := range in.open {
		f.left += by
		in.open[id] = f
	}
}

// Expire ends the streams whose clients have given them no window since then,
// though their answers had begun. It reports true when it is the connection that
// has none: its host should end it. Net/http has no limit for either.
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
		case f.moved == 0 || f.moved > before:
		case noWindow:
			c.blame(Stalled)
			return true
		case f.left <= 0 && !f.cut:
			f.cut = true
			in.open[id] = f
			// To this net/http answers with RST_STREAM, and ends the handler's wait.
			in.in.insert(appendWindowUpdate(nil, id, 0))
		}
	}
	return false
}

// wasCut reports whether net/http resets a stream because it was told to.
func (in *inner) wasCut(id uint32) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.open[id].cut
}

// Streams counts the streams that net/http has open, and those that wait for the
// client: to send more of its request, or a window for the answer. blocked says that
// the client does not read at all.
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
	many := 0 // without a window
	for _, f := range in.open {
		stuck := f.moved != 0 && (f.left <= 0 || empty)
		if stuck {
			many++
		}
		if blocked || stuck && f.moved <= late || f.fed != 0 && f.fed <= late {
			n.Waiting++
		}
	}
	if many > stall.Few {
		n.Waiting = max(n.Waiting, many)
	}
	return n
}

// Evict says that the host ends the connection, since too many of its streams wait,
// and with tell it tells the client, if nobody writes just now.
func (c *Conn) Evict(tell bool) {
	c.blame(TooMany)
	if c.evicted.Store(true); !tell || !c.wmu.try() {
		return
	}
	defer c.wmu.unlock()
	if c.told && !c.Resting() {
		_, _ = c.host.Write(appendGoAway(nil, c.lastAnswered(), codeEnhanceYourCalm)) // it ends anyway
	}
}

// crowded reports whether a further stream is to be refused: there are too many that
// wait for their clients, and this connection has more than a few of those.
func (c *Conn) crowded() bool {
	in := c.inner.Load()
	if in == nil || !c.o.Budget.Pressed() {
		return false
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	n := 0
	for _, f := range in.open {
		if f.left < stall.SmallWindow || f.fed != 0 {
			n++
		}
	}
	return n > stall.Few
}

// decline refuses a stream of which nothing was done: its client may ask again (RFC
// 9113, 8.7).
func (c *Conn) decline(t *turn, id uint32) error {
	c.o.Budget.Refuse()
	if c.resets.Many(time.Now()) {
		return c.flooded(t, Resets)
	}
	c.declined.add(id)
	t.out = appendReset(t.out, id, codeRefusedStream)
	return nil
}
