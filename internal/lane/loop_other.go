//go:build !linux

package lane

import "net"

// loop is the Linux way to serve many connections at once; elsewhere every
// connection has a goroutine.
type loop struct{}

type guests struct{}

func (*Lane) stopLoops() {}

// Adopt reports false: there are no guests on this system.
func (*Lane) Adopt(net.Conn, *Scope, func(), func(*Conn)) bool { return false }

func (*Conn) closeGuest() bool { return false }

func shutdown(int) {}
