package wsload

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Open opens connections from goroutines that may wait, while the thread goes on
// with those that are open already.
func (c *Client) Open(o Open) (State, error) {
	if err := o.check(); err != nil {
		return State{}, err
	}
	if len(c.conns) > 0 || c.held != nil {
		return State{}, errors.New("what was opened before is not closed yet")
	}
	to, err := netip.ParseAddrPort(o.Address)
	if err != nil || !to.Addr().Is4() {
		return State{}, fmt.Errorf("the address %q: it must be an IPv4 address and a port", o.Address)
	}
	start := c.now()
	c.state = State{}
	if o.TLS {
		c.held, c.state = hold(o, to)
		c.state.Took = time.Duration(c.now() - start)
		return c.State(), nil
	}
	c.conns = make([]conn, o.Connections)
	for i := range c.conns {
		c.conns[i].fd = -1
	}
	var next atomic.Int64
	var all sync.WaitGroup // of the openers
	for range min(o.Busy, o.Connections) {
		all.Go(func() { c.opener(&o, to, &next) })
	}
	for done := 0; done < o.Connections; {
		n, err := c.adopt()
		if err == nil {
			err = c.Turn(nap)
		}
		if err != nil {
			next.Store(int64(o.Connections)) // the openers stop
			all.Wait()
			return State{}, err
		}
		done += n
	}
	all.Wait()
	c.state.Took = time.Duration(c.now() - start)
	return c.State(), nil
}

// opener opens connections until there are none left to open.
func (c *Client) opener(o *Open, to netip.AddrPort, next *atomic.Int64) {
	buf := make([]byte, maxHead)
	until := c.began.Add(time.Duration(c.now()) + o.Limit)
	for {
		i := int(next.Add(1) - 1)
		if i >= o.Connections {
			return
		}
		fresh := opened{index: i, fd: -1}
		s, err := dial(source(o, i), to, until)
		if err == nil {
			fresh.fd = s.fd
			fresh.early, err = s.upgrade(o, buf)
		}
		fresh.err = err
		c.mu.Lock()
		c.opened = append(c.opened, fresh)
		c.mu.Unlock()
		c.Wake()
	}
}

// source is the address that a connection comes from.
func source(o *Open, i int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 0, 0, byte(o.FirstSource + i%o.Sources)})
}

// adopt takes over what the openers have finished, and says how many.
func (c *Client) adopt() (int, error) {
	c.mu.Lock()
	fresh := c.opened
	c.opened = nil
	c.mu.Unlock()
	for _, f := range fresh {
		k := &c.conns[f.index]
		k.fd = f.fd
		if f.fd >= 0 {
			c.open++
		}
		if f.err != nil {
			c.drop(k)
			c.state.Failed++
			c.because(f.err)
			continue
		}
		if err := c.watch(f.fd, f.index); err != nil {
			return 0, err
		}
		if err := c.take(k, f.early); err != nil {
			c.lose(k, err)
		}
	}
	return len(fresh), nil
}
