package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// state is what look finds on a connection before a request is written to it.
type state int

const (
	noData      state = iota // nothing, as it should be
	gone                     // its end, or something after which there is no use in it
	unsolicited              // bytes came without a request
)

// wire is a connection of HTTP/1.1 without a goroutine of its own: the goroutine that
// makes a request writes it and reads the answer.
//
// Nothing that has reached this machine before a request leaves it is taken for
// the answer to that request. Bytes are read for a request only, each answer
// is used to its last byte, and what is left behind it then, or is found by a
// look at the socket right before the next request is written, was not asked
// for. What comes later is indistinguishable from the answer; so a server that
// was seen to send such bytes is asked on new connections only, for
// distrustFor, and the answers on that connection are put in doubt ([Request.OnSuspect]).
type wire struct {
	net   net.Conn // what is written to and read from: base, or TLS over it
	base  net.Conn
	raw   syscall.RawConn // of base; nil: over TLS, or none of the kernel's sockets
	below *below          // base as TLS sees it; nil: not over TLS

	past
	until  time.Duration // the deadline of reads, on the pool's clock; 0: none
	asking asking        // the question under way, on a socket of the kernel's
}

// past is what is known about a connection of HTTP/1.1, whoever drives it.
type past struct {
	uses     int           // requests that were given it
	since    time.Duration // when it became idle, on the pool's clock
	suspects []func()      // of the latest answers, oldest first: see Request.OnSuspect
	newcomer *newcomer     // nil for connections of net/http's
}

// newWire takes a connection as it was dialled.
func newWire(base net.Conn) *wire {
	w := &wire{net: base, base: base, raw: rawOf(base)}
	w.asking.try = w.tryAsk
	return w
}

// secure speaks TLS over w, with a config that has a ServerName.
func (w *wire) secure(ctx context.Context, timeout time.Duration, config *tls.Config) (protocol string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	w.below, w.raw = &below{Conn: w.base, raw: w.raw}, nil
	over := tls.Client(w.below, config)
	if err := over.HandshakeContext(ctx); err != nil {
		return "", err
	}
	w.net = over
	return over.ConnectionState().NegotiatedProtocol, nil
}

// close closes it without a goodbye of TLS, which could have to wait.
func (w *wire) close() { _ = w.base.Close() } // there is nothing to lose

// setUntil makes reads end at a time on the pool's clock; 0: never.
func (w *wire) setUntil(started time.Time, until time.Duration) {
	if w.until == until {
		return
	}
	w.until = until
	at := time.Time{}
	if until != 0 {
		at = started.Add(until)
	}
	_ = w.base.SetReadDeadline(at) // one that cannot be set is broken, which the read will say
}

// registerSuspect keeps f, to be called if the next answer turns out to be suspect.
func (c *past) registerSuspect(f func()) {
	if f == nil || c.uses == 1 { // before a first answer there was nothing
		return
	}
	if len(c.suspects) >= maxSuspects {
		c.suspects = append(c.suspects[:0], c.suspects[1:]...)
	}
	c.suspects = append(c.suspects, f)
}

// reportUnsolicited reports that the server sent bytes without a request, and that the
// latest answers are suspect. The connection is of no more use.
func (c *past) reportUnsolicited(s *server) {
	s.noteUnsolicited()
	for _, onSuspect := range c.suspects {
		onSuspect()
	}
	c.suspects = nil
}

// quickReadTime is how long look may read from a connection that is not a socket of
// the kernel's: those of tests, and on systems where it cannot be looked at without
// reading.
const quickReadTime = 10 * time.Microsecond

// look returns what there is to read before a request is written. It never waits.
func (w *wire) look() state {
	switch {
	case w.raw != nil:
		return w.peek()
	case w.uses <= 1:
		return noData // a TLS server may send tickets after the handshake
	}
	if w.below != nil {
		w.below.noWait = true
		defer w.below.endQuickRead(w)
	} else {
		defer w.shortenReads()()
	}
	var b [16]byte
	n, err := w.net.Read(b[:]) // TLS takes in what is its own, such as tickets
	switch {
	case n > 0 && !isTimeoutNotice(b[:n]):
		return unsolicited
	case n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && (w.below == nil || w.below.records.between()):
		return noData
	}
	return gone
}

// shortenReads gives reads next to no time, until the function that it returns is
// called.
func (w *wire) shortenReads() (relax func()) {
	_ = w.base.SetReadDeadline(time.Now().Add(quickReadTime))
	return func() {
		_ = w.base.SetReadDeadline(time.Time{})
		w.until = 0
	}
}

// below is the network as TLS sees it. With noWait set, a Read takes what is there and
// does not wait; TLS can go on after that.
type below struct {
	net.Conn
	raw     syscall.RawConn // nil: none of the kernel's sockets
	noWait  bool
	records records
}

// endQuickRead lets reads wait again.
func (b *below) endQuickRead(w *wire) {
	if b.noWait = false; b.raw == nil {
		w.until = 0
	}
}

// Read implements net.Conn.
func (b *below) Read(to []byte) (n int, err error) {
	switch {
	case !b.noWait:
		n, err = b.Conn.Read(to)
	case b.raw == nil:
		_ = b.SetReadDeadline(time.Now().Add(quickReadTime))
		n, err = b.Conn.Read(to)
		_ = b.SetReadDeadline(time.Time{})
	default:
		if failed := b.raw.Control(func(fd uintptr) { n, err = readNow(int(fd), to) }); failed != nil {
			err = failed
		}
	}
	b.records.walk(to[:max(n, 0)])
	return n, err
}

// asking is one request on its way, and the first bytes of its answer.
type asking struct {
	try   func(fd uintptr) bool // tryAsk of the connection
	out   []byte                // what is to be written
	into  []byte                // where the answer goes
	sent  int
	got   int
	wrote bool // all of out
	found state
	err   error
}

// ask writes out and waits for the first bytes of the answer, which it puts
// into into, if the connection is quiet. It returns early when not all could be written at
// once. An error may come after bytes were written.
//
// On a socket of the kernel's this is one operation of the runtime's poller: the
// notes about readiness are reset before the request is written, so that the
// answer's cannot be missed, and no read has to be tried before there is one.
func (w *wire) ask(out, into []byte) (a *asking, err error) {
	a = &w.asking
	a.out, a.into, a.sent, a.got, a.wrote, a.found, a.err = out, into, 0, 0, false, noData, nil
	defer func() { a.out, a.into = nil, nil }()
	if w.raw != nil {
		if err = w.raw.Read(a.try); err == nil {
			err = a.err
		}
		return a, err
	}
	a.found = w.look()
	return a, nil
}

// write writes what ask did not, and may wait.
func (w *wire) write(b []byte, timeout time.Duration) (int, error) {
	_ = w.base.SetWriteDeadline(time.Now().Add(timeout))
	n, err := w.net.Write(b)
	_ = w.base.SetWriteDeadline(time.Time{})
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return n, err
}
