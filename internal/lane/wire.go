package lane

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"millrace/internal/wire/send"
)

// Wire is the network below TLS. A tls.Conn keeps one net.Conn for its whole life, while
// the connection moves between a goroutine and a loop. So TLS gets a Wire, which reads and
// writes a net.Conn, and waits, or a loop's descriptor, and never waits.
type Wire struct {
	nc            net.Conn // nil while a loop owns the connection
	local, remote net.Addr
	writer        *blockingWriter // of nc, and nil with it
	readsLeft     int             // how often Read may still read for this event of the loop

	// Guarded by mu, as goroutines write beside the loop. Who serves the connection may
	// read fd without.
	mu     sync.Mutex
	fd     int           // noFD: there is nc; goneFD: it was closed
	unsent []byte        // what TLS has written and the client has not taken
	room   chan struct{} // closed when unsent is empty, or the connection is closed; nil: nobody waits
}

// goneFD is the descriptor of a Wire that was closed while a loop owned it.
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

// readsPerEvent is how many system calls read for one event: some for the header of a TLS
// record and for its body. What comes after that waits for the next event, so that the
// loop's other connections do not.
const readsPerEvent = 3

// wouldBlock is the error of Read where nothing can be read for now. crypto/tls can go on
// after an error that is temporary.
type wouldBlock struct{}

// Error implements [error].
func (wouldBlock) Error() string { return "nothing has come yet" }

// Is makes it equal to a passed deadline, after which internal/wire/h2 can go on, too.
func (wouldBlock) Is(err error) bool { return err == os.ErrDeadlineExceeded }

// Timeout implements [net.Error].
func (wouldBlock) Timeout() bool { return false }

// Temporary implements [net.Error].
func (wouldBlock) Temporary() bool { return true }

func isWouldBlock(err error) bool { return errors.Is(err, wouldBlock{}) }

// NetConn returns the net.Conn, nil while a loop owns the connection.
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
		w.readsLeft = 0 // there is no more, or epoll tells the loop of it
	}
	return n, nil
}

// Write implements [net.Conn]. On a loop it takes all of p, and keeps in unsent what the
// client does not take. Callers must write no more until that is empty.
func (w *Wire) Write(p []byte) (n int, err error) {
	w.mu.Lock()
	if w.fd == noFD {
		w.mu.Unlock()
		if err := w.flushBlocking(); err != nil {
			return 0, err
		}
		return w.writer.write(w.nc, p)
	}
	defer w.mu.Unlock()
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

// flush sends as much of unsent as the client takes now.
func (w *Wire) flush() (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.unsent) == 0 {
		return 0, nil
	}
	n, err = send.TryWrite(uintptr(w.fd), w.unsent, nil)
	if w.unsent = w.unsent[n:]; len(w.unsent) == 0 {
		w.unsent = nil
		w.wakeWriters()
	}
	return n, err
}

// full reports whether the client has not taken everything.
func (w *Wire) full() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.unsent) > 0
}

// ifFull calls f if the client has not taken everything, before the loop can send it.
func (w *Wire) ifFull(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.unsent) > 0 {
		f()
	}
}

// awaitRoom returns nil if the client has taken everything, or the connection is closed.
// Otherwise the channel is closed when that is so.
func (w *Wire) awaitRoom() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.unsent) == 0 || w.fd < 0 {
		return nil
	}
	if w.room == nil {
		w.room = make(chan struct{})
	}
	return w.room
}

// wakeWriters wakes who waits in awaitRoom. mu is held.
func (w *Wire) wakeWriters() {
	if w.room != nil {
		close(w.room)
		w.room = nil
	}
}

// gone notes that the loop's descriptor is about to be closed. Nobody writes to it afterwards.
func (w *Wire) gone() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fd = goneFD
	w.wakeWriters()
}

// onDescriptor has a loop read and write.
func (w *Wire) onDescriptor(fd int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nc, w.writer, w.fd = nil, nil, fd
}

// onConn has a goroutine read and write.
func (w *Wire) onConn(nc net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nc, w.writer, w.fd = nc, new(blockingWriter), noFD
	w.wakeWriters()
}

// flushBlocking sends what a loop has left in unsent, and waits for the client.
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

// Close implements [net.Conn]. The descriptor of a loop is closed by Conn.closeOwned.
func (w *Wire) Close() error {
	if w.fd != noFD {
		return nil
	}
	return w.nc.Close()
}

// CloseWrite closes the sending side.
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

// SetDeadline implements [net.Conn]. On a loop it does nothing, as nothing waits there.
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

// seal encrypts and sends head and body until the client takes no more, or about
// bytesPerEvent were sent. It returns how much it has encrypted; what the client did not
// take of that is in the wire's unsent.
func (c *Conn) seal(head, body []byte) (n int, err error) {
	for _, b := range [2][]byte{head, body} {
		for len(b) > 0 && !c.wire.full() && n < bytesPerEvent {
			m, err := c.nc.Write(b[:min(len(b), maxWrite)])
			if n += m; err != nil {
				return n, err
			}
			b = b[m:]
		}
	}
	return n, nil
}
