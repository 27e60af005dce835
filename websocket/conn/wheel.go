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

// wheel finds the connections whose deadline has come (Varghese and Lauck, 1987,
// scheme 4). It is lazy: a busy connection stays in its slot, and only when that
// slot's turn comes is its real deadline looked up.
type wheel struct {
	slots [wheelSlots + 1]*Conn // the last: those whose time has come, see turn
	at    uint32                // ticks that were looked at
}

// ripe is the slot of those whose time has come.
const ripe = wheelSlots

// put enters a connection that is due in n ticks.
func (w *wheel) put(c *Conn, n uint32) {
	w.take(c)
	w.enter(c, (w.at+min(max(n, 1), wheelSlots-1))%wheelSlots)
}

// sooner is put, unless the connection is looked at earlier anyway.
func (w *wheel) sooner(c *Conn, n uint32) {
	if c.due == ripe+1 || c.due != 0 && (uint32(c.due)-1-w.at)%wheelSlots <= n {
		return
	}
	w.put(c, n)
}

func (w *wheel) enter(c *Conn, slot uint32) {
	c.due = uint16(slot) + 1
	if c.next = w.slots[slot]; c.next != nil {
		c.next.prev = c
	}
	w.slots[slot] = c
}

// take removes a connection.
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

// turn advances to the tick now, however long ago the last one was, and calls f once
// for each connection that is due. The connection is out of the wheel then; what f
// enters is counted from now.
func (w *wheel) turn(now uint32, f func(c *Conn)) {
	steps := min(now-w.at, wheelSlots)
	for w.at = now - steps; w.at != now; {
		w.at++
		for slot := w.at % wheelSlots; w.slots[slot] != nil; {
			c := w.slots[slot]
			w.take(c)
			w.enter(c, ripe)
		}
	}
	for w.slots[ripe] != nil {
		c := w.slots[ripe]
		w.take(c)
		f(c)
	}
}

// ticks is a duration in ticks, at least one.
func ticks(d time.Duration) uint32 {
	return uint32(max(1, min((d+tickTime-1)/tickTime, 1<<30)))
}
