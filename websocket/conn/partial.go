package conn

import (
	"sync"

	"millrace/websocket/frame"
)

// partialInput is input of which not all has come: of a header, a control frame or a
// message.
type partialInput struct {
	head     [frame.MaxHeader]byte // of a header
	nHead    uint8
	control  []byte       // of a control frame's payload
	message  []byte       // of a message; of a compressed one only if it is small
	packed   frame.Pieces // of a compressed message that is not small
	unparsed []byte       // not looked at, since the output before it waits
	taken    int          // of the budget, for the message
	stalled  int          // and for rest

	inflation *frame.Inflation // of the message, which has come whole
}

// Sizes of buffers that go back to a pool; larger ones are rare and are left
// to the garbage collector.
const (
	minPartial = 512
	maxPooled  = 128 << 10
)

// partialPool and scratchPool keep what busy connections use again and again.
var (
	partialPool = sync.Pool{New: func() any { return &partialInput{} }}
	scratchPool = sync.Pool{New: func() any { b := make([]byte, 0, 4096); return &b }}
)

func putScratch(b *[]byte) {
	if cap(*b) <= maxPooled {
		scratchPool.Put(b)
	}
}

func (c *Conn) partialInput() *partialInput {
	if c.partial == nil {
		c.partial = partialPool.Get().(*partialInput)
	}
	return c.partial
}

// take asks the budget for n more bytes.
func (h *partialInput) take(s *Settings, n int) bool {
	if !s.Budget.take(n) {
		return false
	}
	h.taken += n
	s.Meters.HeldBytes.Add(int64(n))
	return true
}

func (h *partialInput) give(s *Settings) {
	s.giveBack(h.taken)
	h.taken = 0
}

// giveBack gives n bytes back to the budget.
func (s *Settings) giveBack(n int) {
	if n > 0 {
		s.Budget.give(n)
		s.Meters.HeldBytes.Add(-int64(n))
	}
}

// stall keeps input that cannot be parsed yet. Nothing may be kept already.
func (h *partialInput) stall(s *Settings, b []byte) bool {
	if !h.take(s, len(b)) {
		return false
	}
	h.taken -= len(b)
	h.stalled = len(b)
	h.unparsed = append([]byte(nil), b...)
	return true
}

// resume returns what stall has kept.
func (h *partialInput) resume(s *Settings) []byte {
	b := h.unparsed
	s.giveBack(h.stalled)
	h.unparsed, h.stalled = nil, 0
	return b
}

// keep adds the next part of a message. Memory is taken for what has come, not for
// what a header announces.
func (h *partialInput) keep(s *Settings, p []byte) bool {
	if need := len(h.message) + len(p); need > cap(h.message) {
		size := max(minPartial, 2*cap(h.message), need)
		if size > 64<<10 {
			size = max(need, min(size, need+need/4))
		}
		if !h.take(s, size-cap(h.message)) {
			return false
		}
		h.message = append(make([]byte, 0, size), h.message...)
	}
	h.message = append(h.message, p...)
	return true
}

// pack adds the next part of a compressed message.
func (h *partialInput) pack(s *Settings, p []byte) bool {
	if h.packed.Size() == 0 && len(h.message)+len(p) <= directIn {
		return h.keep(s, p)
	}
	return h.appendPacked(s, p)
}

// appendPacked adds p to packed, behind what was in message.
func (h *partialInput) appendPacked(s *Settings, p []byte) bool {
	take := func(n int) bool { return h.take(s, n) }
	if h.message != nil {
		if !h.packed.Add(h.message, take) {
			return false
		}
		h.taken -= cap(h.message)
		s.giveBack(cap(h.message))
		h.message = nil
	}
	return h.packed.Add(p, take)
}

// dropPacked is called when a message was decompressed.
func (h *partialInput) dropPacked(s *Settings) {
	n := h.packed.Free()
	h.taken -= n
	s.giveBack(n)
}

// dropMessage is called when a message was given to the App.
func (h *partialInput) dropMessage(s *Settings) {
	h.give(s)
	h.message = nil
}

// releaseEmptyInput gives c.partial back if it is empty.
func (c *Conn) releaseEmptyInput() {
	if h := c.partial; h != nil && h.nHead == 0 && len(h.control) == 0 && h.message == nil && h.packed.Size() == 0 && h.unparsed == nil {
		c.releaseInput()
	}
}

// releaseInput gives c.partial back, with all that is in it.
func (c *Conn) releaseInput() {
	h := c.partial
	if h == nil {
		return
	}
	c.partial = nil
	if h.inflation != nil {
		h.inflation.Stop()
		h.inflation = nil
		if c.is(inflating) {
			c.cut(inflating)
			c.loop.readOn(c)
		}
	}
	h.packed.Free()
	h.give(c.set)
	h.resume(c.set)
	h.nHead, h.message, h.unparsed, h.control = 0, nil, nil, h.control[:0]
	partialPool.Put(h)
}
