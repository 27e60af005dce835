package netset

// This file says which IP versions an address to listen at, or a socket, is
// for. Go opens 0.0.0.0:80 and [::]:80 for both; here 0.0.0.0 is IPv4, [::] is
// IPv6, and :80 is both.

import (
	"net"
	"net/netip"
	"syscall"
)

// Family is one IP version, or both.
type Family int

// The families.
const (
	Both Family = iota
	IPv4
	IPv6
)

// FamilyOf is the family of host:port or :port. A name has that of the address at
// which Go would listen for it; the error is that of looking it up.
func FamilyOf(addr string) (Family, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		return Both, err //nolint:wrapcheck // it names the address
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		at, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			return Both, err //nolint:wrapcheck // it names the address
		}
		ip = at.AddrPort().Addr()
	}
	return one(ip), nil
}

// FamilyOfSocket is the family of a TCP or UDP socket that is bound to an address. One
// that is bound to all addresses of IPv6 is for IPv4 as well, unless it is a
// [syscall.Conn] that says otherwise.
func FamilyOfSocket(socket any, at net.Addr) Family {
	a, err := netip.ParseAddrPort(at.String())
	if err != nil {
		return Both
	}
	f := one(a.Addr())
	if conn, ok := socket.(syscall.Conn); f == IPv4 || !a.Addr().IsUnspecified() || ok && only6(conn) {
		return f
	}
	return Both
}

func one(ip netip.Addr) Family {
	if ip.Unmap().Is4() {
		return IPv4
	}
	return IPv6
}

// Network is what net.Listen calls a transport, tcp or udp, of the family.
func (f Family) Network(transport string) string {
	return transport + [...]string{Both: "", IPv4: "4", IPv6: "6"}[f]
}

// String implements [fmt.Stringer].
func (f Family) String() string {
	return [...]string{Both: "IPv4 and IPv6", IPv4: "IPv4", IPv6: "IPv6"}[f]
}

// SplitFamilies is an address as those of which each is for one family: :80 is
// 0.0.0.0:80 and [::]:80. Any other address is returned as it is, and so is :0,
// for which two sockets would have two ports.
func SplitFamilies(addr string) []string {
	if host, port, err := net.SplitHostPort(addr); err == nil && host == "" && port != "0" {
		return []string{net.JoinHostPort(netip.IPv4Unspecified().String(), port), net.JoinHostPort(netip.IPv6Unspecified().String(), port)}
	}
	return []string{addr}
}
