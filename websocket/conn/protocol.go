package conn

import (
	"strconv"

	"millrace/websocket/frame"
)

// stallAt is how many bytes of output may wait before no more input is looked
// at: more than any turn needs, and little enough for ten thousand of them.
const stallAt = 64 << 10

const (
	// maxSlight is how many frames that bring nearly nothing a peer may send
	// within a second: control frames, and fragments of fewer than
	// smallFragment bytes, empty ones too. Each costs as much as one that
	// brings a message, and no client has a reason for so many.
	maxSlight     = 10_000
	smallFragment = 16
)

// fault is what is wrong with what a peer sends, by its place in faults; 0 is
// nothing.
type fault uint8

const (
	fine fault = iota
	unmasked
	compressedFrame
	unfinished
	noMessage
	tooBig
	notUTF8
	overBudget
	notDeflate
	noContent
	tooMany
)

// faults are what the peer is told.
var faults = [...]frame.Error{
	fine:            {},
	unmasked:        {Code: frame.ProtocolError, Reason: "frames of a client must be masked"},
	compressedFrame: {Code: frame.ProtocolError, Reason: "the frame may not be compressed"},
	unfinished:      {Code: frame.ProtocolError, Reason: "a message began within another"},
	noMessage:       {Code: frame.ProtocolError, Reason: "a continuation of no message"},
	tooBig:          {Code: frame.TooBig, Reason: "the message is too big"},
	notUTF8:         {Code: frame.InvalidPayload, Reason: "the text is not UTF-8"},
	overBudget:      {Code: frame.TryAgainLater, Reason: "too much is held for unfinished messages"},
	notDeflate:      {Code: frame.InvalidPayload, Reason: "the message cannot be inflated"},
	noContent:       {Code: frame.PolicyViolation, Reason: "the message is compressed into blocks without content"},
	tooMany:         {Code: frame.PolicyViolation, Reason: "too many frames with little in them"},
}

// consume parses what was read. Bytes of a header that is not whole are kept, and put
// before the next ones.
func (c *Conn) consume(b []byte) {
	for len(b) > 0 && !c.is(failed|closeSeen|dead) {
		if c.is(inFrame) {
			n := int(min(c.left, int64(len(b))))
			if !c.payload(b[:n]) {
				return
			}
			b = b[n:]
		} else {
			h, n, err := frame.Parse(b)
			switch {
			case err != nil:
				c.failWith(err)
				return
			case n == 0:
				k := c.partialInput()
				k.nHead = uint8(copy(k.head[:], b))
				return
			}
			b = b[n:]
			if f := c.begin(h); f != fine {
				c.fail(&faults[f])
				return
			}
			if h.Length == 0 && !c.payload(nil) {
				return
			}
		}
		if (c.waiting() > stallAt || c.is(inflating)) && len(b) > 0 {
			c.stall(b)
			return
		}
	}
}

func (c *Conn) failWith(err error) {
	if e, ok := err.(*frame.Error); ok { //nolint:errorlint // package frame returns them as they are
		c.fail(e)
		return
	}
	c.fail(&faults[notDeflate])
}

// stall keeps input for when the output has gone.
func (c *Conn) stall(b []byte) {
	if !c.partialInput().stall(c.set, b) {
		c.fail(&faults[overBudget])
	}
}

// resume parses what stall has kept.
func (c *Conn) resume() {
	if c.partial == nil || c.partial.unparsed == nil || c.is(inflating) {
		return
	}
	c.consume(c.partial.resume(c.set))
	c.releaseEmptyInput()
}

// begin handles a frame's header (RFC 6455, 5.2, 5.4 and 5.5).
func (c *Conn) begin(h frame.Header) fault {
	if !h.Masked {
		return unmasked
	}
	if whole := h.Fin && h.Op != frame.Continuation; h.Op.IsControl() || h.Length < smallFragment && !whole {
		if c.slight++; c.slight > maxSlight {
			return tooMany
		}
	}
	c.now, c.mask, c.left = h.Op, h.Mask, h.Length
	c.put(inFrame)
	if h.Op.IsControl() {
		return fine
	}
	if h.Op == frame.Continuation {
		if !c.is(inMessage) {
			return noMessage
		}
		if h.Rsv1 {
			return compressedFrame // RFC 7692, 6.1: only the first frame has the bit
		}
	} else {
		if c.is(inMessage) {
			return unfinished
		}
		if h.Rsv1 && !c.params.On {
			return compressedFrame
		}
		c.op, c.size = h.Op, 0
		c.utf8 = frame.UTF8{}
		c.cut(packed | started)
		c.put(inMessage)
		if h.Rsv1 {
			c.put(packed)
		}
	}
	c.cut(lastFrame)
	if h.Fin {
		c.put(lastFrame)
	}
	limit := c.set.MaxMessage
	if c.is(packed) {
		limit = wireLimit(c.set.heldLimit())
	}
	if limit > 0 && h.Length > limit-c.size {
		return tooBig
	}
	c.size += h.Length
	return fine
}

// wireLimit is the most bytes that a message of n bytes can have when it is
// compressed. Data that cannot be compressed becomes longer: by five bytes for each
// stored block, which may be small, or by an eighth with the fixed codes. It is the
// bound that zlib has for all of its settings (deflateBound).
func wireLimit(n int64) int64 { return n + n/8 + n/64 + 64 }

// payload handles the next part of a frame's payload, at most what is left of it. It
// reports false when the connection has failed.
func (c *Conn) payload(p []byte) bool {
	frame.Mask(p, c.mask, 0)
	c.left -= int64(len(p))
	if c.left > 0 && len(p)&3 != 0 {
		c.turnMask(len(p) & 3)
	}
	whole := c.left == 0
	if whole {
		c.cut(inFrame)
	}
	if c.now.IsControl() {
		return c.control(p, whole)
	}
	end := whole && c.is(lastFrame)
	var f fault
	switch {
	case c.is(packed):
		f = c.compressed(p, end)
	case c.set.streamer != nil:
		f = c.stream(p, end)
	default:
		f = c.collect(p, end)
	}
	if f != fine {
		c.fail(&faults[f])
		return false
	}
	if end {
		c.cut(inMessage)
		if !c.is(closeSent) && c.set.Beat.Data == nil {
			c.lastMessage = c.tick()
		}
		c.set.Meters.MessagesIn.Add(c.shard(), 1)
	}
	return true
}

// turnMask rotates the mask so that it begins with the byte for the next byte of
// payload.
func (c *Conn) turnMask(by int) {
	m := c.mask
	for i := range m {
		c.mask[i] = m[(i+by)&3]
	}
}

// stream gives the App a part of a message as it comes.
func (c *Conn) stream(p []byte, end bool) fault {
	if c.op == frame.Text && (!c.utf8.Feed(p) || end && !c.utf8.Done()) {
		return notUTF8
	}
	if len(p) == 0 && !end {
		return fine
	}
	first := !c.is(started)
	c.put(started)
	c.set.streamer.Piece(c, c.op, p, first, end)
	return fine
}

// collect gives the App whole messages.
func (c *Conn) collect(p []byte, end bool) fault {
	if c.op == frame.Text && (!c.utf8.Feed(p) || end && !c.utf8.Done()) {
		return notUTF8
	}
	if end && (c.partial == nil || len(c.partial.message) == 0) {
		c.set.App.Message(c, c.op, p) // as it was read: the usual case
		return fine
	}
	h := c.partialInput()
	if !h.keep(c.set, p) {
		return overBudget
	}
	if end {
		c.set.App.Message(c, c.op, h.message)
		h.dropMessage(c.set)
		c.releaseEmptyInput()
	}
	return fine
}

// compressed collects a compressed message, and has it decompressed.
func (c *Conn) compressed(p []byte, end bool) fault {
	if h := c.partial; h != nil && (len(h.message) > 0 || h.packed.Size() > 0) || !end {
		h = c.partialInput()
		if !h.pack(c.set, p) {
			return overBudget
		}
		if !end {
			return fine
		}
		if h.packed.Size() > 0 {
			return c.inflateInSteps()
		}
		p = h.message
	}
	return c.inflate(p)
}

// control handles a control frame, of which only a part may have come.
func (c *Conn) control(p []byte, whole bool) bool {
	if c.partial != nil && len(c.partial.control) > 0 || !whole {
		h := c.partialInput()
		h.control = append(h.control, p...)
		if !whole {
			return true
		}
		p = h.control
		defer func() {
			if c.partial == h { // else releaseInput was called, and it may be another connection's by now
				h.control = h.control[:0]
				c.releaseEmptyInput()
			}
		}()
	}
	switch c.now {
	case frame.Ping:
		if !c.is(closeSent) {
			c.write(frame.Header{Fin: true, Op: frame.Pong}, p)
		}
	case frame.Close:
		c.closing(p)
	}
	return true
}

// closing handles the peer's close frame (RFC 6455, 5.5.1 and 7.1).
func (c *Conn) closing(p []byte) {
	code, _, err := frame.ParseClose(p)
	if err != nil {
		c.failWith(err)
		return
	}
	if c.code == 0 {
		c.code = code
	}
	if !c.is(closeSent) {
		c.countClose(closeReason(code, false))
		c.sendClose(code, "")
	}
	c.put(closeSeen)
	c.releaseInput()
	c.schedule(closeTime)
}

// closeReason is the name under which a close is counted. Codes come from the peer:
// those that are not standard are counted together.
func closeReason(code frame.Code, ours bool) string {
	by := "client "
	if ours {
		by = "server "
	}
	switch {
	case code == frame.NoStatus:
		return by + "without a code"
	case code < 3000, code == frame.Unauthorized, code == frame.Forbidden, code == frame.Timeout:
		return by + strconv.Itoa(int(code))
	}
	return by + "of its own"
}
