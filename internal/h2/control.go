package h2

import (
	"encoding/binary"
	"time"
)

func (c *Conn) priority(t *turn, h head, p []byte) error {
	if c.inner.Load() == nil && len(p) == 5 && h.id != 0 && binary.BigEndian.Uint32(p)&idMask != h.id {
		return nil // nobody has use for it
	}
	return c.forward(t, h, p)
}

func (c *Conn) rstStream(t *turn, h head, p []byte) error {
	switch {
	case len(p) != 4:
		return c.fail(t, codeFrameSize)
	case c.unused(h.id):
		return c.fail(t, codeProtocol)
	case c.resets.Many(time.Now()):
		return c.flooded(t, Resets)
	}
	if c.dropped(h.id) {
		return nil
	}
	// Net/http may never have heard of a stream that has ended, even if it was
	// passed a later one: that may have been refused unread.
	if in := c.inner.Load(); in == nil || !in.end(h.id) {
		return nil // of an answer that is complete
	}
	return c.forward(t, h, p)
}

func (c *Conn) ping(t *turn, h head, p []byte) error {
	switch {
	case len(p) != 8:
		return c.fail(t, codeFrameSize)
	case h.id != 0:
		return c.fail(t, codeProtocol)
	case !h.has(flagAck):
		t.out = append(appendHead(t.out, head{length: 8, kind: framePing, flags: flagAck}), p...)
		return nil
	case c.inner.Load() == nil:
		return nil
	}
	return c.forward(t, h, p)
}

func (c *Conn) goAway(t *turn, h head, p []byte) error {
	switch {
	case len(p) < 8:
		return c.fail(t, codeFrameSize)
	case h.id != 0:
		return c.fail(t, codeProtocol)
	case c.inner.Load() == nil:
		c.leaving = true
		return nil
	}
	return c.forward(t, h, p)
}

func (c *Conn) windowUpdate(t *turn, h head, p []byte) error {
	if len(p) != 4 {
		return c.fail(t, codeFrameSize)
	}
	n := int64(binary.BigEndian.Uint32(p) & idMask)
	in := c.inner.Load()
	if h.id != 0 {
		if c.unused(h.id) {
			return c.fail(t, codeProtocol)
		}
		if was, err := c.widenCarried(t, h.id, n); was {
			return err
		}
		if in == nil || !in.widen(h.id, n) {
			return c.lateWindow(t, h.id, n)
		}
		return c.forward(t, h, p)
	}
	if n == 0 {
		return c.fail(t, codeProtocol)
	}
	pass, ok := c.window.grow(n)
	if !ok {
		return c.fail(t, codeFlowControl)
	}
	if in != nil && pass > 0 {
		t.pass = appendWindowUpdate(t.pass, 0, pass)
	}
	return c.sendLate()
}

// lateWindow takes an increment on a stream whose answer is complete. It has
// no effect, but one that no window could take is told to be wrong, as it would
// have been a moment earlier (RFC 9113, 6.9.1).
func (c *Conn) lateWindow(t *turn, id uint32, n int64) error {
	if n+int64(c.settings.window) <= maxWindow {
		return nil
	}
	if c.resets.Many(time.Now()) {
		return c.flooded(t, Resets)
	}
	t.out = appendReset(t.out, id, codeFlowControl)
	return nil
}
