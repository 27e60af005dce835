package h2

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxControl and controlShare bound the frames that ask for nothing (PING, SETTINGS,
	// PRIORITY, empty DATA, WINDOW_UPDATE): after the first mebibyte of them, each byte
	// of requests and bodies allows eight more, as in nginx.
	maxControl   = 1 << 20
	controlShare = 8
	// resetBurst and resetRate bound reset streams, whoever resets them, as in
	// nghttp2 (CVE-2023-44487, CVE-2025-8671).
	resetBurst = 1000
	resetRate  = 33 // a second
)

// Reason is why a client was cut off.
type Reason uint32

// Reasons. None is for connections that ended otherwise: by the client, by a
// timeout of the host's, in a drain.
const (
	None          Reason = iota
	Malformed            // a frame or a header block that breaks the protocol
	Headers              // a header block that is too long, or comes in too many frames
	ControlFrames        // too many frames that ask for nothing (PING, SETTINGS …)
	Resets               // too many streams that were reset, by either side
	Stalled              // an answer waited too long for the connection's window
	TooMany              // too many streams waited for it
)

// Reason is why the client was cut off. It is final once Run has returned.
func (c *Conn) Reason() Reason { return Reason(c.reason.Load()) }

// setReason notes the reason, unless there is one already.
func (c *Conn) setReason(r Reason) { c.reason.CompareAndSwap(uint32(None), uint32(r)) }

// flooded ends the connection of a client that exceeds a limit.
func (c *Conn) flooded(t *task, r Reason) error {
	c.setReason(r)
	return errors.Join(ErrFlood, c.fail(t, codeEnhanceYourCalm))
}

// flood counts bytes of frames.
type flood struct {
	useful  atomic.Int64 // bytes of requests and bodies, in both directions
	control int64        // bytes of frames that ask for nothing
}

func (f *flood) countUseful(n int) { f.useful.Add(int64(n)) }

// countControl counts a frame that asks for nothing, and reports whether there have been
// too many.
func (f *flood) countControl(n int) bool {
	f.control += int64(n)
	return f.control > maxControl+controlShare*f.useful.Load()
}

// ResetCount counts the streams of a connection that were reset; HTTP/3 has the same
// bound.
type ResetCount struct {
	mu    sync.Mutex
	level float64
	since time.Time
}

// Many counts a reset, and reports whether there have been too many of late.
func (r *ResetCount) Many(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.since.IsZero() {
		r.level = max(0, r.level-resetRate*now.Sub(r.since).Seconds())
	}
	r.since = now
	r.level++
	return r.level > resetBurst
}
