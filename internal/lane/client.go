package lane

import "net/netip"

// wholeSite is how much of an IPv6 address is counted: what a customer has is
// a network of 64 bits at least.
const wholeSite = 64

// ClientOf is what limits by address count the client behind an address as: an
// IPv4 address itself, or the network of an IPv6 one. The zero address is not
// counted: of UNIX sockets.
func ClientOf(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		network, _ := a.Prefix(wholeSite) // cannot fail: it has 128 bits
		return network.Addr()
	}
	return a
}
