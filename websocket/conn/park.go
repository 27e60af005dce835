package conn

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

// A connection with a goroutine that has nothing to read for parkAfter is parked:
// its goroutine ends, and the parker waits for the next byte. That saves more than
// a third of what a quiet TLS connection takes; waking one costs about as much as
// four system calls.
//
// It must be shorter than the calm that ends a wave (gogc.Wave), so that the memory of the goroutines is given
// back together with that of the handshakes.
const parkAfter = 3 * tickTime

// parked is a connection as the parker knows it.
type parked struct{ *Conn }

// Socket implements [epoll.Parked].
func (p parked) Socket() syscall.Conn { return p.driver.watchable() }

// Awake implements [epoll.Parked].
func (p parked) Awake() {
	go p.driver.read(p.Conn) // ends with finish or when it is parked again; Close waits for the former
}

// readDeadliner is a connection that can be told how long to wait.
type readDeadliner interface {
	NetConn() net.Conn
	SetReadDeadline(t time.Time) error
}

// watchable is what the parker can watch: the socket below TLS. nil: this
// connection cannot be parked.
func (o *goroutineDriver) watchable() syscall.Conn {
	if o.strand.parker == nil {
		return nil
	}
	if _, ok := o.rw.(readDeadliner); !ok {
		return nil
	}
	sock, _ := socket(o.rw).(syscall.Conn)
	return sock
}

// extendWait moves the moment at which the connection is parked.
func (o *goroutineDriver) extendWait(sock syscall.Conn) {
	if now := o.strand.engine.now() + 1; sock != nil && now != o.renewed {
		o.renewed = now
		_ = o.rw.(readDeadliner).SetReadDeadline(time.Now().Add(o.strand.parkAfter)) // watchable has looked
	}
}

// isIdleTimeout reports whether a read ended because nothing came for parkAfter. TLS
// keeps what it has of a record that is not whole, so reading may go on.
func isIdleTimeout(sock syscall.Conn, err error) bool {
	return sock != nil && errors.Is(err, os.ErrDeadlineExceeded)
}

// park hands the connection to the parker. It reports false where that is not
// possible, because the connection was closed meanwhile or the system is out of
// memory; the reader finds out when it reads on.
func (o *goroutineDriver) park(c *Conn) bool {
	_ = o.rw.(readDeadliner).SetReadDeadline(time.Time{}) // watchable has looked
	o.renewed = 0
	if !o.wasParked {
		o.wasParked = true
		o.strand.engine.opened.Add(1) // its stack is garbage of the same wave
	}
	return o.strand.parker.Enter(&o.parked, parked{c})
}
