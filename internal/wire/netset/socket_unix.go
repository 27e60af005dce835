//go:build unix

package netset

import "syscall"

// only6 reports whether a socket of IPv6 has no IPv4 (RFC 3493, 5.3).
func only6(socket syscall.Conn) (only bool) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) { // of a closed socket nothing is known
		v, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_IPV6, syscall.IPV6_V6ONLY)
		only = err == nil && v != 0
	})
	return only
}
