//go:build !linux

package client

import "syscall"

// shareSourcePorts does nothing: only Linux has the option, and elsewhere a
// bound source address just means fewer ports.
func shareSourcePorts(_, _ string, _ syscall.RawConn) error { return nil }
