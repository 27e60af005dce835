package lane

import (
	"net"
	"net/netip"
)

// wholeSite is how much of an IPv6 address is counted: what a customer has is
// a network of 64 bits at least.
const wholeSite = 64

// ClientOf returns what limits by address count a client as: its IPv4 address, or
// the /64 network of its IPv6 address. The zero address, of UNIX sockets, is not
// counted.
func ClientOf(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		network, _ := a.Prefix(wholeSite) // cannot fail: it has 128 bits
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
