package h2

import "time"

// flow is what is known of a stream that net/http answers.
type flow struct {
	left  int64 // of the stream's window
	moved int64 // when the answer has last moved on, in Unix nanoseconds; 0: it has not begun
	cut   bool  // it has not for too long: net/http was told
}

// begin notes that a stream was passed on, with that window.
func (in *inner) begin(id uint32, window int64) {
	in.mu.Lock()
	in.open[id] = flow{left: window}
	in.mu.Unlock()
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
