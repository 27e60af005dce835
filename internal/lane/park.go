package lane

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"millrace/internal/wire/epoll"
)

// parkAfter is how long an idle TLS connection keeps its goroutine.
const parkAfter = time.Second

// parking lets an idle TLS connection wait without a goroutine, whose stack is about a
// third of its memory. The sweeper finds idle connections and ends their reads: a timer
// for each connection would have to be moved at every request.
type parking struct {
	c     *Conn
	place epoll.Place
	// serve reads and serves requests. It returns true when the sweeper has ended a
	// read, and is called again when there is something to read. false: the
	// connection has ended, or is somebody else's.
	serve func() (idle bool)
}

// park calls serve, and has the connection wait without a goroutine between its calls.
func (c *Conn) park(serve func() (idle bool)) {
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
		_ = p.c.nc.SetReadDeadline(time.Time{}) // on an error the next read fails, too
		if p.c.lane.parker.Load().Enter(&p.place, p) {
			return
		}
	}
}

// Socket implements [epoll.Parked].
func (p *parking) Socket() syscall.Conn { return socketOf(p.c.transport) }

// socketOf finds the socket of a connection; nil: there is none.
func socketOf(nc net.Conn) syscall.Conn {
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
	go func() { // ends with the connection, or when it is parked again
		_ = p.c.nc.SetReadDeadline(time.Time{}) // the sweeper may have come meanwhile
		p.run()
	}()
}

// endedByDeadline reports whether a read has ended because the sweeper wanted it to.
func endedByDeadline(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// wakeClosed wakes a parked connection that was closed, so that its goroutine ends it.
func (p *parking) wakeClosed() {
	if p != nil {
		p.c.lane.parker.Load().Leave(&p.place)
	}
}

// parkIfIdle ends the read of a connection that was idle for parkAfter: then it is parked.
func (p *parking) parkIfIdle(deadline, now int64) {
	if p == nil || p.c.lane.parker.Load() == nil || deadline&idleMark == 0 || p.c.state.load() != stateReading {
		return
	}
	if idle := int64(p.c.lane.settings.Load().Idle); now-(deadline-idle) >= int64(parkAfter) {
		p.c.mu.Lock()
		defer p.c.mu.Unlock()
		if !p.c.isOwnedLocked() { // it may have got to a loop meanwhile
			_ = p.c.nc.SetReadDeadline(time.Unix(1, 0)) // fails on a closed connection alone
		}
	}
}
