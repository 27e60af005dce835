package h2

import (
	"crypto/tls"
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// inner is net/http's side of a connection: what it reads are the frames that
// are for it, and what it writes goes to the client in whole frames.
type inner struct {
	c    *Conn
	in   *pipe
	last uint32 // the highest stream that was passed on; of the goroutine that reads

	frame atomic.Uint32 // the client's largest
	// table is the size of net/http's table that the client was told last. Where
	// the client's has become smaller, the next block must begin with the new size
	// (RFC 7541, 4.2), which only one of net/http's does.
	table atomic.Uint32

	mu   sync.Mutex
	open map[uint32]flow // streams that were passed on and have not ended
	part bool            // the client is in the middle of a frame or a header block

	// Of net/http's writes, of which there is one at a time.
	held  []byte // the beginning of a frame
	block []byte // the beginning of a header block, in whole frames
	data  head   // the DATA frame that is under way
	rest  int    // how much of it has yet to come
	acked bool   // the first SETTINGS, which the client knows to be
	out   []byte // what this write has to say
	// named is a size of the table that is in out, or in block, and nowhere else
	// yet; renamed says that there is one.
	named   uint32
	renamed bool
	lease   *[]byte // its buffer, borrowed
}

// cold returns net/http's side, which it starts if this is the first stream.
func (c *Conn) cold(t *turn) (*inner, error) {
	if in := c.inner.Load(); in != nil {
		return in, nil
	}
	if err := c.flush(t); err != nil { // our SETTINGS come before its first frame
		return nil, err
	}
	in := &inner{c: c, in: newPipe(), open: map[uint32]flow{}}
	in.frame.Store(c.settings.frame)
	in.table.Store(firstTable)
	first := c.settings.appendTo(nil)
	first = appendHead(first, head{kind: frameSettings, flags: flagAck})
	if grow := c.window.settle(); grow > 0 {
		first = appendWindowUpdate(first, 0, grow)
	}
	if err := in.in.write(first, false); err != nil {
		return nil, err
	}
	c.inner.Store(in)
	c.host.Inner(&innerConn{in})
	return in, nil
}

// end notes that a stream has ended, which the client says, and reports whether
// it was open.
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

// turned tells the host what is awaited after a read. It and ended do so under
// the lock, so that the last word is the true one.
func (c *Conn) turned(part bool) {
	wait := Request
	if in := c.inner.Load(); in != nil {
		in.mu.Lock()
		defer in.mu.Unlock()
		if in.part = part; len(in.open) > 0 {
			wait = Nothing
		}
	}
	if c.busy() {
		wait = Nothing
	}
	if part {
		wait = Rest
	}
	c.host.Turn(wait)
}

// innerConn is what net/http takes for its client.
type innerConn struct{ *inner }

// Read implements [net.Conn].
func (i *innerConn) Read(p []byte) (int, error) { return i.in.read(p) }

// Write implements [net.Conn].
func (i *innerConn) Write(p []byte) (int, error) {
	in := i.inner
	if in.lease == nil {
		in.lease = outs.Get().(*[]byte)
		in.out = (*in.lease)[:0]
	}
	defer in.giveBack()
	for b := p; len(b) > 0; {
		n, err := in.take(b)
		if err != nil {
			return 0, err
		}
		b = b[n:]
	}
	if in.rest > 0 && len(in.out) < record {
		return len(p), nil // net/http is in the middle of a frame: more comes at once
	}
	if err := in.flush(); err != nil {
		return 0, err
	}
	return len(p), nil
}

// outs are what net/http's writes are collected in.
var outs = sync.Pool{New: func() any { b := make([]byte, 0, maxOut+4<<10); return &b }}

// giveBack returns the buffer of a write that has gone.
func (in *inner) giveBack() {
	if len(in.out) == 0 {
		outs.Put(in.lease) // which never grew: what is longer was copied from it
		in.out, in.lease = nil, nil
	}
}

// take takes over some of what net/http writes.
func (in *inner) take(b []byte) (int, error) {
	if in.rest > 0 {
		n := min(in.rest, len(b))
		return n, in.body(b[:n])
	}
	n := in.fill(b, frameHead)
	if len(in.held) < frameHead {
		return n, nil
	}
	h := parseHead(in.held)
	if h.kind == frameData {
		in.held = in.held[:0]
		in.data, in.rest = h, h.length
		if h.length == 0 {
			in.out = appendHead(in.out, h)
			in.ended(h)
		}
		return n, nil
	}
	n += in.fill(b[n:], frameHead+h.length)
	if len(in.held) < frameHead+h.length {
		return n, nil
	}
	err := in.whole(h)
	in.held = in.held[:0]
	return n, err
}

// fill lets held grow to so many bytes, as far as b goes.
func (in *inner) fill(b []byte, to int) int {
	n := max(0, min(to-len(in.held), len(b)))
	in.held = append(in.held, b[:n]...)
	return n
}

// whole works off a complete frame, which is not DATA. The frames of a header
// block stay together (RFC 9113, 4.3).
func (in *inner) whole(h head) error {
	p := in.held[frameHead:]
	switch h.kind {
	case frameSettings:
		if !h.has(flagAck) { // the host has sent them, and the client acknowledged
			return nil
		}
		if !in.acked {
			in.acked = true
			return nil
		}
	case frameGoAway:
		binary.BigEndian.PutUint32(p, in.c.leave(binary.BigEndian.Uint32(p)&idMask))
		if len(p) >= 8 && code(binary.BigEndian.Uint32(p[4:])) != codeNo {
			in.c.blame(Malformed)
		}
	case frameHeaders, frameContinuation:
		if n, ok := tableSize(p); ok && h.kind == frameHeaders {
			in.named, in.renamed = n, true
		}
		if !h.has(flagEndHeaders) {
			in.block = append(in.block, in.held...)
			return nil
		}
	case frameRSTStream:
		if in.wasCut(h.id) {
			binary.BigEndian.PutUint32(p, uint32(codeCancel))
		}
		if in.c.resets.Many(time.Now()) {
			err := in.c.flooded(nil, Resets)
			_ = in.c.host.Close() // it is told
			return err
		}
	}
	first := h
	if len(in.block) > 0 {
		first = parseHead(in.block)
		in.out = append(in.out, in.block...)
		in.block = nil
	}
	in.out = append(in.out, in.held...)
	if first.kind == frameHeaders && !first.has(flagEndStream) {
		in.moved(first.id, 0)
	}
	in.ended(first)
	return nil
}

// ended looks whether a frame of net/http's ends its stream.
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
	if delete(in.open, h.id); len(in.open) == 0 && !in.part {
		in.c.host.Turn(Request)
	}
}

// record is the DATA of a frame that fills a TLS record (RFC 8446, 5.1).
const record = 16<<10 - frameHead

// body passes a part of a DATA frame on, as far as the window and the largest
// frame allow at a time.
func (in *inner) body(b []byte) error {
	for len(b) > 0 {
		n := int64(min(len(b), int(min(in.frame.Load(), record))))
		if in.c.window.left() < n && len(in.out) > 0 {
			if err := in.flush(); err != nil { // before it waits
				return err
			}
		}
		if n = in.c.window.wait(n, in.c.o.Stall); n == 0 {
			if !in.c.window.over() {
				in.c.blame(Stalled)
			}
			return errGone
		}
		h := head{length: int(n), kind: frameData, id: in.data.id}
		in.rest -= int(n)
		if in.rest == 0 {
			h.flags = in.data.flags & flagEndStream
		}
		in.out = append(appendHead(in.out, h), b[:n]...)
		in.c.flood.useful(int(n))
		if !h.has(flagEndStream) {
			in.moved(h.id, n)
		}
		if b = b[n:]; in.rest == 0 {
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

// flush writes what has come in whole frames.
func (in *inner) flush() error {
	if len(in.out) == 0 {
		return nil
	}
	in.c.wmu.lock()
	posted, err := in.c.putOut(in.out)
	if in.renamed && len(in.block) == 0 {
		in.table.Store(in.named) // not sooner: an answer of the host's must not come before it
		in.renamed = false
	}
	in.c.wmu.unlock()
	if in.out = in.out[:0]; posted {
		in.c.host.Posted()
	}
	return err
}

// Close implements [net.Conn]: net/http ends the connection.
func (i *innerConn) Close() error {
	i.in.close()
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
