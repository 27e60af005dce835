package conn

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

// A connection with a goroutine that has nothing to read for napAfter lies down:
// its goroutine ends, and the napper waits for the next byte. That is more than
// a third of what a quiet TLS connection takes; waking one costs about as much
// as four system calls.
//
// It must be shorter than waveCalm, so that what the goroutines have left is
// given back together with what the handshakes have.
const napAfter = 3 * tickTime

// napDeadline is a connection that can be told how long to wait.
type napDeadline interface {
	NetConn() net.Conn
	SetReadDeadline(t time.Time) error
}

// bed is what the napper can wait for: the socket below TLS. nil: this one
// cannot lie down.
func (o *own) bed() syscall.Conn {
	if o.strand.napper == nil {
		return nil
	}
	if _, ok := o.rw.(napDeadline); !ok {
		return nil
	}
	bed, _ := socket(o.rw).(syscall.Conn)
	return bed
}

// stayAwake moves the moment when the connection lies down.
func (o *own) stayAwake(bed syscall.Conn) {
	if now := o.strand.engine.now() + 1; bed != nil && now != o.renewed {
		o.renewed = now
		_ = o.rw.(napDeadline).SetReadDeadline(time.Now().Add(o.strand.napper.after)) //nolint:forcetypeassert // bed has looked
	}
}

// isNap reports whether a read has ended because nothing came for napAfter.
// TLS stands as before: what it has of a record that is not whole it keeps.
func isNap(bed syscall.Conn, err error) bool {
	return bed != nil && errors.Is(err, os.ErrDeadlineExceeded)
}

// layDown has the napper wait. It reports false where that is not possible,
// because the connection was closed meanwhile or the system is out of memory;
// who reads on finds out.
func (o *own) layDown(c *Conn, bed syscall.Conn) bool {
	_ = o.rw.(napDeadline).SetReadDeadline(time.Time{}) //nolint:forcetypeassert // bed has looked
	o.renewed = 0
	if !o.napped {
		o.napped = true
		o.strand.engine.opened.Add(1) // its stack is garbage of the same wave
	}
	return o.strand.napper.enter(c, bed)
}
