package conn

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"millrace/internal/wire/send"
)

// rawClient is a connection of which nothing is left in Go's memory.
type rawClient struct{ fd int }

func keepOpen(tb testing.TB, nc net.Conn) *rawClient {
	tb.Helper()
	fd, ok := send.Detach(nc)
	if !ok {
		tb.Fatal("no second descriptor")
	}
	nc.Close()
	return &rawClient{fd}
}

func (c *rawClient) close() { _ = unix.Close(c.fd) }
