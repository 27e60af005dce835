//go:build !linux

package server

import (
	"net"
	"time"
)

// direct is for the lane's loops, which this system has not.
type direct struct{}

func newDirect(net.Listener) *direct { return nil }

func (*direct) accept() (accepted, error) { return accepted{}, net.ErrClosed }

func (*direct) setDeadline(time.Time) error { return nil }

func (*direct) close() {}

func (c *accepted) conn() (net.Conn, error) { return c.nc, nil }

func (c *accepted) close() { _ = c.nc.Close() }
