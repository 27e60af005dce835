package conn

import "time"

// tickTime is how often deadlines are looked at.
const tickTime = 500 * time.Millisecond

// Deadlines of the closing handshake, in ticks: for the peer's close frame
// after ours, and for the end of what comes from a peer that has failed.
const (
	closeTime = 10
	failTime  = 4
)

// wheelSlots is how many ticks ahead the wheel reaches; what is due later is
// put in again.
const wheelSlots = 256

// wheel finds the connections whose time has come (Varghese and Lauck, 1987,
// scheme 4). It is lazy: a connection that is busy stays where it is, and only
// when its slot's turn comes is it asked when it is really due.
type wheel struct {
	slots [wheelSlots]*Conn
	at    uint32 // ticks that were looked at
}

// put enters a connection that is due in n ticks.
func (w *wheel) put(c *Conn, n uint32) {
	w.take(c)
	i := (w.at + min(max(n, 1), wheelSlots-1)) % wheelSlots
	c.due = uint16(i) + 1
	if c.next = w.slots[i]; c.next != nil {
		c.next.prev = c
	}
	w.slots[i] = c
}

// take takes it out.
func (w *wheel) take(c *Conn) {
	if c.due == 0 {
		return
	}
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		w.slots[c.due-1] = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	}
	c.next, c.prev, c.due = nil, nil, 0
}

// turn goes one tick on and calls f for what stands there, which is out of the
// wheel by then.
func (w *wheel) turn(f func(c *Conn)) {
	w.at++
	for {
		c := w.slots[w.at%wheelSlots]
		if c == nil {
			return
		}
		w.take(c)
		f(c)
	}
}

// ticks is a duration in ticks, at least one.
func ticks(d time.Duration) uint32 {
	return uint32(max(1, min((d+tickTime-1)/tickTime, 1<<30)))
}
