package h2

import (
	"encoding/binary"
	"time"
)

func (c *Conn) priority(t *task, h head, p []byte) error {
	switch {
	case len(p) != 5:
		return c.fail(t, codeFrameSize)
	case h.id == 0:
		return c.fail(t, codeProtocol)
	case binary.BigEndian.Uint32(p)&idMask == h.id && c.flows.end(h.id):
		c.passFrame(t, h, p) // which then resets it
	case binary.BigEndian.Uint32(p)&idMask == h.id:
		c.cancel(h.id)
		return c.reset(t, h.id, codeProtocol)
	}
	return nil // it says nothing that is used
}

// reset resets a stream for what the client has done.
func (c *Conn) reset(t *task, id uint32, why code) error {
	if c.resets.Many(time.Now()) {
		return c.flooded(t, Resets)
	}
	t.out = appendReset(t.out, id, why)
	return nil
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
	if c.flows.end(h.id) {
		c.passFrame(t, h, p)
	}
	return nil
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
	}
	c.passFrame(t, h, p)
	return nil
}

func (c *Conn) goawayFrame(t *task, h head, p []byte) error {
	switch {
	case len(p) < 8:
		return c.fail(t, codeFrameSize)
	case h.id != 0:
		return c.fail(t, codeProtocol)
	}
	return nil // the client closes the connection when it has its answers
}

func (c *Conn) windowUpdate(t *task, h head, p []byte) error {
	if len(p) != 4 {
		return c.fail(t, codeFrameSize)
	}
	n := int64(binary.BigEndian.Uint32(p) & idMask)
	if h.id != 0 {
		if c.unopened(h.id) {
			return c.fail(t, codeProtocol)
		}
		if was, err := c.growForwarded(t, h.id, n); was {
			return err
		}
		f := c.flows.find(h.id)
		if f == nil {
			return c.windowAfterEnd(t, h.id, n)
		}
		if f.inner != nil {
			c.flows.growWindow(f, n)
			c.passFrame(t, h, p)
			return nil
		}
		if why := c.flows.growWindow(f, n); why != codeNo {
			c.flows.end(h.id)
			return c.reset(t, h.id, why)
		}
		return nil
	}
	if n == 0 {
		return c.fail(t, codeProtocol)
	}
	pass, ok := c.window.grow(n)
	if !ok {
		return c.fail(t, codeFlowControl)
	}
	if c.inner.Load() != nil && pass > 0 {
		t.toInner = appendWindowUpdate(t.toInner, 0, pass)
	}
	c.flows.windowGrown()
	return c.sendPending()
}

// windowAfterEnd handles an increment on a stream whose answer is complete. It has no
// effect, but one that makes any window too large is an error, as it would have been
// before the answer's end (RFC 9113, 6.9.1).
func (c *Conn) windowAfterEnd(t *task, id uint32, n int64) error {
	if n+int64(c.run.settings.window) <= maxWindow {
		return nil
	}
	return c.reset(t, id, codeFlowControl)
}
