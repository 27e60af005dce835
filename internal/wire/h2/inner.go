package h2

import (
	"crypto/tls"
	"encoding/binary"
	"net"
	"sync"
	"time"
)

// inner is net/http's side of a connection. Net/http reads the frames that are for it,
// and what it writes goes to the client in whole frames.
//
// An idle server of net/http has two goroutines and about 20 KiB, so the side ends when its
// last stream does (retire), and the next stream for net/http starts another one. The
// client notices nothing of that:
//   - The new encoder begins with an empty table while the client's still has entries of the
//     old one. An index counts from the newest entry, and the oldest are dropped first (RFC
//     7541, 2.3.3 and 4.4), so what the new encoder refers to is what it has inserted.
//   - The new server grows the window for uploads as if nothing had been granted; see received.
//   - Streams may begin with any number.
type inner struct {
	c    *Conn
	pipe *pipe

	// Guarded by flows.mu.
	streams int  // that are open
	acks    int  // SETTINGS that net/http has yet to acknowledge
	writing bool // frames of net/http's are on their way to the client
	leaves  bool // it has sent GOAWAY, and ends the connection itself
	retired bool
	greeted bool // the first SETTINGS are acknowledged

	// Of net/http's writes, which come one at a time.
	partial  []byte // the beginning of a frame
	block    []byte // the beginning of a header block, in whole frames
	data     head   // the DATA frame whose payload is coming
	dataLeft int    // bytes of its payload that have yet to come
	out      []byte // whole frames to be written
	// newTable is a size of the HPACK table that is in out or block and was not
	// written yet, where tableChanged is set.
	newTable     uint32
	tableChanged bool
	outBuf       *[]byte // the buffer of out, from a pool
}

// beginInner begins a stream that net/http answers, and starts net/http's side if there is
// none. body: a body follows.
func (c *Conn) beginInner(t *task, id uint32, body bool) error {
	c.run.lastPassed = id
	f := &flow{id: id, window: int64(c.run.settings.window), uploads: body, bodyAt: time.Now().UnixNano()}
	if !body || c.connects() {
		f.bodyAt = 0
	}
	if f.inner = c.inner.Load(); f.inner != nil && c.flows.begin(f) {
		return nil
	}
	if err := c.flush(t); err != nil { // our SETTINGS come before its first frame
		return err
	}
	t.toInner = t.toInner[:0] // was for one that has ended
	in := &inner{c: c, pipe: newPipe(c.host.Wake), acks: 1}
	first := c.run.settings.appendTo(nil)
	first = appendHead(first, head{kind: frameSettings, flags: flagAck})
	if grow := c.window.settle(); grow > 0 {
		first = appendWindowUpdate(first, 0, grow)
	}
	c.received.settle()
	in.pipe.write(first, false, false)
	f.inner = in
	c.flows.begin(f)
	c.inner.Store(in)
	c.host.Inner(&innerConn{in})
	return nil
}

// retireInner ends net/http's side if it has no stream open.
func (c *Conn) retireInner() {
	if in := c.inner.Load(); in != nil {
		in.retire()
	}
}

func (in *inner) retire() {
	c := in.c
	c.flows.mu.Lock()
	idle := in.streams == 0 && in.acks == 0 && !in.writing && !in.leaves && !in.retired
	if idle {
		in.retired = true
		c.inner.Store(nil)
	}
	c.flows.mu.Unlock()
	if idle {
		in.pipe.close()
	}
}

// isRetired reports whether the side has ended.
func (in *inner) isRetired() bool {
	in.c.flows.mu.Lock()
	defer in.c.flows.mu.Unlock()
	return in.retired
}

// ReportWait tells the host what the connection waits for. Run does so after each read; the
// host calls it between calls of Run where it has forgotten. It and flows.end call the host
// under the lock, so that the last call has the current state.
func (c *Conn) ReportWait() {
	part := len(c.run.partial) > 0 || c.run.block.open
	c.flows.mu.Lock()
	defer c.flows.mu.Unlock()
	c.flows.midFrame, c.flows.taken = part, len(c.run.forwarded)+len(c.run.pending)
	switch {
	case part:
		c.host.Awaits(WaitFrame)
	case len(c.flows.open)+c.flows.taken > 0:
		c.host.Awaits(WaitNothing)
	default:
		c.host.Awaits(WaitRequest)
	}
}

// innerConn is the connection that net/http reads and writes.
type innerConn struct{ *inner }

// Read implements [net.Conn].
func (i *innerConn) Read(p []byte) (int, error) { return i.pipe.read(p) }

// Write implements [net.Conn].
func (i *innerConn) Write(p []byte) (int, error) {
	in := i.inner
	if !in.beginWrite() {
		return 0, errGone
	}
	defer in.endWrite()
	if in.outBuf == nil {
		in.outBuf = outBuffers.Get().(*[]byte)
		in.out = (*in.outBuf)[:0]
	}
	defer in.releaseOut()
	for b := p; len(b) > 0; {
		n, err := in.consume(b)
		if err != nil {
			return 0, err
		}
		b = b[n:]
	}
	if in.dataLeft > 0 && len(in.out) < record {
		return len(p), nil // net/http is in the middle of a frame: more comes at once
	}
	if err := in.flush(); err != nil {
		return 0, err
	}
	return len(p), nil
}

// beginWrite begins a write of net/http's, and reports whether the side is still there. Until
// endWrite it stays: a stream has ended for it before its last frame is written.
func (in *inner) beginWrite() bool {
	in.c.flows.mu.Lock()
	defer in.c.flows.mu.Unlock()
	in.writing = !in.retired
	return in.writing
}

// endWrite ends a write, unless net/http has written half a frame.
func (in *inner) endWrite() {
	in.c.flows.mu.Lock()
	in.writing = len(in.out) > 0
	in.c.flows.mu.Unlock()
	in.retire()
}

// outBuffers are the buffers in which writes are collected.
var outBuffers = sync.Pool{New: func() any { b := make([]byte, 0, maxOut+4<<10); return &b }}

// releaseOut returns the buffer, once all of it was written.
func (in *inner) releaseOut() {
	if len(in.out) == 0 {
		outBuffers.Put(in.outBuf) // which never grew: what is longer was copied from it
		in.out, in.outBuf = nil, nil
	}
}

// consume handles some of the bytes that net/http writes, and returns how many.
func (in *inner) consume(b []byte) (int, error) {
	if in.dataLeft > 0 {
		n := min(in.dataLeft, len(b))
		return n, in.body(b[:n])
	}
	n := in.fill(b, frameHead)
	if len(in.partial) < frameHead {
		return n, nil
	}
	h := parseHead(in.partial)
	if h.kind == frameData {
		in.partial = in.partial[:0]
		in.data, in.dataLeft = h, h.length
		if h.length == 0 {
			in.out = appendHead(in.out, h)
			in.ended(h)
		}
		return n, nil
	}
	n += in.fill(b[n:], frameHead+h.length)
	if len(in.partial) < frameHead+h.length {
		return n, nil
	}
	err := in.frameDone(h)
	in.partial = in.partial[:0]
	return n, err
}

// fill lets partial grow to so many bytes, as far as b goes.
func (in *inner) fill(b []byte, to int) int {
	n := max(0, min(to-len(in.partial), len(b)))
	in.partial = append(in.partial, b[:n]...)
	return n
}

// frameDone handles a complete frame that is not DATA. The frames of a header block
// stay together (RFC 9113, 4.3).
func (in *inner) frameDone(h head) error {
	p := in.partial[frameHead:]
	switch h.kind {
	case frameSettings:
		if !h.has(flagAck) { // the host has sent SETTINGS itself, and the client has acknowledged those
			return nil
		}
		if !in.acked() {
			return nil
		}
	case frameWindowUpdate:
		if h.id == 0 && len(p) == 4 {
			n := in.c.received.grant(int64(binary.BigEndian.Uint32(p) & idMask))
			if n == 0 {
				return nil
			}
			binary.BigEndian.PutUint32(p, uint32(n))
		}
	case frameGoAway:
		in.c.flows.mu.Lock()
		in.leaves = true
		in.c.flows.mu.Unlock()
		binary.BigEndian.PutUint32(p, in.c.limitTo(binary.BigEndian.Uint32(p)&idMask))
		if len(p) >= 8 && code(binary.BigEndian.Uint32(p[4:])) != codeNo {
			in.c.setReason(Malformed)
		}
	case frameHeaders, frameContinuation:
		if n, ok := tableSize(p); ok && h.kind == frameHeaders {
			in.newTable, in.tableChanged = n, true
		}
		if !h.has(flagEndHeaders) {
			in.block = append(in.block, in.partial...)
			return nil
		}
	case frameRSTStream:
		if in.c.flows.wasReset(h.id) {
			binary.BigEndian.PutUint32(p, uint32(codeCancel))
		}
		if in.c.resets.Many(time.Now()) {
			err := in.c.flooded(nil, Resets)
			_ = in.c.host.Close() // GOAWAY has gone
			return err
		}
	}
	first := h
	if len(in.block) > 0 {
		first = parseHead(in.block)
		in.out = append(in.out, in.block...)
		in.block = nil
	}
	in.out = append(in.out, in.partial...)
	if first.kind == frameHeaders && !first.has(flagEndStream) {
		in.c.flows.progressed(first.id, 0)
	}
	in.ended(first)
	return nil
}

// acked notes an acknowledgement of SETTINGS, and reports whether the client is to get it: not
// the first one, which this side has sent itself.
func (in *inner) acked() bool {
	in.c.flows.mu.Lock()
	defer in.c.flows.mu.Unlock()
	in.acks--
	first := !in.greeted
	in.greeted = true
	return !first
}

// ended notes the end of a stream, if this frame of net/http's ends it. Where the client
// still sends a body, net/http's RST_STREAM follows (RFC 9113, 8.1).
func (in *inner) ended(h head) {
	switch {
	case h.kind == frameRSTStream:
		in.c.flows.cutOff(h.id)
	case (h.kind == frameHeaders || h.kind == frameData) && h.has(flagEndStream):
		in.c.flows.answered(h.id)
	}
}

// record is the DATA of a frame that fills a TLS record (RFC 8446, 5.1).
const record = 16<<10 - frameHead

// body writes a part of a DATA frame, in frames that the window and the client's largest
// frame allow. It waits for the window.
func (in *inner) body(b []byte) error {
	for len(b) > 0 {
		n := int64(min(len(b), int(min(in.c.frame.Load(), record))))
		if in.c.window.left() < n && len(in.out) > 0 {
			if err := in.flush(); err != nil { // before waiting for the window
				return err
			}
		}
		if n = in.c.window.wait(n, in.c.o.Stall); n == 0 {
			if !in.c.window.isClosed() {
				in.c.setReason(Stalled)
			}
			return errGone
		}
		h := head{length: int(n), kind: frameData, id: in.data.id}
		in.dataLeft -= int(n)
		if in.dataLeft == 0 {
			h.flags = in.data.flags & flagEndStream
		}
		in.out = append(appendHead(in.out, h), b[:n]...)
		in.c.flood.countUseful(int(n))
		if !h.has(flagEndStream) {
			in.c.flows.progressed(h.id, n)
		}
		if b = b[n:]; in.dataLeft == 0 {
			in.ended(h)
		}
		if len(in.out) >= maxOut {
			if err := in.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush writes the whole frames that were collected.
func (in *inner) flush() error {
	if len(in.out) == 0 {
		return nil
	}
	c := in.c
	c.lockToWrite()
	defer c.w.mu.unlock()
	err := c.writeLocked(in.out)
	if in.tableChanged && len(in.block) == 0 {
		c.table.Store(in.newTable) // not sooner: an answer of the host's must not come before it
		in.tableChanged = false
	}
	in.out = in.out[:0]
	return err
}

// Close implements [net.Conn]: net/http ends the connection, unless it was told to end.
func (i *innerConn) Close() error {
	i.pipe.close()
	if i.isRetired() {
		return nil
	}
	i.c.window.close()
	return i.c.host.Close()
}

// ConnectionState fills [http.Request.TLS].
func (i *innerConn) ConnectionState() tls.ConnectionState { return i.c.host.ConnectionState() }

// LocalAddr implements [net.Conn].
func (i *innerConn) LocalAddr() net.Addr { return i.c.host.LocalAddr() }

// RemoteAddr implements [net.Conn].
func (i *innerConn) RemoteAddr() net.Addr { return i.c.host.RemoteAddr() }

// SetDeadline implements [net.Conn]: the host's timeouts apply.
func (i *innerConn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements [net.Conn].
func (i *innerConn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements [net.Conn].
func (i *innerConn) SetWriteDeadline(time.Time) error { return nil }
