//go:build !unix

package upstream

import "syscall"

// link is what lies below a connection. On this system nothing is known of it.
type link struct{}

func (*link) open(*conn, syscall.RawConn) {}

func (*link) sees() bool { return false }

func (*link) read(c *conn, b []byte) (int, error) { return readThrough(c, b) }

func (*link) ask(c *conn, _ []byte) (int, error) {
	c.phase.CompareAndSwap(given, asked)
	return 0, nil
}
