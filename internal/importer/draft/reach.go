package draft

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Reach is from where an address can be asked.
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

// Widest is that of the address that most can ask.
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
		_, port, err := net.SplitHostPort(a)
		if slices.Contains(list, a) || err == nil && a != ":"+port && slices.Contains(addresses, ":"+port) {
			continue
		}
		list = append(list, a)
	}
	return list
}
