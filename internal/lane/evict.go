package lane

import (
	"net"
	"net/netip"
	"time"

	"millrace/internal/wire/stall"
)

const (
	// blockedFor is how long a client may take nothing of what is written before all
	// its streams count as waiting for it, if they are more than stall.Few.
	blockedFor = 100 * time.Millisecond
	// goAwayTime is how long a client has to take GOAWAY.
	goAwayTime = 100 * time.Millisecond
)

// Budget sets who counts the lane's streams of HTTP/2. It must be called before the first
// connection comes.
func (l *Lane) Budget(b *stall.Budget) { l.budget = b }

// WithStreams appends the lane's connections of HTTP/2 to a list. client returns by what
// limits count an address: see ClientOf.
func (l *Lane) WithStreams(to []stall.Conn, client func(net.Addr) netip.Addr) []stall.Conn {
	l.each(func(c *Conn) {
		if c.h2conn.Load() != nil {
			to = append(to, stallConn{c, client})
		}
	})
	return to
}

// stallConn implements [stall.Conn] for a connection of HTTP/2.
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
		c.h2conn.Load().Evict()
		c.cut()
	})
}
