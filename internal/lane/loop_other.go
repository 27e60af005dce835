//go:build !linux

package lane

import (
	"context"
	"net"

	"golang.org/x/net/http2/hpack"

	"millrace/internal/wire/h2"
	"millrace/internal/wire/send"
)

// loop serves many connections on one goroutine by epoll, on Linux only. Elsewhere
// every connection has a goroutine, so there is no loop.
type loop struct{}

// call is a request that a loop has forwarded to an upstream: never, here.
type call struct{}

// Forward implements [h2.Host]: there is no loop that could forward the request.
func (*h2Host) Forward(uint32, []hpack.HeaderField) bool { return false }

// Cancel implements [h2.Host].
func (*h2Host) Cancel(uint32) {}

type ownedConns struct{}

func (*Lane) stopLoops() {}

// CheckLoops returns nil: there are no loops that could hang.
func (*Lane) CheckLoops(context.Context) error { return nil }

// Adopt reports false: there are no loops on this system.
func (*Lane) Adopt(net.Conn, *Scope, func(), func(*Conn)) bool { return false }

// AdoptSocket reports false: there are no loops on this system.
func (*Lane) AdoptSocket(int, net.Addr, net.Addr, *Scope, func(), func(*Conn)) bool { return false }

// Adopt reports false: there are no loops on this system.
func (*TLSConn) Adopt(func()) bool { return false }

func (*TLSConn) adopt(*h2Host, *h2.Conn, func()) bool { return false }

// notifyDrain uses a goroutine, since writing GOAWAY may wait for the client. It ends
// when the connection is cut, at the latest.
func (c *Conn) notifyDrain(h2conn *h2.Conn) { go c.lane.shutdownHTTP2(h2conn) }

func (*Conn) toLoop() bool { return false }

func (*Conn) closeOwned() bool { return false }

func (c *Conn) queued() (n int, known bool) { return send.Queued(c.transport) }

func (c *Conn) acked() (n uint64, known bool) { return send.Acked(c.transport) }

func shutdown(int) {}

func (*Conn) wakeLoop() {}

func (*Conn) isOwned() bool { return false }

func (*Conn) isOwnedLocked() bool { return false }

func (*Conn) shutWrite() error { return nil }

// workerPool has no workers: they serve requests for loops.
type workerPool struct{}

func (*workerPool) close() {}

func (*Conn) canServeDirect() bool { return false }

// Switch reports false: only a loop's connection can be given away as a descriptor.
func (*link) Switch([]byte) (fd int, early []byte, ok bool) { return 0, nil, false }

func (*Conn) cancelIfGone() {}

func (*Conn) watchForClose() {}

func (*Conn) stopWatching() {}

func (*Conn) stopWatchingLocked() {}

func (*Conn) leaveLoop() error { return nil }

func (*Conn) trySend(_, _ []byte) (int, error) { return 0, nil }

func (c *Conn) readBody(p []byte) (int, error) { return c.readBodyBlocking(p) }
