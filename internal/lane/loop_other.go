//go:build !linux

package lane

import (
	"context"
	"net"

	"golang.org/x/net/http2/hpack"

	"millrace/internal/h2"
	"millrace/internal/send"
)

// loop is the Linux way to serve many connections at once; elsewhere every
// connection has a goroutine.
type loop struct{}

// flight is a request that a loop has passed on.
type flight struct{}

// Carry implements [h2.Host]: there is no loop that could.
func (*h2Host) Carry(uint32, []hpack.HeaderField) (taken, marked bool) { return false, false }

// Drop implements [h2.Host].
func (*h2Host) Drop(uint32) {}

// Surrender implements [h2.Host].
func (*h2Host) Surrender(func(uint32, []hpack.HeaderField)) {}

type ownedConns struct{}

func (*Lane) stopLoops() {}

// Answer has nobody to ask: there are no loops on this system.
func (*Lane) Answer(context.Context) error { return nil }

// Adopt reports false: there are no loops on this system.
func (*Lane) Adopt(net.Conn, *Scope, func(), func(*Conn)) bool { return false }

// Adopt reports false: there are no loops on this system.
func (*TLSConn) Adopt(func()) bool { return false }

func (*TLSConn) adopt(*h2Host, *h2.Conn, func()) bool { return false }

func (c *Conn) bid(front *h2.Conn) { go c.lane.shutdownHTTP2(front) } // which may wait for the client: until it is cut

func (*Conn) closeOwned() bool { return false }

func (c *Conn) queued() (n int, known bool) { return send.Queued(c.under) }

func (c *Conn) acked() (n uint64, known bool) { return send.Acked(c.under) }

func shutdown(int) {}

func (*Conn) wakeLoop() {}

func (*Conn) isOwned() bool { return false }

func (*Conn) isAdopted() bool { return false }

func (*Conn) shutWrite() error { return nil }

// crew answers for loops; there are none.
type crew struct{}

func (*crew) close() {}

func (*Conn) leanable() bool { return false }

// Switch reports false: nobody has descriptors here.
func (*link) Switch([]byte) (fd int, early []byte, ok bool) { return 0, nil, false }

func (*Conn) lookForEnd() {}

func (*Conn) watchEnd() {}

func (*Conn) unwatch() {}

func (*Conn) endWatch() {}

func (*Conn) unloop() error { return nil }

func (*Conn) sendNow(_, _ []byte) (int, error) { return 0, nil }

func (c *Conn) readBody(p []byte) (int, error) { return c.waitBody(p) }
