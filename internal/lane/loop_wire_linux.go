package lane

import (
	"crypto/tls"
	"errors"
	"net"

	"golang.org/x/sys/unix"

	"millrace/internal/epoll"
	"millrace/internal/h2"
	"millrace/internal/send"
)

// Adopt gives a new connection to a loop, below TLS: see loop. It reports false,
// and changes nothing, where that is not possible. take is called when the loop
// gives it up, in a goroutine of its own: it should call Serve first.
func (c *TLSConn) Adopt(take func()) bool { return c.adopt(nil, nil, take) }

// adopt is Adopt for a connection of HTTP/2, too, which has a host and a front.
func (c *TLSConn) adopt(host *h2Host, front *h2.Conn, take func()) bool {
	l, w := c.lane, wireOf(c.tls.NetConn())
	if !l.on() || w == nil {
		return false
	}
	if l.loopsOnce.Do(l.startLoops); len(l.loops) == 0 || !c.detachWire(w) {
		return false
	}
	c.onLeave = func(*Conn) { take() }
	if c.h2host != host {
		c.h2host = host
	}
	if front != nil {
		c.h2conn.Store(front) // a drain finds it from here on, or the loop finds the drain
	}
	lp, fd := c.ownerLoop(), w.fd
	l.owned.slot(fd).Store(c.Conn) // from here on all is the loop's
	// TLS may already have read a request, of which the poller knows nothing. So the
	// loop also asks to be told of room to write, which there is, and looks at once.
	if err := lp.in.Add(fd, epoll.In|epoll.Out|epoll.PeerShut, int32(fd), c.shard); err != nil {
		_ = c.Close()
	}
	return true
}

// detachWire takes the descriptor out of Go's poller.
func (c *TLSConn) detachWire(w *Wire) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	fd, ok := send.Detach(w.nc)
	if !ok { // it was cut, perhaps
		return false
	}
	if c.lane.owned.slot(fd) == nil {
		_ = unix.Close(fd)
		return false
	}
	_ = w.nc.Close()
	w.nc, w.writer, w.fd = nil, nil, fd
	c.wire, c.fd, c.transport = w, fd, nil
	c.clientCert = len(c.tls.ConnectionState().VerifiedChains) > 0
	return true
}

// isOwnedLocked reports whether a loop has the connection, with c.mu held.
func (c *Conn) isOwnedLocked() bool { return c.fd != noFD }

// wireToNetConn is settle for a connection over TLS; err is why there is no nc.
func (c *Conn) wireToNetConn(nc net.Conn, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil { // no descriptors left
		c.wire.fd = goneFD
		return false
	}
	c.wire.nc, c.wire.writer, c.wire.fd = nc, new(blockingWriter), noFD
	if tc, ok := c.nc.(*tls.Conn); ok {
		c.transport = tc.NetConn()
	}
	return !c.cutPending
}

// serveTLS looks at a connection over TLS.
func (lp *loop) serveTLS(c *Conn) {
	defer lp.recoverPanic(c)
	c.wire.readsLeft = readsPerEvent
	if c.h2host != nil {
		lp.serveHTTP2(c)
		return
	}
	lp.readTLS(c)
}

// readTLS is look for a connection over TLS. It reads until TLS has nothing
// more: of what that has read ahead the loop is not told.
func (lp *loop) readTLS(c *Conn) { lp.serveTLSBytes(c, 0) }

// resumeTLS goes on with a client whose request was passed on and answered: with what
// it has sent meanwhile and what TLS has read of that. The loop is told of the rest.
func (lp *loop) resumeTLS(c *Conn) {
	c.wire.readsLeft = 0
	n := 0
	if c.reading.pending == nil {
		n, c.readAhead = copy(lp.scratch.buf[:], c.readAhead), nil
	}
	lp.serveTLSBytes(c, n)
}

// serveTLSBytes answers the n bytes in the scratch buffer that have come, and what TLS
// has behind them.
func (lp *loop) serveTLSBytes(c *Conn, n int) {
	s := &lp.scratch
	for {
		if c.reading.pending != nil {
			if !lp.sendPending(c) {
				return
			}
			n, c.readAhead = copy(s.buf[:], c.readAhead), nil
		}
		if n > 0 {
			used, o := c.answerHot(s, s.buf[:n], onTLSLoop)
			n = copy(s.buf[:], s.buf[used:n])
			switch {
			case o == finished:
				_ = c.Close()
				return
			case o == blocked:
				c.readAhead, n = append(c.readAhead, s.buf[:n]...), 0 // waits behind the answer
				continue
			case o == notHot && lp.forward(c, s.buf[:n]):
				return
			case n == len(s.buf):
				lp.leaveWith(c, s.buf[:n])
				return
			case o == notHot: // the body of a request may come in a record of its own
				m, _ := c.nc.Read(s.buf[n:]) // an error comes again
				if m == 0 {
					lp.leaveWith(c, s.buf[:n])
					return
				}
				n += m
				continue
			}
		}
		m, err := c.nc.Read(s.buf[n:])
		switch n += m; {
		case m > 0: // an error comes again
		case n > 0: // half a request
			lp.leaveWith(c, s.buf[:n])
			return
		case isWouldBlock(err):
			return
		default:
			_ = c.Close()
			return
		}
	}
}

// serveHTTP2 is lookWire for HTTP/2. The first stream that is for net/http ends the
// connection's time on the loop, once the client has taken what was answered.
func (lp *loop) serveHTTP2(c *Conn) {
	front := c.h2conn.Load()
	for {
		if c.reading.pending != nil && !lp.sendPending(c) {
			return
		}
		if c.h2host.pendingInner != nil || c.h2host.mustLeave {
			c.h2host.needsFlush = false
			c.leave()
			return
		}
		if c.lane.draining.Load() {
			c.lane.shutdownHTTP2(front)
		}
		err := front.Run()
		again := isWouldBlock(err) || errors.Is(err, h2.ErrPause)
		if !again {
			c.h2host.countRefusal(front.Reason())
		}
		switch {
		case len(c.wire.unsent) > 0:
			c.reading.pending = &pendingWrite{closing: !again}
		case !again:
			_ = c.Close()
			return
		case isWouldBlock(err):
			return
		}
	}
}

// notifyDrain has an HTTP/2 connection told that the server drains: by its loop, which is
// woken for it, or by a goroutine, since writing may wait for the client. A
// connection that is just leaving its loop notices the drain itself.
func (c *Conn) notifyDrain(front *h2.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.fd != noFD:
		lp := c.lane.loops[int(c.shard)%len(c.lane.loops)]
		_ = lp.in.Change(c.fd, epoll.In|epoll.Out|epoll.PeerShut, int32(c.fd), c.shard) // not there: it waits to write, and will look
	case c.transport != nil:
		go c.lane.shutdownHTTP2(front)
	}
}

// leaveWith gives a connection up, with what it has read for whoever gets it.
func (lp *loop) leaveWith(c *Conn, read []byte) {
	c.startHeadTimeout(len(read))
	c.readAhead = append(c.readAhead, read...)
	c.leave()
}

// pushTLS is push for a connection over TLS. The part of a file that comes next
// is in the system's memory.
func (c *Conn) pushTLS(r *pendingWrite) (sent int, state pushed) {
	sent, err := c.wire.flush()
	if err != nil {
		return sent, pushFailed
	}
	n, err := c.seal(r.head, r.body)
	c.lane.meters.Sent.Writev.Add(c.shard, uint64(n))
	skip := min(n, len(r.head))
	r.head, r.body = r.head[skip:], r.body[n-skip:]
	sent += n
	switch {
	case err != nil:
		return sent, pushFailed
	case len(c.wire.unsent) > 0 || len(r.head)+len(r.body) > 0:
		return sent, pushWaits
	case r.file == nil:
		return sent, pushDone
	}
	n, state = c.sealFile(r)
	return sent + n, state
}

// sealFile goes on with a file.
func (c *Conn) sealFile(r *pendingWrite) (sent int, state pushed) {
	buf := bufferPool.Get().(*[]byte)
	defer bufferPool.Put(buf)
	a := r.file.answer
	for turn := r.leftForEvent(); turn > 0; {
		b := (*buf)[:min(turn, int64(len(*buf)))]
		if n, _ := a.File.ReadAt(b, a.Base+r.sent); n < len(b) {
			return sent, pushCold // the goroutine reads it again, and reports the error
		}
		n, err := c.nc.Write(b)
		c.lane.meters.Sent.Copied.Add(c.shard, uint64(n))
		r.sent, sent, turn = r.sent+int64(n), sent+n, turn-int64(n)
		switch {
		case err != nil:
			return sent, pushFailed
		case len(c.wire.unsent) > 0:
			return sent, pushWaits
		}
	}
	if r.sent < a.Size {
		return sent, pushWaits
	}
	return sent, pushDone
}
