package client

import (
	"fmt"
	"syscall"
)

// bindAddressNoPort is IP_BIND_ADDRESS_NO_PORT of ip(7), which the syscall
// package does not name.
const bindAddressNoPort = 24

// shareSourcePorts lets bind(2) choose the address only and connect(2) the
// port: then a port is taken per pair of addresses, and not from the 28
// thousand that all sockets of the machine share.
func shareSourcePorts(_, _ string, raw syscall.RawConn) error {
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, bindAddressNoPort, 1)
	}); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("setting IP_BIND_ADDRESS_NO_PORT: %w", failed)
	}
	return nil
}
