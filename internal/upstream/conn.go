package upstream

import (
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
)

// The phases of an exchange on a connection of HTTP/1.
const (
	given    uint32 = iota // a request has been given this connection
	asked                  // and has written to it
	answered               // after which bytes came
)

// conn watches the order of question and answer on a connection of HTTP/1.
//
// net/http gives a connection to the next request before it has looked whether
// the server sent more than it announced: what is left in the buffer is then
// read as the answer to that next request, maybe of another client. An honest
// answer's first byte is read from the network after the first byte of its
// request was written; what is there earlier is not an answer. So: between
// begin and the first byte of the answer there must be a Write and then a Read.
type conn struct {
	net.Conn
	phase  atomic.Uint32
	broken atomic.Bool // reading or writing failed while it was open
	closed atomic.Bool
	spoke  atomic.Bool // bytes came before anything was asked
	speaks atomic.Uint32
	plain  bool // neither TLS nor HTTP/2, which begin with talk of their own
}

// What a connection speaks, once it is known.
const (
	unknownHTTP uint32 = iota
	http1
	http2
)

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.phase.CompareAndSwap(asked, answered) && c.plain && c.phase.Load() == given {
		c.spoke.Store(true)
	}
	if err != nil && !c.closed.Load() {
		c.broken.Store(true)
	}
	return n, err
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	c.phase.CompareAndSwap(given, asked)
	n, err := c.Conn.Write(b)
	if err != nil && !c.closed.Load() {
		c.broken.Store(true)
	}
	return n, err
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

// CloseWrite ends the sending side, for upgraded connections.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// begin is called when a request has been given the connection.
func (c *conn) begin() { c.phase.Store(given) }

// connOf finds ours below what net/http calls the connection.
func connOf(nc net.Conn) *conn {
	switch nc := nc.(type) {
	case *conn:
		return nc
	case *tls.Conn:
		c, _ := nc.NetConn().(*conn)
		if c != nil && c.speaks.Load() == unknownHTTP {
			speaks := http1
			if nc.ConnectionState().NegotiatedProtocol == "h2" {
				speaks = http2
			}
			c.speaks.Store(speaks)
		}
		return c
	}
	return nil
}
