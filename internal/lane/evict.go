package lane

import (
	"net"
	"net/netip"
	"time"

	"millrace/internal/stall"
)

const (
	// blockedFor is how long a client that has more than stall.Few streams may take
	// nothing of what is written, before all of them wait for it.
	blockedFor = 100 * time.Millisecond
	// goAwayTime is how long a client has to take GOAWAY.
	goAwayTime = 100 * time.Millisecond
)

// Budget has the lane's streams of HTTP/2 counted by b. It is called before the
// first connection.
func (l *Lane) Budget(b *stall.Budget) { l.budget = b }

// WithStreams appends the connections of HTTP/2 that net/http answers; client is
// what limits count an address as.
func (l *Lane) WithStreams(to []stall.Conn, client func(net.Addr) netip.Addr) []stall.Conn {
	l.each(func(c *Conn) {
		if c.h2conn.Load() != nil {
			to = append(to, stallConn{c, client})
		}
	})
	return to
}

// stallConn is a connection of HTTP/2 as a budget sees it.
type stallConn struct {
	*Conn
	client func(net.Addr) netip.Addr
}

// Client implements [stall.Conn].
func (c stallConn) Client() netip.Addr { return c.client(c.peer) }

// Streams implements [stall.Conn].
func (c stallConn) Streams(now time.Time) stall.Count {
	f, blocked := c.h2conn.Load(), time.Duration(0)
	if by := c.writeBy.Load(); by != 0 {
		blocked = now.Sub(time.Unix(0, by).Add(-c.lane.settings.Load().Write))
	}
	n := f.Streams(now, blocked >= stall.StalledAfter)
	if blocked >= blockedFor && n.Open > stall.Few {
		n.Waiting = n.Open
	}
	return n
}

// Evict implements [stall.Conn].
func (c stallConn) Evict() {
	c.lane.done.Go(func() { // ends with lastWord
		defer time.AfterFunc(goAwayTime, c.cut).Stop()
		c.h2conn.Load().Evict(!c.isOwnedLocked())
		c.cut()
	})
}
