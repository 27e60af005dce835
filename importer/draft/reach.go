package draft

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Reach is from where clients can connect to an address.
type Reach int

// The reaches, from the smallest.
const (
	ThisMachine Reach = iota // loopback, UNIX sockets
	ThisNetwork              // private addresses
	Everywhere
)

// ReachOf is that of host:port or unix:path.
func ReachOf(address string) Reach {
	if strings.HasPrefix(address, "unix:") {
		return ThisMachine
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return Everywhere
	}
	if strings.EqualFold(host, "localhost") {
		return ThisMachine
	}
	a, err := netip.ParseAddr(host)
	a = a.Unmap()
	switch shared := netip.MustParsePrefix("100.64.0.0/10"); {
	case err != nil:
		return Everywhere
	case a.IsLoopback():
		return ThisMachine
	case a.IsPrivate(), a.IsLinkLocalUnicast(), shared.Contains(a):
		return ThisNetwork
	}
	return Everywhere
}

// Widest is the reach of the address that most clients can connect to.
func Widest(addresses ...string) Reach {
	most := ThisMachine
	for _, a := range addresses {
		most = max(most, ReachOf(a))
	}
	return most
}

// Listen are addresses to listen at, each once; those that one for all interfaces
// covers are left out.
func Listen(addresses []string) (list []string) {
	for _, a := range addresses {
		host, port, err := net.SplitHostPort(a)
		if slices.Contains(list, a) || err == nil && slices.ContainsFunc(wildcards(host, port), func(all string) bool { return a != all && slices.Contains(addresses, all) }) {
			continue
		}
		list = append(list, a)
	}
	return list
}

// wildcards are the addresses for all interfaces that cover a host's.
func wildcards(host, port string) []string {
	a, err := netip.ParseAddr(host)
	switch {
	case err != nil:
		return []string{":" + port}
	case a.Is4():
		return []string{":" + port, "0.0.0.0:" + port}
	}
	return []string{":" + port, "[::]:" + port}
}
