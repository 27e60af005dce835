package lane

import (
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"millrace/internal/send"
)

// waitingWrite is how a Wire writes to its net.Conn. What the client takes at
// once goes by a raw system call; only for the rest does a goroutine wait, and
// only then does Go's poller hear of the deadline. net/http sets one before each
// write over HTTP/2 and clears it after: telling the poller of both took 1.4 µs
// of the 48 µs of a small answer.
type waitingWrite struct {
	mu    sync.Mutex // of the two below
	until time.Time
	now   bool // somebody waits

	raw  syscall.RawConn
	none bool // there is no raw
	// One write; try is bound once, as a closure would be an allocation for each.
	try func(fd uintptr)
	p   []byte
	n   int
	err error
}

// setDeadline is SetWriteDeadline of nc.
func (w *waitingWrite) setDeadline(nc net.Conn, t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until = t
	if w.now {
		return nc.SetWriteDeadline(t)
	}
	return nil
}

// write is Write of nc.
func (w *waitingWrite) write(nc net.Conn, p []byte) (n int, err error) {
	if w.late() {
		return 0, &net.OpError{Op: "write", Net: nc.LocalAddr().Network(), Source: nc.LocalAddr(), Addr: nc.RemoteAddr(), Err: os.ErrDeadlineExceeded}
	}
	if n, err = w.atOnce(nc, p); err != nil || n == len(p) {
		return n, err
	}
	if err := w.begin(nc); err != nil {
		return n, err
	}
	defer w.end(nc)
	m, err := nc.Write(p[n:])
	return n + m, err
}

// late reports whether the deadline has passed.
func (w *waitingWrite) late() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.until.IsZero() && !time.Now().Before(w.until)
}

func (w *waitingWrite) begin(nc net.Conn) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = true
	return nc.SetWriteDeadline(w.until)
}

// end clears the poller's deadline, which would otherwise apply to later writes.
func (w *waitingWrite) end(nc net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = false
	_ = nc.SetWriteDeadline(time.Time{}) // fails on a closed connection alone
}

// atOnce writes as much of p as the client takes now.
func (w *waitingWrite) atOnce(nc net.Conn, p []byte) (n int, err error) {
	if w.raw == nil && !w.find(nc) || len(p) == 0 {
		return 0, nil
	}
	w.p, w.n, w.err = p, 0, nil
	err = w.raw.Control(w.try)
	w.p = nil
	if err == nil {
		err = w.err
	}
	return w.n, err
}

// find finds the raw connection, once.
func (w *waitingWrite) find(nc net.Conn) bool {
	if w.none {
		return false
	}
	if send.Raw {
		w.raw = send.RawConn(nc)
	}
	if w.none = w.raw == nil; w.none {
		return false
	}
	w.try = func(fd uintptr) { w.n, w.err = send.TryWrite(fd, w.p, nil) }
	return true
}
