package conn

import "millrace/websocket/frame"

// write sends a frame: at the end of the turn, or at once if it is large.
func (c *Conn) write(h frame.Header, body []byte) {
	if c.is(dead | doomed) {
		return
	}
	h.Length = int64(len(body))
	if c.driver != nil {
		c.driver.write(h, body)
		return
	}
	c.loop.write(c, h, body)
}

// writeLast sends a close frame, behind which nothing is sent.
func (c *Conn) writeLast(b []byte) {
	if c.is(dead | doomed) {
		return
	}
	if c.driver != nil {
		c.driver.writeLast(b)
		return
	}
	c.loop.writeRaw(c, b)
}

// waiting is how many bytes of output wait, of those that the turn has made.
func (c *Conn) waiting() int {
	if c.driver != nil {
		return c.driver.collected()
	}
	if c.out == nil {
		return 0
	}
	return c.out.bytes
}

// stuckSince is the tick since which the client has taken no byte of the output that
// waits.
func (c *Conn) stuckSince() (tick uint32, waits bool) {
	if c.driver != nil {
		c.driver.mu.Lock()
		defer c.driver.mu.Unlock()
	}
	if c.out == nil || c.out.bytes == 0 {
		return 0, false
	}
	return c.out.since, true
}

// tooSlow ends a connection whose client reads more slowly than others write for it.
func (c *Conn) tooSlow() { c.endUnread(frame.TryAgainLater, "the client is too slow", closeTime) }

// takesNothing ends a connection whose client has taken no byte of what waits
// for WriteTimeout. Many such clients send a whole message before they read:
// while its answer waits nothing of it is read, so it ends here if it is larger
// than the buffers on the way.
func (c *Conn) takesNothing() {
	code, reason := frame.PolicyViolation, "nothing was read for too long"
	if c.set.streamer != nil && c.is(inMessage) && c.size > stallAt {
		code, reason = frame.TooBig, "the message is too big for a client that does not read while it sends"
	}
	c.endUnread(code, reason, c.lastWords())
}

// lastWords is how many ticks a client has to take a close frame that waits behind
// other output.
func (c *Conn) lastWords() uint32 { return max(closeTime, ticks(c.set.WriteTimeout)) }

// endUnread ends a connection whose client does not read. Output of which nothing was
// written is dropped, and the close frame follows what is being written. Until the
// client has that, or the given ticks are over, what it sends is thrown away: it may
// read only when it has sent everything.
func (c *Conn) endUnread(code frame.Code, reason string, within uint32) {
	if c.is(dead | doomed | closeSent | closeSeen | failed) {
		return
	}
	c.code = code
	c.countClose(closeReason(code, true))
	last := chunk{b: frame.AppendClose(nil, code, reason)}
	c.put(closeSent | failed)
	if c.driver != nil {
		c.driver.replace(c, last)
	} else if c.out != nil {
		c.out.replace(c.set, last)
		c.loop.discardInput(c)
	}
	c.schedule(within)
}

// replace drops everything of which nothing was written, and queues last.
func (o *output) replace(s *Settings, last chunk) {
	bytes, length := o.bytes, o.length
	for range o.dropWaiting() {
		s.Meters.Dropped.Add(droppedSlow)
	}
	o.push(last)
	s.account(o.bytes-bytes, o.length-length)
}
