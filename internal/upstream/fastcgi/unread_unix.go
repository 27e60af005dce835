//go:build unix

package fastcgi

import (
	"net"
	"syscall"
)

// unread reports whether there is something to read on a connection, or its end.
func unread(nc net.Conn) (found bool) {
	s, ok := nc.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	var one [1]byte
	_ = raw.Control(func(fd uintptr) { // a closed one has nothing
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		found = err == nil
	})
	return found
}
