package upstream

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

// The phases of an exchange on a connection of HTTP/1.
const (
	given    uint32 = iota // a request has been given this connection
	asked                  // and has written to it
	replied                // after which bytes came
	returned               // the answer is whole, and the connection back in the pool
)

// conn checks on a connection of HTTP/1 that each answer comes after its request.
//
// net/http gives a connection to the next request before it has looked whether
// the server sent more than it announced, and takes what it then finds for the
// answer to that next request, maybe of another client. Here nothing that has
// reached this machine before the first byte of a request leaves it is taken for
// the answer to that request:
//
//   - A connection that is used again first waits until net/http's reader has
//     read all there is and waits for more (settle), so that nothing is left in
//     a buffer above this one, nor, over TLS, the first half of a record.
//   - The first bytes of a request are written under the lock under which bytes
//     are read, after a look at what the kernel holds (write). So every byte was
//     either read before the request, which breaks the connection, or came later.
//   - An answer whose first byte was not read from the network after its request
//     was written is none (try.gotFirstByte): it was in a buffer.
//
// What comes later is indistinguishable from the answer. So a server that was
// seen to send such bytes once is asked on new connections only, for distrustFor;
// and the answers on a connection where they are seen are put in doubt ([Request.OnSuspect]).
type conn struct {
	net.Conn
	link          link   // what it is made of, as far as it is known
	plain         bool   // neither TLS nor HTTP/2, in which servers send first as well
	onUnsolicited func() // called when bytes came without a request; not nil
	phase         atomic.Uint32
	broken        atomic.Bool // reading or writing failed while it was open
	closed        atomic.Bool
	spoke         atomic.Bool // bytes came before anything was asked
	speaks        atomic.Uint32

	mu                  sync.Mutex
	changed             sync.Cond // parked or closed
	records             records   // of TLS
	past                          // without since
	parked              bool      // the reader has found nothing, and waits for more
	looked              bool      // no bytes have come since the reader asked for some
	reportedUnsolicited bool      // onUnsolicited was called
}

// What a connection speaks, once it is known.
const (
	unknownHTTP uint32 = iota
	speaksHTTP1
	speaksHTTP2
)

func newConn(nc net.Conn, speaks uint32, unasked func()) *conn {
	c := &conn{Conn: nc, plain: speaks == speaksHTTP1, onUnsolicited: unasked}
	c.changed.L = &c.mu
	c.speaks.Store(speaks)
	if s, ok := nc.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			c.link.open(c, raw)
		}
	}
	return c
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.link.read(c, b)
	if err != nil && !c.closed.Load() {
		c.broken.Store(true)
	}
	return n, err
}

// readThrough reads from a connection that is not a socket of this system's: it is not
// known when its bytes came, nor whether there are more.
func readThrough(c *conn, b []byte) (int, error) {
	c.mu.Lock()
	c.looked = true
	c.mu.Unlock()
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.mu.Lock()
		c.received(b[:n])
		c.mu.Unlock()
	}
	return n, err
}

// received notes what net/http's reader has read, with c.mu held.
func (c *conn) received(b []byte) {
	if c.speaks.Load() == speaksHTTP2 {
		return
	}
	c.parked, c.looked = false, false
	if !c.plain {
		c.records.walk(b)
	}
	switch c.phase.Load() {
	case asked:
		c.phase.Store(replied)
	case given:
		c.spoke.Store(c.spoke.Load() || c.plain || c.uses > 1) // a TLS server may send tickets after the handshake
	case returned:
		if c.plain && !isTimeoutNotice(b) {
			c.reportUnsolicited()
		}
	}
}

// isTimeoutNotice reports whether a server says that it will not wait for another
// request (RFC 9110, 15.5.9), as it may before it closes a quiet connection.
func isTimeoutNotice(b []byte) bool {
	return len(b) >= 12 && string(b[:7]) == "HTTP/1." && string(b[8:12]) == " 408"
}

// waits notes that the reader has found nothing and waits for more, with c.mu held.
func (c *conn) waits() {
	c.parked = true
	c.changed.Broadcast()
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	n := 0
	var err error
	if c.phase.Load() == given && c.speaks.Load() != speaksHTTP2 {
		if n, err = c.link.ask(c, b); err == nil && n == len(b) {
			return n, nil
		}
	}
	if err == nil {
		var m int
		m, err = c.Conn.Write(b[n:])
		n += m
	}
	if err != nil && !c.closed.Load() {
		c.broken.Store(true)
	}
	return n, err
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.mu.Lock()
	c.closed.Store(true)
	c.changed.Broadcast()
	// net/http closes a connection with bytes that belong to no request. They were
	// read, but not by the goroutine that would have called waits.
	phase := c.phase.Load()
	if c.link.sees() && c.speaks.Load() == speaksHTTP1 && !c.looked && (phase == returned || phase == given && c.uses > 1) && !c.records.goodbye() {
		c.reportUnsolicited()
	}
	c.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite ends the sending side, for upgraded connections.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// reportUnsolicited reports, once, that the server sent bytes without a request, and
// calls OnSuspect for the latest answers. c.mu is held.
func (c *conn) reportUnsolicited() {
	if c.reportedUnsolicited {
		return
	}
	c.reportedUnsolicited = true
	c.onUnsolicited()
	for _, onSuspect := range c.suspects {
		onSuspect()
	}
	c.suspects = nil
}

// maxSuspects is how many of the latest answers on a connection can be reported as
// suspect. An unsolicited answer that was not noticed shifts all that follow by one:
// each client gets the answer to the request before its own. The next unsolicited
// bytes are noticed sooner or later.
const maxSuspects = 16

// reportEarly is reportUnsolicited for callers that do not hold c.mu.
func (c *conn) reportEarly() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reportUnsolicited()
}

// begin is called when net/http has chosen the connection for a request. onSuspect is the request's; nil: none.
func (c *conn) begin(onSuspect func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.speaks.Load() == speaksHTTP2 {
		return
	}
	c.uses++
	c.registerSuspect(onSuspect)
	c.phase.Store(given)
	if c.uses > 1 && !c.settle() {
		c.spoke.Store(true)
	}
}

// settle waits until all that was sent so far is read, with c.mu held, and
// reports whether that belongs to the answers before. It waits for a goroutine
// of net/http that is about to read or to close the connection, not for the server.
func (c *conn) settle() bool {
	if !c.link.sees() {
		return true
	}
	for !c.parked && !c.closed.Load() {
		c.changed.Wait()
	}
	return !c.closed.Load() && c.records.between()
}

// back is called when the answer is whole and the connection was given back;
// maybe to a request that has got it by now.
func (c *conn) back() { c.phase.CompareAndSwap(replied, returned) }

// connOf returns the conn in what net/http calls the connection, which is that or TLS
// over it; nil: there is none.
func connOf(nc net.Conn) *conn {
	switch nc := nc.(type) {
	case *conn:
		return nc
	case *tls.Conn:
		c, _ := nc.NetConn().(*conn)
		if c != nil && c.speaks.Load() == unknownHTTP {
			speaks := speaksHTTP1
			if nc.ConnectionState().NegotiatedProtocol == "h2" {
				speaks = speaksHTTP2
			}
			c.speaks.Store(speaks)
		}
		return c
	}
	return nil
}
