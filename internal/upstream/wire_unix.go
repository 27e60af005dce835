//go:build unix

package upstream

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// rawOf is the socket of a connection, nil if it is none of the kernel's.
func rawOf(nc net.Conn) syscall.RawConn {
	s, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// peek is look for a socket.
func (w *wire) peek() state {
	found := gone
	if err := w.raw.Control(func(fd uintptr) { found, _ = peekAt(int(fd), w.uses) }); err != nil {
		return gone
	}
	return found
}

// peekAt looks at what the kernel holds, and leaves it there. On a connection
// that is new, an end is left for the read to find. err is not nil where it is gone.
func peekAt(fd, uses int) (found state, err error) {
	var b [16]byte
	n, err := retried(func() (int, error) {
		return rawPeek(uintptr(fd), b[:])
	})
	switch {
	case errors.Is(err, syscall.EAGAIN):
		return noData, nil
	case err == nil && n > 0 && !isTimeoutNotice(b[:n]):
		return unsolicited, nil
	case uses <= 1 && n == 0:
		return noData, nil
	case err == nil:
		err = errClosed
	}
	return gone, err
}

// tryAsk is called once to write, and then whenever there may be something to
// read. It reports false to wait for that.
func (w *wire) tryAsk(fd uintptr) bool {
	a := &w.asking
	if !a.wrote {
		if a.found, _ = peekAt(int(fd), w.uses); a.found != noData {
			return true
		}
		n, err := retried(func() (int, error) { return rawWrite(fd, a.out) })
		if n > 0 {
			a.sent = n
		}
		if err != nil && !errors.Is(err, syscall.EAGAIN) {
			a.err = os.NewSyscallError("write", err)
			return true
		}
		a.wrote = a.sent == len(a.out)
		return !a.wrote || len(a.into) == 0
	}
	n, err := retried(func() (int, error) { return rawRead(fd, a.into) })
	switch {
	case errors.Is(err, syscall.EAGAIN):
		return false
	case err != nil:
		a.err = os.NewSyscallError("read", err)
	case n == 0:
		a.err = io.EOF
	default:
		a.got = n
	}
	return true
}

// readNow reads what is there, and does not wait.
func readNow(fd int, to []byte) (int, error) {
	n, err := retried(func() (int, error) { return rawRead(uintptr(fd), to) })
	switch {
	case errors.Is(err, syscall.EAGAIN):
		return 0, os.ErrDeadlineExceeded
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
