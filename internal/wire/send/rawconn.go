package send

import (
	"net"
	"syscall"
)

// RawConn returns the socket of a *net.TCPConn or *net.UnixConn, nil for any other
// connection: also for one that embeds these, whose own Read and Write must be called.
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
