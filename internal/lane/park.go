package lane

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"millrace/internal/epoll"
)

// parkAfter is how long a TLS connection without a request keeps its goroutine.
const parkAfter = time.Second

// parking lets a TLS connection wait without a goroutine, whose stack is about
// a third of what a quiet connection takes. The sweeper finds out that it is
// quiet, and ends its read: a timer of its own for each connection would be
// moved at every request.
type parking struct {
	c     *Conn
	place epoll.Place
	// serve reads until there is nothing more to do. quiet is true when a read
	// has ended because the sweeper said so; then it is called again.
	serve func() (quiet bool)
}

// park serves a connection, which waits without a goroutine while it is quiet.
func (c *Conn) park(serve func() (quiet bool)) {
	p := &parking{c: c, serve: serve}
	c.lane.parkerOnce.Do(func() {
		parker := epoll.NewParker()
		c.lane.parker.Store(parker)
		c.lane.done.Go(parker.Run)
	})
	c.parking.Store(p)
	p.run()
}

func (p *parking) run() {
	for p.serve() {
		_ = p.c.nc.SetReadDeadline(time.Time{}) // a read finds out
		if p.c.lane.parker.Load().Enter(&p.place, p) {
			return
		}
	}
}

// Socket implements [epoll.Parked].
func (p *parking) Socket() syscall.Conn {
	nc := p.c.transport
	for {
		if sc, ok := nc.(syscall.Conn); ok {
			return sc
		}
		wrapped, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		nc = wrapped.NetConn()
	}
}

// Awake implements [epoll.Parked].
func (p *parking) Awake() {
	go func() { // ends with the connection, or when it is quiet again
		_ = p.c.nc.SetReadDeadline(time.Time{}) // the sweeper may have come meanwhile
		p.run()
	}()
}

// endedByDeadline reports whether a read has ended for the sweeper.
func endedByDeadline(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// wakeClosed wakes a connection that was closed.
func (p *parking) wakeClosed() {
	if p != nil {
		p.c.lane.parker.Load().Leave(&p.place)
	}
}

// parkIfIdle parks a connection that has waited long enough for a request.
func (p *parking) parkIfIdle(deadline, now int64) {
	if p == nil || p.c.lane.parker.Load() == nil || deadline&idleMark == 0 || p.c.state.load() != stateReading {
		return
	}
	if idle := int64(p.c.lane.settings.Load().Idle); now-(deadline-idle) >= int64(parkAfter) {
		p.c.mu.Lock()
		defer p.c.mu.Unlock()
		if !p.c.isOwnedLocked() { // in the meantime
			_ = p.c.nc.SetReadDeadline(time.Unix(1, 0)) // a closed connection is not quiet
		}
	}
}
