package conn

import "millrace/websocket/frame"

// write sends a frame: at the turn's end, or at once where it is large.
func (c *Conn) write(h frame.Header, body []byte) {
	if c.is(dead | doomed) {
		return
	}
	h.Length = int64(len(body))
	if c.own != nil {
		c.own.write(h, body)
		return
	}
	c.loop.write(c, h, body)
}

// writeLast sends a close frame, behind which nothing goes.
func (c *Conn) writeLast(b []byte) {
	if c.is(dead | doomed) {
		return
	}
	if c.own != nil {
		c.own.writeLast(b)
		return
	}
	c.loop.writeRaw(c, b)
}

// waiting is how many bytes of output wait, of those that the turn has made.
func (c *Conn) waiting() int {
	if c.own != nil {
		return c.own.collected()
	}
	if c.out == nil {
		return 0
	}
	return c.out.bytes
}

// stuckSince is since which tick the client has taken no byte of what waits.
func (c *Conn) stuckSince() (tick uint32, waits bool) {
	if c.own != nil {
		c.own.mu.Lock()
		defer c.own.mu.Unlock()
	}
	if c.out == nil || c.out.bytes == 0 {
		return 0, false
	}
	return c.out.since, true
}

// tooSlow ends a connection whose client does not read what others send it:
// what has not begun to go is forgotten, and a close frame is all that still waits.
func (c *Conn) tooSlow() {
	if c.is(dead | doomed | closeSent | closeSeen | failed) {
		return
	}
	c.code = frame.TryAgainLater
	c.countClose(closeReason(frame.TryAgainLater, true))
	last := chunk{b: frame.AppendClose(nil, frame.TryAgainLater, "the client is too slow")}
	if c.own != nil {
		c.own.replace(c, last)
	} else if c.out != nil {
		c.out.replace(c.set, last)
	}
	c.put(closeSent)
	c.schedule(closeTime)
}

// replace forgets what has not begun to go for what is to be the last.
func (o *output) replace(s *Settings, last chunk) {
	bytes, length := o.bytes, o.length
	for range o.onlyBegun() {
		s.Meters.Dropped.Add(droppedSlow)
	}
	o.push(last)
	s.account(o.bytes-bytes, o.length-length)
}
