package lane

import (
	"net"
	"net/netip"
	"net/textproto"

	"millrace/internal/observe/trace"
)

// Named is a TCP or UNIX connection through a trusted proxy, which has named the client
// in a PROXY header.
type Named struct {
	net.Conn
	Client net.Addr
}

// RemoteAddr returns the client's address, not the proxy's.
func (n *Named) RemoteAddr() net.Addr { return n.Client }

// unwrapNamed returns the connection below a Named.
func unwrapNamed(nc net.Conn) net.Conn {
	if n, ok := nc.(*Named); ok {
		return n.Conn
	}
	return nc
}

// ipv6ClientBits is how much of an IPv6 address tells clients apart: a provider gives a
// customer at least a /64 network.
const ipv6ClientBits = 64

// ClientOf returns by what limits count a client: its IPv4 address, or the /64 network
// of its IPv6 address. The zero address, of UNIX sockets, is not counted.
func ClientOf(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		network, _ := a.Prefix(ipv6ClientBits) // cannot fail: it has 128 bits
		return network.Addr()
	}
	return a
}

// RemoteHost returns a client's address for the log: without the port, and "-" for a
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

// watch finds out which fields a request must not have to be hot, or not twice: those that
// name the client or the request.
func (s *Settings) watch() {
	s.unkept, s.clientHeader = nil, hdrRefuse
	if s.Clients != nil {
		s.clientHeader = s.watchField(s.Clients.Header())
	}
	s.idHeader = s.watchField(s.Tracer.Header())
}

// watchField returns the id of a field; hdrRefuse: no request of the lane has it.
func (s *Settings) watchField(name string) headerID {
	id := lookupHeader([]byte(name))
	if id < numKept || name == "" {
		return id
	}
	s.unkept = append(s.unkept, textproto.CanonicalMIMEHeaderKey(name))
	return hdrRefuse
}

// allow reports whether the lane can tell whose request it is.
func (s *Settings) allow(b []byte, q *request) bool {
	return len(s.unkept) == 0 && q.repeated == 0 || s.allowRare(b, q)
}

// allowRare is allow where a field may be one of those.
func (s *Settings) allowRare(b []byte, q *request) bool {
	for _, name := range s.unkept {
		if q.hasField(b, name) {
			return false
		}
	}
	return !q.repeats(s.clientHeader) && !q.repeats(s.idHeader)
}

// loggedClient returns the client for the log: remote, the connection's other end, or
// the client that it names if it is a trusted proxy.
func (s *Settings) loggedClient(remote string, q *request, b []byte) string {
	if s.Clients == nil || s.clientHeader >= numKept || !q.has(s.clientHeader) {
		return remote
	}
	peer, _ := netip.ParseAddr(remote) // the zero address for a UNIX socket
	if peer = peer.WithZone("").Unmap(); !s.Clients.Trusts(peer) {
		return remote
	}
	return s.Clients.Named(peer, view(q.value(b, s.clientHeader))).String()
}

// requestID returns the id for the log of a request that has brought one from a trusted
// peer. The lane makes no ids: only the log would see them.
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
		peer, _ := netip.ParseAddr(remote) // the zero address for a UNIX socket
		proxy = s.Clients.Trusts(peer.WithZone("").Unmap())
	}
	if !s.Tracer.Trusts(proxy) {
		return ""
	}
	return id
}

// gateClient returns the client for an access gate.
func (s *Settings) gateClient(remote net.Addr, q *request, b []byte) netip.Addr {
	peer := addrOf(remote)
	if s.clientHeader >= numKept || !s.Clients.Trusts(peer) {
		return peer
	}
	return s.Clients.Named(peer, view(q.value(b, s.clientHeader)))
}

// addrOf returns the IP address of a TCP or UDP peer, the zero address for a UNIX socket.
func addrOf(a net.Addr) netip.Addr {
	if a, ok := a.(interface{ AddrPort() netip.AddrPort }); ok { // TCP and UDP
		return a.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// portOf returns the port of a TCP or UDP peer, 0 for a UNIX socket.
func portOf(a net.Addr) uint16 {
	if a, ok := a.(interface{ AddrPort() netip.AddrPort }); ok {
		return a.AddrPort().Port()
	}
	return 0
}
