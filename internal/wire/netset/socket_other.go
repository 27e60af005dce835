//go:build !unix

package netset

import "syscall"

// only6 is false: sockets are not inherited here, so nobody needs to know.
func only6(syscall.Conn) bool { return false }
