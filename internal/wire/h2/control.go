package h2

import (
	"encoding/binary"
	"time"
)

func (c *Conn) priority(t *task, h head, p []byte) error {
	if c.inner.Load() == nil && len(p) == 5 && h.id != 0 && binary.BigEndian.Uint32(p)&idMask != h.id {
		return nil // the host ignores it, and net/http has not started
	}
	return c.passFrame(t, h, p)
}

func (c *Conn) rstStream(t *task, h head, p []byte) error {
	switch {
	case len(p) != 4:
		return c.fail(t, codeFrameSize)
	case c.unopened(h.id):
		return c.fail(t, codeProtocol)
	case c.resets.Many(time.Now()):
		return c.flooded(t, Resets)
	}
	if c.cancel(h.id) {
		return nil
	}
	// Net/http may never have got a stream that has ended, even if it got a later one:
	// a GOAWAY may have refused it.
	if in := c.inner.Load(); in == nil || !in.end(h.id) {
		return nil // the answer was complete
	}
	return c.passFrame(t, h, p)
}

func (c *Conn) ping(t *task, h head, p []byte) error {
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
	return c.passFrame(t, h, p)
}

func (c *Conn) goawayFrame(t *task, h head, p []byte) error {
	switch {
	case len(p) < 8:
		return c.fail(t, codeFrameSize)
	case h.id != 0:
		return c.fail(t, codeProtocol)
	case c.inner.Load() == nil:
		c.run.phase = phaseLeaving
		return nil
	}
	return c.passFrame(t, h, p)
}

func (c *Conn) windowUpdate(t *task, h head, p []byte) error {
	if len(p) != 4 {
		return c.fail(t, codeFrameSize)
	}
	n := int64(binary.BigEndian.Uint32(p) & idMask)
	in := c.inner.Load()
	if h.id != 0 {
		if c.unopened(h.id) {
			return c.fail(t, codeProtocol)
		}
		if was, err := c.growForwarded(t, h.id, n); was {
			return err
		}
		if in == nil || !in.growWindow(h.id, n) {
			return c.windowAfterEnd(t, h.id, n)
		}
		return c.passFrame(t, h, p)
	}
	if n == 0 {
		return c.fail(t, codeProtocol)
	}
	pass, ok := c.window.grow(n)
	if !ok {
		return c.fail(t, codeFlowControl)
	}
	if in != nil && pass > 0 {
		t.toInner = appendWindowUpdate(t.toInner, 0, pass)
	}
	return c.sendPending()
}

// windowAfterEnd handles an increment on a stream whose answer is complete. It has no
// effect, but one that makes any window too large is an error, as it would have been
// before the answer's end (RFC 9113, 6.9.1).
func (c *Conn) windowAfterEnd(t *task, id uint32, n int64) error {
	if n+int64(c.run.settings.window) <= maxWindow {
		return nil
	}
	if c.resets.Many(time.Now()) {
		return c.flooded(t, Resets)
	}
	t.out = appendReset(t.out, id, codeFlowControl)
	return nil
}
