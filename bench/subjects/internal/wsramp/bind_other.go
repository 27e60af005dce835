//go:build !linux

package wsramp

import "syscall"

// BindLate does nothing: only Linux has IP_BIND_ADDRESS_NO_PORT.
func BindLate(_, _ string, _ syscall.RawConn) error { return nil }
