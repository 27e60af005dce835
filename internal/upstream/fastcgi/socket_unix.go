//go:build unix

package fastcgi

import (
	"io"
	"net"
	"os"
	"syscall"
)

// fdOf returns a connection's descriptor, noFD where it has none.
func fdOf(nc net.Conn) int {
	found := noFD
	if s, ok := nc.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { found = int(fd) }) // a closed one has none
		}
	}
	return found
}

// tryRead reads what has come; errLater: nothing has.
func tryRead(fd int, p []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, p)
		switch {
		case err == syscall.EINTR:
		case fd == noFD || err == syscall.EAGAIN:
			return 0, errLater
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// unread reports whether there is something to read, or the end.
func unread(fd int) bool {
	var one [1]byte
	_, _, err := syscall.Recvfrom(fd, one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return fd != noFD && err != syscall.EAGAIN
}

func closeFD(fd int) { _ = syscall.Close(fd) }
