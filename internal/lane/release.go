package lane

import "net"

// limitedConn is a connection below TLS that counts against a limit until it is
// closed, or until this is called.
type limitedConn interface{ Uncount() }

// Release gives up a hijacked connection for good. The caller owns it from here on
// and closes it; it also gets the bytes that were read already, which come before
// what is still to be read. For the server the connection is closed: it no longer counts against
// limits.connections, a drain does not wait for it, and Close does not cut it.
// The connection is a *net.TCPConn, *net.UnixConn or *tls.Conn. A connection
// that is not a hijacked one of a lane, or was released before, is returned as it is.
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

// Switcher is an [http.ResponseWriter] that may give up its connection as a
// descriptor, without any of net/http and of package net.
type Switcher interface {
	// Switch sends head, the whole head of an answer with the status 101. With ok
	// the descriptor is the caller's, as by [Release]; early are bytes that were
	// read already. Otherwise nothing was sent, and the caller should hijack.
	Switch(head []byte) (fd int, early []byte, ok bool)
}

// release marks c as closed. It waits for a cut that has begun; afterwards nobody
// cuts it any more.
func (c *Conn) release() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.end(stateReleased)
}
