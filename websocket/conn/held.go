package conn

import (
	"sync"

	"millrace/websocket/frame"
)

// held is what has come by halves.
type held struct {
	head    [frame.MaxHeader]byte // of a header
	nHead   uint8
	control []byte       // of a control frame's payload
	message []byte       // of a message; of a compressed one only if it is small
	packed  frame.Pieces // of a compressed message that is not small
	rest    []byte       // not looked at, since the output before it waits
	taken   int          // of the budget, for the message
	stalled int          // and for rest

	inflation *frame.Inflation // of the message, which has come whole
}

// Sizes of buffers that go back to a pool; larger ones are rare and are left
// to the garbage collector.
const (
	minHeld   = 512
	maxPooled = 128 << 10
)

// heldPool and scratchPool keep what busy connections use again and again.
var (
	heldPool    = sync.Pool{New: func() any { return &held{} }}
	scratchPool = sync.Pool{New: func() any { b := make([]byte, 0, 4096); return &b }}
)

func putScratch(b *[]byte) {
	if cap(*b) <= maxPooled {
		scratchPool.Put(b)
	}
}

func (c *Conn) hold() *held {
	if c.held == nil {
		c.held = heldPool.Get().(*held)
	}
	return c.held
}

// take asks the budget for n more bytes.
func (h *held) take(s *Settings, n int) bool {
	if !s.Budget.take(n) {
		return false
	}
	h.taken += n
	s.Meters.HeldBytes.Add(int64(n))
	return true
}

func (h *held) give(s *Settings) {
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

// stall keeps input that is not to be looked at yet. There is none.
func (h *held) stall(s *Settings, b []byte) bool {
	if !h.take(s, len(b)) {
		return false
	}
	h.taken -= len(b)
	h.stalled = len(b)
	h.rest = append([]byte(nil), b...)
	return true
}

// resume returns what stall has kept.
func (h *held) resume(s *Settings) []byte {
	b := h.rest
	s.giveBack(h.stalled)
	h.rest, h.stalled = nil, 0
	return b
}

// keep adds the next part of a message. What is announced but has not come
// costs nothing.
func (h *held) keep(s *Settings, p []byte) bool {
	if need := len(h.message) + len(p); need > cap(h.message) {
		size := max(minHeld, 2*cap(h.message), need)
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
func (h *held) pack(s *Settings, p []byte) bool {
	if h.packed.Size() == 0 && len(h.message)+len(p) <= directIn {
		return h.keep(s, p)
	}
	return h.spill(s, p)
}

// spill adds p to packed, behind what was in message.
func (h *held) spill(s *Settings, p []byte) bool {
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
func (h *held) dropPacked(s *Settings) {
	n := h.packed.Free()
	h.taken -= n
	s.giveBack(n)
}

// dropMessage is called when a message was given to the App.
func (h *held) dropMessage(s *Settings) {
	h.give(s)
	h.message = nil
}

// tidy gives held back when nothing is in it.
func (c *Conn) tidy() {
	if h := c.held; h != nil && h.nHead == 0 && len(h.control) == 0 && h.message == nil && h.packed.Size() == 0 && h.rest == nil {
		c.letGo()
	}
}

// letGo forgets all that is held.
func (c *Conn) letGo() {
	h := c.held
	if h == nil {
		return
	}
	c.held = nil
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
	h.nHead, h.message, h.rest, h.control = 0, nil, nil, h.control[:0]
	heldPool.Put(h)
}
