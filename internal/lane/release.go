package lane

import "net"

// limitedConn is a connection below TLS that counts against limits.connections until it is
// closed or Uncount is called.
type limitedConn interface{ Uncount() }

// Release hands a hijacked connection off to the caller, who then owns it and must close it.
// early are bytes that were read already; they come before those in raw. For the server
// the connection is closed: it no longer counts against limits.connections, a drain does
// not wait for it, and Close does not cut it. raw is a *net.TCPConn, *net.UnixConn or
// *tls.Conn. A connection that is no hijacked one of a lane, or was released before, is
// returned as it is.
func Release(nc net.Conn) (raw net.Conn, early []byte) {
	c, ok := FromNet(nc)
	if !ok || c.state.load() != stateHijacked || !c.release() {
		return nc, nil
	}
	c.lane.untrack(c)
	if c.onClose != nil {
		c.onClose()
	}
	if u, ok := c.transport.(limitedConn); ok {
		u.Uncount()
	}
	early, c.readAhead = c.readAhead, nil
	return c.nc, early
}

// Switcher is an [http.ResponseWriter] that can hand its connection off as a descriptor,
// which costs less than a hijack.
type Switcher interface {
	// Switch sends head, the whole head of an answer with the status 101, and returns
	// the descriptor, which is the caller's as after [Release]. early are bytes that
	// were read already. Where ok is false nothing was sent; hijack then.
	Switch(head []byte) (fd int, early []byte, ok bool)
}

// release ends the server's part in the connection. A cut is over by then or does nothing,
// as both hold mu. It returns false if the connection was closed before.
func (c *Conn) release() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.end(stateReleased)
}
