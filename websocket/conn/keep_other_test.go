//go:build !linux

package conn

import (
	"net"
	"testing"
)

// rawClient is a connection that is kept open.
type rawClient struct{ net.Conn }

func keepOpen(_ testing.TB, nc net.Conn) *rawClient { return &rawClient{nc} }

func (c *rawClient) close() { c.Close() }
