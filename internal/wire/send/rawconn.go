package send

import (
	"net"
	"syscall"
)

// RawConn is the socket of a TCP or UNIX connection, nil for any other. What
// embeds one of them is another: it reads and writes by methods of its own.
func RawConn(conn net.Conn) syscall.RawConn {
	var sc syscall.Conn
	switch c := conn.(type) {
	case *net.TCPConn:
		sc = c
	case *net.UnixConn:
		sc = c
	default:
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}
