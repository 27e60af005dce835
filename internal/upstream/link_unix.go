//go:build unix

package upstream

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// link is the socket below a connection. Reads and the first write of a request
// are tried under the connection's lock and never wait there, so that it is
// known which of them was first.
type link struct {
	raw syscall.RawConn // nil: this is none of the kernel's sockets

	reading, asking func(fd uintptr) bool // tryRead, tryAsk of the connection
	into            []byte                // of the Read under way
	got             int
	readErr         error
	from            []byte // of the Write under way
	sent            int
	writeErr        error
}

func (l *link) open(c *conn, raw syscall.RawConn) {
	l.raw = raw
	l.reading, l.asking = c.tryRead, c.tryAsk
}

// sees reports whether it is known that a reader waits.
func (l *link) sees() bool { return l.raw != nil }

// read is the connection's Read.
func (l *link) read(c *conn, b []byte) (int, error) {
	if l.raw == nil || len(b) == 0 {
		return readThrough(c, b)
	}
	l.into, l.got, l.readErr = b, 0, nil
	err := l.raw.Read(l.reading)
	l.into = nil
	if err != nil { // closed, or its deadline has passed
		return 0, err
	}
	if l.readErr != nil {
		return 0, failedCall(c, "read", l.readErr)
	}
	if l.got == 0 {
		return 0, io.EOF
	}
	return l.got, nil
}

// tryRead reads what is there, and reports false if it is nothing.
func (c *conn) tryRead(fd uintptr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.link
	c.looked = true
	n, err := retried(func() (int, error) { return syscall.Read(int(fd), l.into) })
	if errors.Is(err, syscall.EAGAIN) {
		c.waits()
		return false
	}
	if l.readErr = err; err == nil && n > 0 {
		l.got = n
		c.received(l.into[:n])
	}
	return true
}

// ask writes the first bytes of a request, unless there are some to read. It
// may write less than all.
func (l *link) ask(c *conn, b []byte) (int, error) {
	if l.raw == nil {
		c.phase.CompareAndSwap(given, asked)
		return 0, nil
	}
	l.from, l.sent, l.writeErr = b, 0, nil
	err := l.raw.Write(l.asking)
	l.from = nil
	switch {
	case err != nil:
		return 0, err
	case errors.Is(l.writeErr, errEarly):
		return 0, errEarly
	case l.writeErr != nil:
		return 0, failedCall(c, "write", l.writeErr)
	}
	return l.sent, nil
}

// tryAsk reports false if the socket takes nothing now.
func (c *conn) tryAsk(fd uintptr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.link
	if c.plain || c.uses > 1 { // over TLS a server may have something to say after the handshake
		if c.spoke.Load() || unread(int(fd)) {
			c.spoke.Store(true)
			l.writeErr = errEarly
			return true
		}
	}
	n, err := retried(func() (int, error) { return syscall.Write(int(fd), l.from) })
	if errors.Is(err, syscall.EAGAIN) {
		return false
	}
	if l.writeErr = err; err == nil {
		l.sent = n
		c.phase.CompareAndSwap(given, asked)
	}
	return true
}

// unread reports whether the kernel holds bytes that nobody has read.
func unread(fd int) bool {
	var one [1]byte
	n, err := retried(func() (int, error) {
		n, _, err := syscall.Recvfrom(fd, one[:], syscall.MSG_PEEK)
		return n, err
	})
	return err == nil && n > 0
}

// retried repeats a call that a signal has interrupted.
func retried(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}

// failedCall is an error as the package net would return it.
func failedCall(c *conn, op string, err error) error {
	return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(op, err)}
}
