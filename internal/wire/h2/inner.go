package h2

import (
	"crypto/tls"
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// inner is net/http's side of a connection. Net/http reads the frames that are for it,
// and what it writes goes to the client in whole frames.
type inner struct {
	c          *Conn
	pipe       *pipe
	lastPassed uint32 // the highest stream that net/http got; of the goroutine that calls Run

	frame atomic.Uint32 // the client's largest
	// table is the size of its HPACK table that net/http has sent last. Where the
	// client's setting is smaller, the next block must begin with the new size (RFC
	// 7541, 4.2), and only net/http's blocks do: the host must not answer before.
	table atomic.Uint32

	mu       sync.Mutex
	open     map[uint32]flow // streams that net/http got and that have not ended
	midFrame bool            // the client is in the middle of a frame or a header block

	// Of net/http's writes, which come one at a time.
	partial       []byte // the beginning of a frame
	block         []byte // the beginning of a header block, in whole frames
	data          head   // the DATA frame whose payload is coming
	dataLeft      int    // bytes of its payload that have yet to come
	settingsAcked bool   // net/http has acknowledged the first SETTINGS, which this side has made
	out           []byte // whole frames to be written
	// newTable is a size of the HPACK table that is in out or block and was not
	// written yet, where tableChanged is set.
	newTable     uint32
	tableChanged bool
	outBuf       *[]byte // the buffer of out, from a pool
}

// ensureInner returns net/http's side. The first call starts it.
func (c *Conn) ensureInner(t *task) (*inner, error) {
	if in := c.inner.Load(); in != nil {
		return in, nil
	}
	if err := c.flush(t); err != nil { // our SETTINGS come before its first frame
		return nil, err
	}
	in := &inner{c: c, pipe: newPipe(), open: map[uint32]flow{}}
	in.frame.Store(c.run.settings.frame)
	in.table.Store(firstTable)
	first := c.run.settings.appendTo(nil)
	first = appendHead(first, head{kind: frameSettings, flags: flagAck})
	if grow := c.window.settle(); grow > 0 {
		first = appendWindowUpdate(first, 0, grow)
	}
	if err := in.pipe.write(first, false); err != nil {
		return nil, err
	}
	c.inner.Store(in)
	c.host.Inner(&innerConn{in})
	return in, nil
}

// end notes that the client has reset a stream, and reports whether it was open.
func (in *inner) end(id uint32) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	_, was := in.open[id]
	if was {
		delete(in.open, id)
		in.c.o.Budget.Add(-1)
	}
	return was
}

// endAll notes that the connection has ended.
func (in *inner) endAll() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.c.o.Budget.Add(-len(in.open))
	clear(in.open)
}

// reportWait tells the host what the connection waits for after a read. It and ended
// call the host under the lock, so that the last call has the current state.
func (c *Conn) reportWait(part bool) {
	wait := WaitRequest
	if in := c.inner.Load(); in != nil {
		in.mu.Lock()
		defer in.mu.Unlock()
		if in.midFrame = part; len(in.open) > 0 {
			wait = WaitNothing
		}
	}
	if c.busy() {
		wait = WaitNothing
	}
	if part {
		wait = WaitFrame
	}
	c.host.Awaits(wait)
}

// innerConn is the connection that net/http reads and writes.
type innerConn struct{ *inner }

// Read implements [net.Conn].
func (i *innerConn) Read(p []byte) (int, error) { return i.pipe.read(p) }

// Write implements [net.Conn].
func (i *innerConn) Write(p []byte) (int, error) {
	in := i.inner
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
		if !in.settingsAcked {
			in.settingsAcked = true
			return nil
		}
	case frameGoAway:
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
		if in.wasReset(h.id) {
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
		in.progressed(first.id, 0)
	}
	in.ended(first)
	return nil
}

// ended notes the end of a stream, if this frame of net/http's ends it.
func (in *inner) ended(h head) {
	over := h.kind == frameRSTStream || (h.kind == frameHeaders || h.kind == frameData) && h.has(flagEndStream)
	if !over {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if _, was := in.open[h.id]; !was {
		return
	}
	in.c.o.Budget.Add(-1)
	if delete(in.open, h.id); len(in.open) == 0 && !in.midFrame {
		in.c.host.Awaits(WaitRequest)
	}
}

// record is the DATA of a frame that fills a TLS record (RFC 8446, 5.1).
const record = 16<<10 - frameHead

// body writes a part of a DATA frame, in frames that the window and the client's largest
// frame allow. It waits for the window.
func (in *inner) body(b []byte) error {
	for len(b) > 0 {
		n := int64(min(len(b), int(min(in.frame.Load(), record))))
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
			in.progressed(h.id, n)
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
	in.c.w.mu.lock()
	posted, err := in.c.writeOrPost(in.out)
	if in.tableChanged && len(in.block) == 0 {
		in.table.Store(in.newTable) // not sooner: an answer of the host's must not come before it
		in.tableChanged = false
	}
	in.c.w.mu.unlock()
	if in.out = in.out[:0]; posted {
		in.c.host.Wake()
	}
	return err
}

// Close implements [net.Conn]: net/http ends the connection.
func (i *innerConn) Close() error {
	i.pipe.close()
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
