package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// bindLate lets the kernel choose the port when the connection is made, not
// when the address is bound: then a port is taken per target, and one source
// address reaches each target with all of its ports (IP_BIND_ADDRESS_NO_PORT,
// ip(7)).
func bindLate(_, _ string, c syscall.RawConn) error {
	var err error
	if controlErr := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	}); controlErr != nil {
		return controlErr
	}
	return err
}
