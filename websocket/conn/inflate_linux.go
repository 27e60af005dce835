package conn

import (
	"millrace/internal/wire/epoll"
)

// inflater is what a loop decompresses: one message at a time, a step in each
// round.
type inflater struct {
	now  Handle // whose message it is; the zero Handle: nobody's
	line line[Handle]
}

// idle reports whether there is nothing to decompress.
func (x *inflater) idle() bool { return x.now.c == nil && len(x.line.waiting) == 0 }

// inflateLater puts a connection into the line, and reads nothing more of it.
func (lp *loop) inflateLater(c *Conn) {
	lp.inflater.line.push(c.Handle(), c.partial.packed.Size())
	if c.out == nil {
		lp.watch(c, 0) // its end is told nevertheless
	}
}

// inflateStep does one step for the connection whose turn it is.
func (lp *loop) inflateStep() {
	x := &lp.inflater
	for x.now.c == nil || x.now.c.gen != x.now.gen || !x.now.c.is(inflating) {
		next, ok := x.line.pop()
		if x.now = next; !ok {
			return
		}
	}
	lp.inTurn(x.now.c, func(c *Conn) {
		if c.partial.inflation.Step() {
			x.now = Handle{}
			lp.inflated(c)
		}
	})
}

// inflated goes on with a connection whose message has been decompressed.
func (lp *loop) inflated(c *Conn) {
	c.cut(inflating | pinged)
	c.lastBytes = lp.tick // it was not read from: its silence says nothing
	if f := c.inflated(); f != fine {
		c.fail(&faults[f])
		lp.readOn(c)
		return
	}
	lp.readOn(c)
	if c.out == nil && !c.is(doomed|dead) {
		c.resume()
	}
}

// readOn watches for input again, unless output has to go before; see drain.
func (lp *loop) readOn(c *Conn) {
	if c.out == nil && !c.is(doomed|dead) {
		lp.watch(c, epoll.In|epoll.PeerShut)
	}
}
