package conn

import "millrace/websocket/frame"

// schedule has the connection looked at in n ticks, at the latest.
func (c *Conn) schedule(n uint32) {
	if c.is(closeSent | closeSeen | failed) {
		c.lastMessage = c.tick() + n // from here on: by when it has to be over
	}
	if c.driver != nil {
		c.driver.strand.post(func() { c.driver.strand.enter(c, n) })
		return
	}
	c.loop.base().wheel.sooner(c, n)
}

// tick is the time.
func (c *Conn) tick() uint32 {
	if c.driver != nil {
		return c.driver.strand.engine.now()
	}
	return c.loop.base().tick
}

// has notes that bytes have come.
func (c *Conn) has(now uint32) {
	if c.lastBytes != now {
		c.slight = 0
	}
	c.lastBytes = now
	c.cut(pinged)
}

// idleReason is the reason in the close frame of a connection on which no message came
// for too long.
const idleReason = "nothing was said for too long"

// verdict is what to do with a connection whose slot of the wheel has come.
type verdict uint8

const (
	wait    verdict = iota
	ping            // ask whether it is there
	sendOff         // nothing was said for too long
	stuck           // its client takes nothing of what waits
	cutOff          // it is dead, or its time is over
)

// timeUp returns what to do with a connection now, and in how many ticks it is to be
// looked at again.
func (c *Conn) timeUp(now uint32) (verdict, uint32) {
	const never = wheelSlots - 1
	if c.is(closeSent | closeSeen | failed) {
		if c.after(now, c.lastMessage) {
			return cutOff, 0
		}
		return wait, c.lastMessage - now
	}
	next := uint32(never)
	within := func(since uint32, n uint32) bool { // and not over yet
		if due := since + n; c.after(now, due) {
			return false
		} else if due-now < next {
			next = due - now
		}
		return true
	}
	s := c.set
	if since, waits := c.stuckSince(); waits {
		switch {
		case s.WriteTimeout <= 0 || within(since, ticks(s.WriteTimeout)):
		case c.is(pipeEnd):
			return cutOff, 0
		default:
			return stuck, 0
		}
		return wait, next // it is not read from: its silence says nothing
	}
	if c.is(inflating) {
		return wait, 1 // nor is this one
	}
	if c.driver != nil && s.WriteTimeout > 0 {
		// Nobody tells when output begins to wait there: who looks as often as
		// this sees it in time.
		within(now, ticks(s.WriteTimeout))
	}
	if s.Beat.Data != nil {
		return c.beatUp(within, &next)
	}
	if s.Idle > 0 && !within(c.lastMessage, ticks(s.Idle)) {
		return sendOff, 0
	}
	switch {
	case s.Ping <= 0 || c.is(pipeEnd):
	case c.is(pinged):
		if s.PongTimeout > 0 && !within(c.lastBytes, ticks(s.PongTimeout)) {
			return cutOff, 0
		}
	case !within(c.lastBytes, ticks(s.Ping)):
		return ping, 0
	}
	return wait, next
}

// beatUp is what timeUp returns of a connection with Settings.Beat, of which lastMessage
// is the tick of the last one.
func (c *Conn) beatUp(within func(since, n uint32) bool, next *uint32) (verdict, uint32) {
	s := c.set
	if s.Ping <= 0 {
		return wait, *next
	}
	if c.is(pinged) && s.PongTimeout > 0 && !within(c.lastMessage, ticks(s.PongTimeout)) {
		return cutOff, 0
	}
	if !within(c.lastMessage, ticks(s.Ping)) {
		return ping, 0
	}
	return wait, *next
}

// after compares ticks, which wrap around after 68 years.
func (c *Conn) after(now, due uint32) bool { return int32(now-due) >= 0 }

// firstLook is the tick at which a new connection is first looked at.
func (c *Conn) firstLook(now uint32) uint32 {
	_, n := c.timeUp(now)
	return max(n, 1)
}

// look does with a connection what timeUp says, in its turn, and returns in how many
// ticks the next look is due.
func (c *Conn) look(now uint32) (next uint32) {
	v, next := c.timeUp(now)
	if v == wait {
		return next
	}
	c.act(v, now)
	_, next = c.timeUp(now)
	return next
}

func (c *Conn) act(v verdict, now uint32) {
	switch v {
	case ping:
		c.put(pinged)
		if b := &c.set.Beat; b.Data != nil {
			c.lastMessage = now
			c.set.Meters.MessagesOut.Add(c.shard(), 1)
			c.write(frame.Header{Fin: true, Op: b.Op}, b.Data)
			return
		}
		c.lastBytes = now
		c.write(frame.Header{Fin: true, Op: frame.Ping}, nil)
	case sendOff:
		if c.is(pipeEnd) {
			c.leavePipe(frame.Timeout, idleReason)
			return
		}
		c.Close(frame.Timeout, idleReason)
	case stuck:
		c.takesNothing()
	case cutOff:
		if !c.isBack() { // whose end is told to the client
			c.countClose(closedDead)
		}
		c.put(doomed)
	}
}
