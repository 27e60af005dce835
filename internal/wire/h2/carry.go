package h2

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2/hpack"
)

// A host may take a request and answer it later, while the connection goes on: see
// [Host.Forward].

// maxForwarded is how many requests of a connection the host may have at a time,
// including those whose answers wait for the client's window.
const maxForwarded = 100

// forwarded is a stream whose request the host has taken.
type forwarded struct {
	id     uint32
	window int64 // bytes that may be sent
}

// pendingReply is an answer that could not be sent completely: it waits for the window,
// or for the client to read.
type pendingReply struct {
	forwarded
	head []byte // HEADERS frames; nil: they were sent
	body []byte
}

// bufferedBytes counts the bytes of pending replies.
type bufferedBytes struct {
	mu         sync.Mutex
	bytes      int64
	progressAt int64 // when a reply has last made progress, in Unix nanoseconds
	closed     bool  // the connection is closed
}

// forward lets the host take a new stream, if it can.
func (c *Conn) forward(t *task, id uint32, priority []byte) (taken bool) {
	if c.openStreams() >= maxForwarded || !c.mayAnswer(id, priority) {
		return false
	}
	if slices.ContainsFunc(t.fields, func(f hpack.HeaderField) bool { return f.Name == refused }) {
		return false // net/http does not get the field
	}
	if !c.run.greeted && c.flush(t) != nil { // a goroutine of the host's may answer before Run writes again
		return false // the next write fails, too
	}
	c.run.forwarded = append(c.run.forwarded, forwarded{id, int64(c.run.settings.window)})
	if taken = c.host.Forward(id, t.fields); !taken {
		c.run.forwarded = slices.DeleteFunc(c.run.forwarded, func(s forwarded) bool { return s.id == id })
	}
	return taken
}

// openStreams is how many streams are not answered completely.
func (c *Conn) openStreams() int { return len(c.run.forwarded) + len(c.run.pending) + c.flows.count() }

func (c *Conn) forwardedAt(id uint32) int {
	return slices.IndexFunc(c.run.forwarded, func(s forwarded) bool { return s.id == id })
}

func (c *Conn) pendingAt(id uint32) int {
	return slices.IndexFunc(c.run.pending, func(a pendingReply) bool { return a.id == id })
}

// Reply answers a request that the host has taken: block is a finished header
// block, as for [AppendHeaders], but of any length. The caller may reuse block and body.
// What the window allows is sent with the next Flush or Run, the rest when the client
// grants more. Call it between calls of Run.
func (c *Conn) Reply(id uint32, block, body []byte) error {
	i := c.forwardedAt(id)
	if i < 0 {
		return nil
	}
	a := pendingReply{forwarded: c.run.forwarded[i], body: body}
	c.run.forwarded = slices.Delete(c.run.forwarded, i, i+1)
	c.run.answered.add(id)
	c.lastAnswered.Store(max(id, c.lastAnswered.Load()))
	block = c.withTable(block)
	if len(c.run.pending) > 0 || c.paused() {
		a.head = appendHeaderFrames(nil, id, block, len(body) == 0, int(c.run.settings.frame))
	} else {
		c.run.out = appendHeaderFrames(c.outBuffer(), id, block, len(body) == 0, int(c.run.settings.frame))
		if c.sendPart(&a) {
			return c.flushLargeOut()
		}
	}
	a.body = bytes.Clone(a.body)
	c.run.pending = append(c.run.pending, a)
	c.countBuffered(len(a.head) + len(a.body))
	return c.flushLargeOut()
}

// withTable is a header block that begins with the size of the client's table if it has become
// smaller (RFC 7541, 4.2).
func (c *Conn) withTable(block []byte) []byte {
	table := c.tableMost.Load()
	if table >= firstTable {
		return block
	}
	return append(appendInt(nil, 0x20, 5, uint64(table)), block...)
}

// sendPart appends as much of an answer to out as the window allows, and reports whether
// that was all.
func (c *Conn) sendPart(a *pendingReply) bool {
	if a.head != nil {
		c.run.out, a.head = append(c.outBuffer(), a.head...), nil
	}
	n := int(max(0, min(int64(len(a.body)), a.window, c.window.left())))
	if n > 0 && c.window.take(int64(n)) {
		c.run.out = appendPart(c.outBuffer(), a.id, a.body[:n], int(min(c.run.settings.frame, record)), n == len(a.body))
		a.window, a.body = a.window-int64(n), a.body[n:]
		c.flood.countUseful(n)
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

// outBuffer is where the host's answers are collected until they are written.
func (c *Conn) outBuffer() []byte {
	if c.run.outBuf == nil {
		c.run.outBuf = outBuffers.Get().(*[]byte)
		c.run.out = (*c.run.outBuf)[:0]
	}
	return c.run.out
}

func (c *Conn) flushLargeOut() error {
	if len(c.run.out) < maxOut {
		return nil
	}
	return c.flushOut()
}

// flushOut writes the collected answers of the host.
func (c *Conn) flushOut() error {
	if c.run.outBuf == nil {
		return nil
	}
	var err error
	if len(c.run.out) > 0 {
		c.w.mu.lock()
		_, err = c.host.Write(c.run.out)
		c.w.mu.unlock()
	}
	outBuffers.Put(c.run.outBuf) // which never grew: what is longer was copied from it
	c.run.out, c.run.outBuf = nil, nil
	return err
}

// Flush writes what Reply has collected. Call it between calls of Run.
func (c *Conn) Flush() error {
	if err := c.flushOut(); err != nil {
		return err
	}
	c.ReportWait()
	return nil
}

// sendPending goes on with the pending replies.
func (c *Conn) sendPending() error {
	for i := 0; i < len(c.run.pending) && !c.paused(); {
		a := &c.run.pending[i]
		before := len(a.head) + len(a.body)
		if c.sendPart(a) {
			c.run.pending = slices.Delete(c.run.pending, i, i+1)
			c.countBuffered(-before)
		} else {
			if now := len(a.head) + len(a.body); now < before {
				c.countBuffered(now - before)
			}
			i++
		}
		if err := c.flushLargeOut(); err != nil {
			return err
		}
	}
	return nil
}

// countBuffered adds to the bytes of pending replies.
func (c *Conn) countBuffered(n int) {
	k := &c.buffered
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	if n < 0 || k.bytes == 0 {
		k.progressAt = time.Now().UnixNano()
	}
	k.bytes += int64(n)
	c.host.Buffered(int64(n))
}

// Release says that the connection is closed: its pending replies are not counted any
// more, and net/http's side ends.
func (c *Conn) Release() {
	c.stop()
	k := &c.buffered
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed = true; k.bytes > 0 {
		c.host.Buffered(-k.bytes)
		k.bytes = 0
	}
}

// Stuck reports whether replies are pending and none has made progress since the time
// given. The host should close the connection then.
func (c *Conn) Stuck(since time.Time) bool {
	k := &c.buffered
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.bytes == 0 || k.progressAt > since.UnixNano() {
		return false
	}
	c.setReason(Stalled)
	return true
}

// cancel ends a stream that the host has taken, and reports whether it was one.
func (c *Conn) cancel(id uint32) bool {
	if i := c.forwardedAt(id); i >= 0 {
		c.run.forwarded = slices.Delete(c.run.forwarded, i, i+1)
		c.run.answered.add(id)
		c.host.Cancel(id)
		return true
	}
	i := c.pendingAt(id)
	if i < 0 {
		return false
	}
	c.countBuffered(-len(c.run.pending[i].head) - len(c.run.pending[i].body))
	c.run.pending = slices.Delete(c.run.pending, i, i+1)
	return true
}

// growForwarded adds to the window of a stream that the host has taken, and reports
// whether it is one.
func (c *Conn) growForwarded(t *task, id uint32, n int64) (was bool, err error) {
	var left *int64
	if i := c.forwardedAt(id); i >= 0 {
		left = &c.run.forwarded[i].window
	} else if i := c.pendingAt(id); i >= 0 {
		left = &c.run.pending[i].window
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
		return true, c.sendPending()
	}
	c.cancel(id)
	return true, c.reset(t, id, why)
}

// shiftForwarded adds to the windows of all of them (RFC 9113, 6.9.2). It reports false
// where one becomes too large.
func (c *Conn) shiftForwarded(by int64) bool {
	for i := range c.run.forwarded {
		if c.run.forwarded[i].window += by; c.run.forwarded[i].window > maxWindow {
			return false
		}
	}
	for i := range c.run.pending {
		if c.run.pending[i].window += by; c.run.pending[i].window > maxWindow {
			return false
		}
	}
	return true
}
