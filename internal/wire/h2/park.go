package h2

// A connection that has come to a goroutine, because net/http had to answer, can go back
// to the host's event loop while it has no stream open:
//
//	host only ──a stream for net/http──▶ shared ──Park──▶ parked
//	                                       ▲                 │ a stream for net/http
//	                                       └────Unpark──── unparking
//
// In "shared" net/http writes to the client itself. While a connection is parked only
// the loop may write: what net/http still writes, such as SETTINGS acknowledgements, is
// posted, and the loop writes it. That is little, since no stream is open. With the next
// stream for net/http the connection leaves the loop; frames for net/http are kept until
// it has left.

// Park says that from now on only the caller of Run writes to the client. It reports
// false where a request or a frame is under way. Call it between calls of Run.
func (c *Conn) Park() bool {
	if len(c.run.partial) > 0 || c.run.backlog || c.run.block.open || c.run.dataLeft > 0 || c.run.phase == phaseLeaving || c.busy() || c.IsShut() {
		return false
	}
	if in := c.inner.Load(); in != nil && !in.noStreams() {
		return false
	}
	c.w.mu.lock()
	defer c.w.mu.unlock()
	c.parked.Store(true)
	return true
}

// Parked reports whether the connection is parked, or unparking.
func (c *Conn) Parked() bool { return c.parked.Load() }

// Unpark ends Park: it writes what was posted, and gives net/http the frames that were kept.
func (c *Conn) Unpark() error {
	if !c.parked.Load() {
		return nil
	}
	c.w.mu.lock()
	c.parked.Store(false)
	err := c.writePostedLocked()
	c.w.mu.unlock()
	later := c.run.deferred
	if c.run.deferred, c.run.unparking = nil, false; len(later) > 0 && err == nil {
		err = c.inner.Load().pipe.write(later, c.run.dataLeft > 0 && !c.run.discard)
	}
	return err
}

// writePosted writes what net/http has posted.
func (c *Conn) writePosted() error {
	if !c.parked.Load() {
		return nil
	}
	c.w.mu.lock()
	defer c.w.mu.unlock()
	return c.writePostedLocked()
}

// writePostedLocked is writePosted for a caller that holds w.mu.
func (c *Conn) writePostedLocked() error {
	b := c.w.posted
	c.w.posted = nil
	if len(b) == 0 {
		return nil
	}
	_, err := c.host.Write(b)
	return err
}

// writeOrPost writes what net/http has written, or posts it while the connection is
// parked. The caller holds w.mu. Where posted is true it must call [Host.Wake].
func (c *Conn) writeOrPost(b []byte) (posted bool, err error) {
	if !c.parked.Load() {
		_, err = c.host.Write(b)
		return false, err
	}
	if len(c.w.posted)+len(b) > maxOut { // far more than net/http writes without a stream
		return false, errGone
	}
	c.w.posted = append(c.w.posted, b...)
	return true, nil
}

// noStreams reports whether net/http has no stream open.
func (in *inner) noStreams() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.open) == 0
}

// beginUnpark has a parked connection leave its loop, and gives net/http the requests
// that were forwarded.
func (c *Conn) beginUnpark(t *task, in *inner) {
	if c.parked.Load() && !c.run.unparking {
		c.run.unparking = true
		c.host.LeaveLoop()
	}
	c.handoffForwarded(t, in)
}
