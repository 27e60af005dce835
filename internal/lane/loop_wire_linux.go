package lane

import (
	"crypto/tls"
	"errors"
	"net"

	"millrace/internal/wire/epoll"
	"millrace/internal/wire/h2"
	"millrace/internal/wire/message"
)

// Adopt gives a new connection, whose handshake is complete, to a loop. It returns false, and
// changes nothing, where that is not possible. take is called in a goroutine of its own
// when the connection leaves its loop; it should first call Serve.
func (c *TLSConn) Adopt(take func()) bool { return c.adopt(nil, nil, take) }

// adopt is Adopt; for a connection of HTTP/2, which stays on its loop, with its host and
// h2conn, else nil.
func (c *TLSConn) adopt(host *h2Host, h2conn *h2.Conn, take func()) bool {
	l, w := c.lane, wireOf(c.tls.NetConn())
	if !l.on() || w == nil {
		return false
	}
	if l.loopsOnce.Do(l.startLoops); len(l.loops) == 0 {
		return false
	}
	fd, ok := c.detachWire(w)
	if !ok {
		return false
	}
	state := c.tls.ConnectionState()
	c.subject = message.SubjectOf(&state)
	if host == nil {
		c.onLeave = func(*Conn) { take() }
	} else {
		host.looped, c.h2host = true, host
		c.h2conn.Store(h2conn) // from here on a drain finds it; the loop finds one that was before
	}
	lp := c.ownerLoop()
	l.owned.slot(fd).Store(c.Conn) // from here on the loop serves it
	// TLS may have read a request already, of which epoll knows nothing. So the loop
	// also watches for room to write, which there is, and serves the connection at once.
	if err := lp.in.Add(fd, epoll.In|epoll.Out|epoll.PeerShut, int32(fd), c.shard); err != nil {
		_ = c.Close()
	}
	return true
}

// detachWire moves the descriptor from the Wire's net.Conn to the loop.
func (c *Conn) detachWire(w *Wire) (fd int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if fd, ok = c.detachNet(w.nc); ok {
		w.onDescriptor(fd)
		c.wire, c.fd, c.transport = w, fd, nil
	}
	return fd, ok
}

// isOwnedLocked is isOwned with c.mu held.
func (c *Conn) isOwnedLocked() bool { return c.fd != noFD }

// wireToNetConn is toNetConn for a connection over TLS; err is why there is no nc.
func (c *Conn) wireToNetConn(nc net.Conn, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil { // no descriptor is left
		c.wire.gone()
		return false
	}
	c.wire.onConn(nc)
	if tc, ok := c.nc.(*tls.Conn); ok {
		c.transport = tc.NetConn()
	}
	return !c.cutPending
}

// serveTLS serves a connection over TLS, with HTTP/1.1 or HTTP/2.
func (lp *loop) serveTLS(c *Conn) {
	defer lp.recoverPanic(c)
	c.wire.readsLeft = readsPerEvent
	if c.h2host != nil {
		lp.serveHTTP2(c)
		return
	}
	lp.readTLS(c)
}

// readTLS is serveReadable for HTTP/1.1 over TLS. It reads until TLS has nothing more, since
// epoll does not tell of what TLS has read ahead.
func (lp *loop) readTLS(c *Conn) {
	n := 0
	if c.reading.pending == nil { // see Conn.resume
		n, c.readAhead = copy(lp.scratch.buf[:], c.readAhead), nil
	}
	lp.serveTLSBytes(c, n)
}

// resumeTLS goes on after the answer to a forwarded request: with what was read ahead, by the
// lane or by TLS. epoll tells of what is in the socket.
func (lp *loop) resumeTLS(c *Conn) {
	c.wire.readsLeft = 0
	lp.readTLS(c)
}

// serveTLSBytes serves the requests in the first n bytes of the scratch buffer, and what TLS
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
			case o == notHot && lp.pass(c, s.buf[:n], n < len(s.buf)):
				return
			case n == len(s.buf):
				lp.leaveWith(c, s.buf[:n])
				return
			case o == notHot: // the body of a request may come in a record of its own
				m, _ := c.nc.Read(s.buf[n:]) // the next read gets the error again
				if m == 0 {
					if !lp.pass(c, s.buf[:n], false) {
						lp.leaveWith(c, s.buf[:n])
					}
					return
				}
				n += m
				continue
			}
		}
		m, err := c.nc.Read(s.buf[n:])
		switch n += m; {
		case m > 0: // the next read gets an error again
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

// serveHTTP2 serves HTTP/2. The connection stays on its loop: net/http and workers answer
// streams beside it, and write to TLS themselves (see h2Host.Write).
func (lp *loop) serveHTTP2(c *Conn) {
	h2conn := c.h2conn.Load()
	for {
		if c.reading.pending == nil && c.wire.full() { // it may be what another goroutine has written
			c.reading.pending = new(pendingWrite)
		}
		if c.reading.pending != nil {
			if !lp.sendPending(c) {
				return
			}
			continue
		}
		if c.h2host.over.Load() {
			_ = c.Close()
			return
		}
		if c.lane.draining.Load() {
			c.lane.shutdownHTTP2(h2conn)
		}
		err := h2conn.Run()
		again := isWouldBlock(err) || errors.Is(err, h2.ErrPause)
		switch {
		case c.wire.full():
			c.reading.pending = &pendingWrite{closing: !again}
		case !again:
			_ = c.Close()
			return
		case isWouldBlock(err):
			return
		case lp.awaitInner(c, h2conn):
			return
		}
	}
}

// awaitInner reports whether net/http must read before the client's next frames are. Then they
// wait in the socket, and Wake ends that.
func (lp *loop) awaitInner(c *Conn, h2conn *h2.Conn) bool {
	if !h2conn.InnerFull() {
		return false
	}
	_ = lp.in.Change(c.fd, epoll.PeerShut|epoll.Edge, int32(c.fd), c.shard)
	if h2conn.InnerFull() && !c.wire.full() && !c.h2host.over.Load() { // of these Wake has told, perhaps before the change
		return true
	}
	_ = lp.in.Change(c.fd, epoll.In|epoll.PeerShut, int32(c.fd), c.shard)
	return false
}

// notifyDrain has a client of HTTP/2 told that the server drains: by its loop, which is woken
// for it, or by a goroutine, since writing may wait for the client. A connection that is
// just leaving its loop finds out by itself.
func (c *Conn) notifyDrain(h2conn *h2.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.fd != noFD:
		lp := c.lane.loops[int(c.shard)%len(c.lane.loops)]
		_ = lp.in.Change(c.fd, epoll.In|epoll.Out|epoll.PeerShut, int32(c.fd), c.shard) // fails if the connection is in out: the loop serves it when there is room
	case c.transport != nil:
		go c.lane.shutdownHTTP2(h2conn)
	}
}

// leaveWith has a connection leave the loop, with bytes that were read of a request.
func (lp *loop) leaveWith(c *Conn, read []byte) {
	c.startHeadTimeout(len(read))
	c.readAhead = append(c.readAhead, read...)
	c.leave()
}

// pushTLS is push for a connection over TLS. The next part of a file must be in the page
// cache.
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
	case c.wire.full() || len(r.head)+len(r.body) > 0:
		return sent, pushWaits
	case r.file.of == nil:
		return sent, pushDone
	}
	n, state = c.sealFile(r)
	return sent + n, state
}

// sealFile encrypts and sends the next part of a file.
func (c *Conn) sealFile(r *pendingWrite) (sent int, state pushed) {
	buf := bufferPool.Get().(*[]byte)
	defer bufferPool.Put(buf)
	for turn := r.leftForEvent(); turn > 0; {
		b := (*buf)[:min(turn, int64(len(*buf)))]
		f, from := r.fileFrom()
		if n, _ := f.ReadAt(b, from); n < len(b) {
			return sent, pushCold // the goroutine reads it again, and gets the error
		}
		n, err := c.nc.Write(b)
		c.lane.meters.Sent.Copied.Add(c.shard, uint64(n))
		r.sent, sent, turn = r.sent+int64(n), sent+n, turn-int64(n)
		switch {
		case err != nil:
			return sent, pushFailed
		case c.wire.full():
			return sent, pushWaits
		}
	}
	if r.sent < r.file.size {
		return sent, pushWaits
	}
	return sent, pushDone
}
