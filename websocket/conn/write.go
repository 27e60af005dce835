package conn

import "millrace/websocket/frame"

// write sends a frame: at the turn's end, or at once where it is large.
func (c *Conn) write(h frame.Header, body []byte) {
	if c.is(dead | doomed) {
		return
	}
	h.Length = int64(len(body))
	if c.own != nil {
		c.own.batch = append(h.Append(c.own.batch), body...)
		return
	}
	c.loop.write(c, h, body)
}

// writeRaw sends a frame that is made already.
func (c *Conn) writeRaw(b []byte) {
	if c.is(dead | doomed) {
		return
	}
	if c.own != nil {
		c.own.batch = append(c.own.batch, b...)
		return
	}
	c.loop.writeRaw(c, b)
}

// waiting is how many bytes of output wait.
func (c *Conn) waiting() int {
	if c.own != nil {
		c.own.mu.Lock()
		defer c.own.mu.Unlock()
		if c.out != nil {
			return len(c.own.batch) + c.out.bytes
		}
		return len(c.own.batch)
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
	if c.is(dead | closeSeen | failed) {
		return
	}
	c.code = frame.TryAgainLater
	c.set.Meters.Closed.Add(closeReason(frame.TryAgainLater, true))
	last := frame.AppendClose(nil, frame.TryAgainLater, "the client is too slow")
	if c.own != nil {
		c.own.mu.Lock()
		defer c.own.mu.Unlock()
	}
	if c.out != nil {
		c.set.account(-c.out.bytes, -c.out.length)
		c.out.onlyBegun()
		c.out.push(last, false)
		c.set.account(c.out.bytes, c.out.length)
	}
	c.put(closeSent)
	c.schedule(closeTime)
}

// onlyBegun forgets everything but the chunk of which a part has gone.
func (o *output) onlyBegun() {
	kept := 0
	if o.skip > 0 {
		kept = 1
	}
	first, skip := o.first, o.skip
	chunks := append(o.chunks[:0], o.chunks[first:first+kept]...)
	clear(o.chunks[len(chunks):])
	*o = output{chunks: chunks, skip: skip, since: o.since}
	for _, k := range chunks {
		o.bytes += len(k.b)
		if k.message {
			o.length++
			o.shared += len(k.b)
		}
	}
	o.bytes -= skip
}
