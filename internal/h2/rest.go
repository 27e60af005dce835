package h2

// A connection that has gone to net/http and is quiet can go back to the host's
// loop. There nobody but the loop may write, so what net/http still says is posted
// to it: no stream is open, so that is little. With the next stream for net/http the
// connection leaves the loop; until it has, net/http does not hear of that stream.

// Rest says that from now on only who calls Run writes to the client. It reports
// false where something is under way. It is for who calls Run, between its calls.
func (c *Conn) Rest() bool {
	if len(c.partial) > 0 || c.put || c.block.open || c.rest > 0 || c.leaving || c.busy() || c.IsShut() {
		return false
	}
	if in := c.inner.Load(); in != nil && !in.idle() {
		return false
	}
	c.wmu.lock()
	defer c.wmu.unlock()
	c.resting.Store(true)
	return true
}

// Resting reports whether Rest holds.
func (c *Conn) Resting() bool { return c.resting.Load() }

// Resume ends Rest, after what was posted.
func (c *Conn) Resume() error {
	if !c.resting.Load() {
		return nil
	}
	c.wmu.lock()
	c.resting.Store(false)
	err := c.sendPosted()
	c.wmu.unlock()
	later := c.later
	if c.later, c.roused = nil, false; len(later) > 0 && err == nil {
		err = c.inner.Load().in.write(later, c.rest > 0 && !c.drop)
	}
	return err
}

// collect writes what net/http has posted.
func (c *Conn) collect() error {
	if !c.resting.Load() {
		return nil
	}
	c.wmu.lock()
	defer c.wmu.unlock()
	return c.sendPosted()
}

// sendPosted is for who has wmu.
func (c *Conn) sendPosted() error {
	b := c.posted
	c.posted = nil
	if len(b) == 0 {
		return nil
	}
	_, err := c.host.Write(b)
	return err
}

// putOut writes what net/http says, or posts it, with wmu held. posted is whether the
// host is to be told.
func (c *Conn) putOut(b []byte) (posted bool, err error) {
	if !c.resting.Load() {
		_, err = c.host.Write(b)
		return false, err
	}
	if len(c.posted)+len(b) > maxOut { // no stream is open, so there is little to say
		return false, errGone
	}
	c.posted = append(c.posted, b...)
	return true, nil
}

// idle reports whether none of its streams is open.
func (in *inner) idle() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.open) == 0
}

// rouse has a connection that rests go to net/http, and with it what the host has
// taken.
func (c *Conn) rouse(t *turn, in *inner) {
	if c.resting.Load() && !c.roused {
		c.roused = true
		c.host.Leave()
	}
	c.surrender(t, in)
}
