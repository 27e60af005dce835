package h2

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http2/hpack"
)

// A host may take a request and answer it later, while the connection goes on: see
// [Host.Carry]. Net/http never hears of such a stream, unless the host gives it up:
// then net/http starts, and gets all of them at once, so that their numbers are in
// order (RFC 9113, 5.1.1). From then on it gets all that the host does not answer
// at once, until the connection rests (rest.go).

// maxCarried is how many requests of a connection the host may have at a time,
// those included whose answers wait for the client's window.
const maxCarried = 100

// Mark is the field that a request has which the host had taken, when it goes to
// net/http; its value is the stream's number. Clients cannot send it.
const Mark = "millrace-passage"

func markOf(id uint32) hpack.HeaderField {
	return hpack.HeaderField{Name: Mark, Value: strconv.FormatUint(uint64(id), 10)}
}

// carried is a stream whose request the host has taken.
type carried struct {
	id   uint32
	left int64 // of its window
}

// late is an answer of which something has to wait: for the window, or for what
// the client has not read yet.
type late struct {
	carried
	head []byte // frames; nil: they have gone
	body []byte
}

// kept counts what is held of late answers.
type kept struct {
	mu    sync.Mutex
	bytes int64
	moved int64 // when one has last moved on, in Unix nanoseconds
	gone  bool  // the connection is closed
}

// carry has the host take a new stream, if it can.
func (c *Conn) carry(t *turn, id uint32, priority []byte) (taken, marked bool) {
	announced := uint32(firstTable)
	if in := c.inner.Load(); in != nil {
		if !c.resting.Load() {
			return false, false
		}
		announced = in.table.Load()
	}
	if len(c.carried)+len(c.late) >= maxCarried || c.list.size > c.list.most || announced > c.settings.table {
		return false, false
	}
	if priority != nil && binary.BigEndian.Uint32(priority)&idMask == id {
		return false, false // as in answer
	}
	if taken, marked = c.host.Carry(id, t.fields); taken {
		c.carried = append(c.carried, carried{id, int64(c.settings.window)})
	}
	return taken, marked
}

// busy reports whether a request that the host has taken is not answered.
func (c *Conn) busy() bool { return len(c.carried)+len(c.late) > 0 }

func (c *Conn) carriedAt(id uint32) int {
	return slices.IndexFunc(c.carried, func(s carried) bool { return s.id == id })
}

func (c *Conn) lateAt(id uint32) int {
	return slices.IndexFunc(c.late, func(a late) bool { return a.id == id })
}

// Reply answers a request that the host has taken: block is a finished header
// block, as for [AppendHeaders], but of any length. Both may be used again after
// that. What can be sent is sent with the next Flush, or Run; the rest when the
// client takes it. It is for who calls Run, between its calls.
func (c *Conn) Reply(id uint32, block, body []byte) error {
	i := c.carriedAt(id)
	if i < 0 {
		return nil
	}
	a := late{carried: c.carried[i], body: body}
	c.carried = slices.Delete(c.carried, i, i+1)
	c.hot.add(id)
	c.warm.Store(max(id, c.warm.Load()))
	if table := c.settings.table; table < firstTable { // it has become smaller (RFC 7541, 4.2)
		block = append(appendInt(nil, 0x20, 5, uint64(table)), block...)
	}
	if len(c.late) > 0 || c.paused() {
		a.head = appendHeaderFrames(nil, id, block, len(body) == 0, int(c.settings.frame))
	} else {
		c.out = appendHeaderFrames(c.room(), id, block, len(body) == 0, int(c.settings.frame))
		if c.push(&a) {
			return c.spillOut()
		}
	}
	a.body = bytes.Clone(a.body)
	c.late = append(c.late, a)
	c.keep(len(a.head) + len(a.body))
	return c.spillOut()
}

// push puts of an answer what the window has room for into out, and reports whether
// that was all.
func (c *Conn) push(a *late) bool {
	if a.head != nil {
		c.out, a.head = append(c.room(), a.head...), nil
	}
	n := int(max(0, min(int64(len(a.body)), a.left, c.window.left())))
	if n > 0 && c.window.take(int64(n)) {
		c.out = appendPart(c.room(), a.id, a.body[:n], int(min(c.settings.frame, record)), n == len(a.body))
		a.left, a.body = a.left-int64(n), a.body[n:]
		c.flood.useful(n)
	}
	return len(a.body) == 0
}

// appendPart is AppendData for a part of a body, which is not empty.
func appendPart(b []byte, id uint32, part []byte, most int, end bool) []byte {
	for len(part) > 0 {
		h := head{length: min(len(part), most), kind: frameData, id: id}
		if end && h.length == len(part) {
			h.flags = flagEndStream
		}
		b = append(appendHead(b, h), part[:h.length]...)
		part = part[h.length:]
	}
	return b
}

// appendHeaderFrames is AppendHeaders for a block that may need several frames.
func appendHeaderFrames(b []byte, id uint32, block []byte, end bool, most int) []byte {
	h := head{kind: frameHeaders, id: id}
	if end {
		h.flags = flagEndStream
	}
	for {
		if h.length = min(len(block), most); h.length == len(block) {
			h.flags |= flagEndHeaders
		}
		b = append(appendHead(b, h), block[:h.length]...)
		if block = block[h.length:]; len(block) == 0 {
			return b
		}
		h = head{kind: frameContinuation, id: id}
	}
}

// room is where answers of the host are collected until they are written.
func (c *Conn) room() []byte {
	if c.lease == nil {
		c.lease = outs.Get().(*[]byte)
		c.out = (*c.lease)[:0]
	}
	return c.out
}

func (c *Conn) spillOut() error {
	if len(c.out) < maxOut {
		return nil
	}
	return c.flushOut()
}

// flushOut writes answers of the host.
func (c *Conn) flushOut() error {
	if c.lease == nil {
		return nil
	}
	var err error
	if len(c.out) > 0 {
		c.wmu.lock()
		_, err = c.host.Write(c.out)
		c.wmu.unlock()
	}
	outs.Put(c.lease) // which never grew: what is longer was copied from it
	c.out, c.lease = nil, nil
	return err
}

// Flush writes what Reply has to say. It returns [io.EOF] when the connection has
// nothing more to do. It is for who calls Run, between its calls.
func (c *Conn) Flush() error {
	if err := c.flushOut(); err != nil {
		return err
	}
	if c.leaving && !c.busy() {
		return io.EOF
	}
	c.turned(len(c.partial) > 0 || c.block.open)
	return nil
}

// sendLate goes on with late answers.
func (c *Conn) sendLate() error {
	for i := 0; i < len(c.late) && !c.paused(); {
		a := &c.late[i]
		before := len(a.head) + len(a.body)
		if c.push(a) {
			c.late = slices.Delete(c.late, i, i+1)
			c.keep(-before)
		} else {
			if now := len(a.head) + len(a.body); now < before {
				c.keep(now - before)
			}
			i++
		}
		if err := c.spillOut(); err != nil {
			return err
		}
	}
	return nil
}

// keep counts what is held.
func (c *Conn) keep(n int) {
	k := &c.kept
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone {
		return
	}
	if n < 0 || k.bytes == 0 {
		k.moved = time.Now().UnixNano()
	}
	k.bytes += int64(n)
	c.host.Kept(int64(n))
}

// Forget says that the connection is closed: nothing is held for it any more, and
// net/http's side ends.
func (c *Conn) Forget() {
	c.stop()
	k := &c.kept
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone = true; k.bytes > 0 {
		c.host.Kept(-k.bytes)
		k.bytes = 0
	}
}

// Stuck reports whether something is held, and nothing of that has moved on since
// then. Its host should end the connection, if it does not wait for its client
// to read.
func (c *Conn) Stuck(since time.Time) bool {
	k := &c.kept
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.bytes == 0 || k.moved > since.UnixNano() {
		return false
	}
	c.blame(Stalled)
	return true
}

// dropped ends a stream that the host has taken, and reports whether it was one.
func (c *Conn) dropped(id uint32) bool {
	if i := c.carriedAt(id); i >= 0 {
		c.carried = slices.Delete(c.carried, i, i+1)
		c.hot.add(id)
		c.host.Drop(id)
		return true
	}
	i := c.lateAt(id)
	if i < 0 {
		return false
	}
	c.keep(-len(c.late[i].head) - len(c.late[i].body))
	c.late = slices.Delete(c.late, i, i+1)
	return true
}

// widenCarried adds to the window of a stream that the host has taken, and reports
// whether it is one.
func (c *Conn) widenCarried(t *turn, id uint32, n int64) (was bool, err error) {
	var left *int64
	if i := c.carriedAt(id); i >= 0 {
		left = &c.carried[i].left
	} else if i := c.lateAt(id); i >= 0 {
		left = &c.late[i].left
	} else {
		return false, nil
	}
	var why code
	switch {
	case n == 0:
		why = codeProtocol
	case *left+n > maxWindow:
		why = codeFlowControl
	default:
		*left += n
		return true, c.sendLate()
	}
	c.dropped(id)
	if c.resets.Many(time.Now()) {
		return true, c.flooded(t, Resets)
	}
	t.out = appendReset(t.out, id, why)
	return true, nil
}

// shiftCarried adds to the windows of all of them (RFC 9113, 6.9.2). It reports
// false where one becomes larger than it may be.
func (c *Conn) shiftCarried(by int64) bool {
	for i := range c.carried {
		if c.carried[i].left += by; c.carried[i].left > maxWindow {
			return false
		}
	}
	for i := range c.late {
		if c.late[i].left += by; c.late[i].left > maxWindow {
			return false
		}
	}
	return true
}

// Yield has net/http start, and go on with all that the host has taken. It is for
// who calls Run, between its calls.
func (c *Conn) Yield() error {
	t := turns.Get().(*turn)
	defer t.putBack()
	in, err := c.cold(t)
	if err != nil {
		return err
	}
	c.rouse(t, in)
	return c.deliver(t)
}

// surrender passes on what the host has taken.
func (c *Conn) surrender(t *turn, in *inner) {
	if len(c.carried) == 0 {
		return
	}
	c.host.Surrender(func(id uint32, fields []hpack.HeaderField) {
		i := c.carriedAt(id)
		if i < 0 {
			return
		}
		left := c.carried[i].left
		in.last = id
		in.begin(id, left, false)
		t.pass = appendBlock(t.pass, id, flagEndStream, nil, fields, markOf(id))
		if more := left - int64(c.settings.window); more > 0 {
			t.pass = appendWindowUpdate(t.pass, id, more)
		}
	})
	c.carried = nil
}
