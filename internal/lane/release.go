package lane

import "net"

// Release gives up a hijacked connection for good: whoever has it from here on
// closes it, and has what was read from it already, which comes before what is
// still to be read. For the server it is closed: it counts no more against
// limits.connections, a drain does not wait for it, and Close does not cut it.
// The connection is a *net.TCPConn, *net.UnixConn or *tls.Conn.
func Release(nc net.Conn) (raw net.Conn, early []byte) {
	c, ok := FromNet(nc)
	if !ok || phase(c.phase.Load()) != hijacked || c.closed.Swap(true) {
		return nc, nil
	}
	c.lane.untrack(c)
	if c.gone != nil {
		c.gone()
	}
	early, c.held = c.held, nil
	return c.nc, early
}
