//go:build !linux

package main

import "syscall"

// bindLate does nothing: only Linux has IP_BIND_ADDRESS_NO_PORT.
func bindLate(_, _ string, _ syscall.RawConn) error { return nil }
