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
	// lastWord is how long a client has to take GOAWAY.
	lastWord = 100 * time.Millisecond
)

// Budget has the lane's streams of HTTP/2 counted by b. It is called before the
// first connection.
func (l *Lane) Budget(b *stall.Budget) { l.budget = b }

// WithStreams appends the connections of HTTP/2 that net/http answers; client is
// what limits count an address as.
func (l *Lane) WithStreams(to []stall.Conn, client func(net.Addr) netip.Addr) []stall.Conn {
	l.each(func(c *Conn) {
		if c.front.Load() != nil {
			to = append(to, crowded{c, client})
		}
	})
	return to
}

// crowded is a connection of HTTP/2 as a budget sees it.
type crowded struct {
	*Conn
	client func(net.Addr) netip.Addr
}

// Client implements [stall.Conn].
func (c crowded) Client() netip.Addr { return c.client(c.peer) }

// Streams implements [stall.Conn].
func (c crowded) Streams(now time.Time) stall.Count {
	f, blocked := c.front.Load(), time.Duration(0)
	if by := c.writeBy.Load(); by != 0 {
		blocked = now.Sub(time.Unix(0, by).Add(-c.lane.settings.Load().Write))
	}
	n := f.Streams(now, blocked >= stall.Patience)
	if blocked >= blockedFor && n.Open > stall.Few {
		n.Waiting = n.Open
	}
	return n
}

// Evict implements [stall.Conn].
func (c crowded) Evict() {
	c.lane.done.Go(func() { // ends with lastWord
		defer time.AfterFunc(lastWord, c.cut).Stop()
		c.front.Load().Evict(!c.isAdopted())
		c.cut()
	})
}
