//go:build !unix

package fastcgi

import "net"

// unread reports whether there is something to read on a connection: nobody knows.
func unread(net.Conn) bool { return false }
