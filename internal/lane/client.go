package lane

import (
	"net"
	"net/netip"

	"millrace/internal/trace"
)

// Named is a TCP or UNIX connection whose client somebody else has named, who
// stands in between and may be trusted.
type Named struct {
	net.Conn
	Client net.Addr
}

// RemoteAddr is the client that was named.
func (n *Named) RemoteAddr() net.Addr { return n.Client }

// unwrapNamed is the connection itself.
func unwrapNamed(nc net.Conn) net.Conn {
	if n, ok := nc.(*Named); ok {
		return n.Conn
	}
	return nc
}

// ipv6ClientBits is how much of an IPv6 address is counted: what a customer has is
// a network of 64 bits at least.
const ipv6ClientBits = 64

// ClientOf returns what limits by address count a client as: its IPv4 address, or
// the /64 network of its IPv6 address. The zero address, of UNIX sockets, is not
// counted.
func ClientOf(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		network, _ := a.Prefix(ipv6ClientBits) // cannot fail: it has 128 bits
		return network.Addr()
	}
	return a
}

// RemoteHost is a client's address as it is logged: without the port, "-" on a
// UNIX socket.
func RemoteHost(addr net.Addr) string {
	var ip net.IP
	var zone string
	switch a := addr.(type) {
	case *net.TCPAddr:
		ip, zone = a.IP, a.Zone
	case *net.UDPAddr:
		ip, zone = a.IP, a.Zone
	default:
		return "-"
	}
	if zone != "" {
		return ip.String() + "%" + zone
	}
	return ip.String()
}

// loggedClient is who sent a request, as it is logged: remote, which is the
// connection's other end, or whom that one names if it is trusted.
func (s *Settings) loggedClient(remote string, q *request, b []byte) string {
	if s.Clients == nil || s.clientHeader >= numKept || !q.has(s.clientHeader) {
		return remote
	}
	peer, _ := netip.ParseAddr(remote) // of a UNIX socket the zero address
	if peer = peer.WithZone("").Unmap(); !s.Clients.Trusts(peer) {
		return remote
	}
	return s.Clients.Named(peer, view(q.value(b, s.clientHeader))).String()
}

// requestID is the id that a request has brought, where it is to be taken over: the
// one that its log line has. Other ids are not made here, since nobody but the log
// would see them.
func (s *Settings) requestID(remote string, q *request, b []byte) string {
	if s.idHeader >= numKept || !q.has(s.idHeader) {
		return ""
	}
	id := view(q.value(b, s.idHeader))
	if !trace.UsableID(id) {
		return ""
	}
	proxy := false
	if s.Clients != nil {
		peer, _ := netip.ParseAddr(remote) // of a UNIX socket the zero address
		proxy = s.Clients.Trusts(peer.WithZone("").Unmap())
	}
	if !s.Tracer.Trusts(proxy) {
		return ""
	}
	return id
}

// gateClient is who sent a request, as gates know it. ok is false where only net/http
// can tell.
func (s *Settings) gateClient(remote net.Addr, q *request, b []byte) (client netip.Addr, ok bool) {
	peer := addrOf(remote)
	switch {
	case !s.Clients.Trusts(peer):
		return peer, true
	case s.clientHeader == hdrRefuse: // and so not in this request
		return peer, true
	case s.clientHeader >= numKept:
		return peer, false
	}
	return s.Clients.Named(peer, view(q.value(b, s.clientHeader))), true
}

// addrOf is the address of a connection's other end, the zero one for a UNIX socket.
func addrOf(a net.Addr) netip.Addr {
	if a, ok := a.(interface{ AddrPort() netip.AddrPort }); ok { // TCP and UDP
		return a.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}
