package h2

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxIdle and idleShare bound the frames that ask for nothing (PING, SETTINGS,
	// PRIORITY, empty DATA, WINDOW_UPDATE): one byte of what is useful pays for
	// eight of them, as in nginx, after the first mebibyte.
	maxIdle   = 1 << 20
	idleShare = 8
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
	None      Reason = iota
	Malformed        // a frame or a header block that breaks the protocol
	Headers          // a header block that is too long, or comes in too many frames
	Idle             // too many frames that ask for nothing
	Resets           // too many streams that were reset, by either side
	Stalled          // an answer waited too long for the connection's window
	TooMany          // too many streams waited for it
)

// Blamed is why the client was cut off. It is certain when Run has returned.
func (c *Conn) Blamed() Reason { return Reason(c.blamed.Load()) }

// blame takes note of the first reason.
func (c *Conn) blame(r Reason) { c.blamed.CompareAndSwap(uint32(None), uint32(r)) }

// flooded ends the connection of a client that does too much of something.
func (c *Conn) flooded(t *turn, r Reason) error {
	c.blame(r)
	return errors.Join(ErrFlood, c.fail(t, codeEnhanceYourCalm))
}

// flood counts bytes of frames.
type flood struct {
	good  atomic.Int64 // of both directions
	empty int64
}

func (f *flood) useful(n int) { f.good.Add(int64(n)) }

// idle counts a frame that asks for nothing, and reports whether there have been
// too many.
func (f *flood) idle(n int) bool {
	f.empty += int64(n)
	return f.empty > maxIdle+idleShare*f.good.Load()
}

// ResetCount counts the streams of a connection that were reset; HTTP/3 has the same
// bound.
type ResetCount struct {
	mu    sync.Mutex
	level float64
	since time.Time
}

// Many counts a reset, and reports whether there have been too many.
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
