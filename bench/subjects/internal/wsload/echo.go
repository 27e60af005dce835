package wsload

import (
	"errors"
	"fmt"
	"time"
)

// echoing is an echo under way.
type echoing struct {
	order  Echo
	until  int64 // ns: then nothing more is sent
	trips  histogram
	flying int
	latest int64 // ns: when a message came back last
	got    Echoed
}

// Echo sends messages, one at a time on each connection.
func (c *Client) Echo(o Echo) (Echoed, error) {
	if err := o.check(); err != nil {
		return Echoed{}, err
	}
	if c.open == 0 {
		return Echoed{}, errors.New("no connection is open that could echo")
	}
	for i := range c.conns {
		c.conns[i].prepare(i, o.Size)
	}
	start := c.now()
	e := &echoing{order: o, until: start + int64(o.Duration)}
	c.echoing = e
	for i := range c.conns {
		if k := &c.conns[i]; k.fd >= 0 {
			e.flying++
			k.awaiting, k.sent = true, c.now()
			if err := write(k.fd, k.send); err != nil {
				c.lose(k, err)
			}
		}
	}
	for e.flying > 0 && c.now() < max(e.until, e.latest)+int64(c.patience) {
		if err := c.Turn(nap); err != nil {
			return Echoed{}, err
		}
	}
	e.got.Took = time.Duration(c.now() - start)
	for i := range c.conns {
		k := &c.conns[i]
		if k.awaiting {
			k.awaiting = false
			e.failed(fmt.Errorf("a message did not come back within %v", c.patience))
		}
		k.send, k.want = nil, nil
	}
	c.echoing = nil
	e.got.Trip = e.trips.times()
	return e.got, nil
}

// prepare makes the message of a connection, which nobody else sends: text that
// is valid UTF-8.
func (k *conn) prepare(index, size int) {
	const filler = "abcdefghijklmnopqrstuvwxyz"
	message := fmt.Appendf(make([]byte, 0, size), "%08x", index)
	for len(message) < size {
		message = append(message, filler[len(message)%len(filler)])
	}
	k.send = masked(nil, opText, message)
	k.want = plain(nil, opText, message)
}

// echoed is told that a message came back as it was sent.
func (c *Client) echoed(k *conn) {
	e, now := c.echoing, c.now()
	e.trips.add(now - k.sent)
	e.got.Messages++
	e.latest = now
	if now >= e.until {
		k.awaiting = false
		e.flying--
		return
	}
	k.sent = now
	if err := write(k.fd, k.send); err != nil {
		c.lose(k, err)
	}
}

// failed is told that a message will not come back.
func (e *echoing) failed(err error) {
	e.flying--
	e.got.Failed++
	if e.got.First == "" {
		e.got.First = err.Error()
	}
}
