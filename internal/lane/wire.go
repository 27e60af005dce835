package lane

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"millrace/internal/send"
)

// Wire is the network below TLS. crypto/tls has one connection for its whole
// life; what is behind a Wire changes: a net.Conn, which waits, or a descriptor
// that a loop owns, which never does. It begins with a net.Conn.
type Wire struct {
	nc            net.Conn // nil while a loop has it
	local, remote net.Addr
	writer        *blockingWriter // on nc, and nil with it

	// Of the loop.
	fd        int    // noFD: nc has it; goneFD: it was closed
	readsLeft int    // how often this turn may still read
	unsent    []byte // what was written and the client has not taken
}

// goneFD is the descriptor of a Wire that was closed while a loop had it.
const goneFD = -2

// NewWire returns a Wire to be put below TLS.
func NewWire(nc net.Conn) *Wire {
	return &Wire{nc: unwrapNamed(nc), local: nc.LocalAddr(), remote: nc.RemoteAddr(), writer: new(blockingWriter), fd: noFD}
}

// wireOf finds the Wire under a connection, nil if there is none.
func wireOf(nc net.Conn) *Wire {
	for {
		switch c := nc.(type) {
		case *Wire:
			return c
		case interface{ NetConn() net.Conn }:
			nc = c.NetConn()
		default:
			return nil
		}
	}
}

// readsPerEvent is how often one turn asks the kernel: for the beginning of a
// record, and for its rest. What comes after that waits for the next turn, and
// the loop's other connections do not.
const readsPerEvent = 3

// wouldBlock says that nothing can be read for now. crypto/tls goes on after an error
// that calls itself temporary.
type wouldBlock struct{}

// Error implements [error].
func (wouldBlock) Error() string { return "nothing has come yet" }

// Is makes it equal to a passed deadline, after which a reader may go on.
func (wouldBlock) Is(err error) bool { return err == os.ErrDeadlineExceeded }

// Timeout implements [net.Error].
func (wouldBlock) Timeout() bool { return false }

// Temporary implements [net.Error].
func (wouldBlock) Temporary() bool { return true }

func isWouldBlock(err error) bool { return errors.Is(err, wouldBlock{}) }

// onLoop reports whether a loop has it. Only whoever has it may ask.
func (w *Wire) onLoop() bool { return w != nil && w.fd != noFD }

// NetConn returns the net.Conn, nil while a loop has the Wire.
func (w *Wire) NetConn() net.Conn { return w.nc }

// Read implements [net.Conn].
func (w *Wire) Read(p []byte) (int, error) {
	if w.fd == noFD {
		return w.nc.Read(p)
	}
	if w.fd == goneFD {
		return 0, net.ErrClosed
	}
	if w.readsLeft == 0 {
		return 0, wouldBlock{}
	}
	w.readsLeft--
	n, ok, err := send.TryRead(uintptr(w.fd), p)
	switch {
	case !ok:
		w.readsLeft = 0
		return 0, wouldBlock{}
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	case n < len(p):
		w.readsLeft = 0 // there was no more, or the loop is told
	}
	return n, nil
}

// Write implements [net.Conn]. On a loop it takes everything: whoever writes
// stops where something is left.
func (w *Wire) Write(p []byte) (n int, err error) {
	if w.fd == noFD {
		if err := w.flushBlocking(); err != nil {
			return 0, err
		}
		return w.writer.write(w.nc, p)
	}
	if w.fd == goneFD {
		return 0, net.ErrClosed
	}
	if len(w.unsent) == 0 && len(p) > 0 {
		if n, err = send.TryWrite(uintptr(w.fd), p, nil); err != nil {
			return n, err
		}
	}
	if n < len(p) {
		w.unsent = append(w.unsent, p[n:]...)
	}
	return len(p), nil
}

// flush sends of the rest what the client takes now.
func (w *Wire) flush() (n int, err error) {
	if len(w.unsent) == 0 {
		return 0, nil
	}
	n, err = send.TryWrite(uintptr(w.fd), w.unsent, nil)
	if w.unsent = w.unsent[n:]; len(w.unsent) == 0 {
		w.unsent = nil
	}
	return n, err
}

// flushBlocking sends what a loop has left, and waits for the client.
func (w *Wire) flushBlocking() error {
	if len(w.unsent) == 0 {
		return nil
	}
	n, err := w.writer.write(w.nc, w.unsent)
	if w.unsent = w.unsent[n:]; len(w.unsent) == 0 {
		w.unsent = nil
	}
	return err
}

// Close implements [net.Conn]. A loop closes its descriptor itself.
func (w *Wire) Close() error {
	if w.fd != noFD {
		return nil
	}
	return w.nc.Close()
}

// CloseWrite tells the client that nothing more will come.
func (w *Wire) CloseWrite() error {
	if w.fd != noFD {
		return errors.ErrUnsupported
	}
	if half, ok := w.nc.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// LocalAddr implements [net.Conn].
func (w *Wire) LocalAddr() net.Addr { return w.local }

// RemoteAddr implements [net.Conn].
func (w *Wire) RemoteAddr() net.Addr { return w.remote }

// SetDeadline implements [net.Conn]. On a loop nothing waits.
func (w *Wire) SetDeadline(t time.Time) error {
	return errors.Join(w.SetReadDeadline(t), w.SetWriteDeadline(t))
}

// SetReadDeadline implements [net.Conn].
func (w *Wire) SetReadDeadline(t time.Time) error {
	if w.fd != noFD {
		return nil
	}
	return w.nc.SetReadDeadline(t)
}

// SetWriteDeadline implements [net.Conn].
func (w *Wire) SetWriteDeadline(t time.Time) error {
	if w.fd != noFD {
		return nil
	}
	return w.writer.setDeadline(w.nc, t)
}

// seal encrypts of head and body as much as the client takes now, at most about
// inTurn, and returns how much that was. What it did not take of it after all
// is in the wire's rest.
func (c *Conn) seal(head, body []byte) (n int, err error) {
	for _, b := range [2][]byte{head, body} {
		for len(b) > 0 && len(c.wire.unsent) == 0 && n < bytesPerEvent {
			m, err := c.nc.Write(b[:min(len(b), maxWrite)])
			if n += m; err != nil {
				return n, err
			}
			b = b[m:]
		}
	}
	return n, nil
}
