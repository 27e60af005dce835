// Package conn drives WebSockets: it moves the bytes, keeps to RFC 6455, and
// tells an [App] what was said. There is one type of connection above two
// drivers: on Linux plain ones are served by a few epoll loops and cost about
// a hundred bytes while they are quiet (loop_linux.go); TLS, HTTP/2 and other
// systems have a goroutine each (goroutine.go).
//
// # Turns
//
// Everything that happens to one connection happens in its turn: one thing
// after the other, on its loop, or under its lock. An App's methods are called
// in the turn, and the methods of Conn may be called only there. Whoever comes
// from elsewhere keeps a [Handle] and uses [Handle.Do]. The exception is
// [Conn.Deliver].
//
// # A frame's way
//
// A loop reads up to 64 KiB into the one buffer that it has; protocol.go parses
// the frames in place and gives payloads to the App; what the App sends is
// collected and goes out in one write at the end of the turn. Only what is not whole yet
// is kept with the connection (partial.go), and only what the socket does not
// take (output.go). While something waits to be written nothing more is read.
package conn

import (
	"cmp"

	"millrace/websocket/frame"
)

// flags of a connection.
type flags uint16

const (
	inFrame   flags = 1 << iota // a header was read, its payload has not ended
	inMessage                   // a data message has begun and not ended
	lastFrame                   // the frame ends its message
	packed                      // the message is compressed
	started                     // Piece was called for the message
	pinged                      // nothing has come since our ping
	closeSent                   // we have sent a close frame
	closeSeen                   // the peer has
	failed                      // what still comes is thrown away
	dead                        // over: the App knows, or is about to
	halfShut                    // our side of the stream has ended
	pipeEnd                     // one side of a Pipe: frames are passed on
	doomed                      // is to be closed at the end of the turn
	counted                     // its end has been, in Meters.Closed
	inflating                   // on a loop: nothing is read until a message was decompressed
)

// Conn is one WebSocket. A quiet one is nothing but this, and it is made to
// be small: 128 bytes.
type Conn struct {
	set     *Settings
	state   any
	loop    *loop            // nil: it has a goroutine
	driver  *goroutineDriver // nil: it is on a loop
	partial *partialInput    // nil: nothing has come by halves
	out     *output

	next, prev *Conn // in the runner's wheel

	left int64 // bytes of the frame's payload that have not come
	size int64 // bytes of the message so far, as on the wire

	mask        [4]byte
	utf8        frame.UTF8
	fd          int32
	slot        uint32 // in its loop's slab
	gen         uint32 // counts who had the slot
	lastBytes   uint32 // tick when bytes came last, or a ping was sent
	lastMessage uint32 // tick when a message came last; with Settings.Beat, of the last one
	flags       flags
	code        frame.Code // of the first close frame, ours or the peer's
	due         uint16     // slot of the wheel, + 1; 0: not in it
	op          frame.Opcode
	now         frame.Opcode // the frame's own
	params      frame.Params
	slight      uint16 // frames that brought nearly nothing, within a second
}

func (c *Conn) is(f flags) bool { return c.flags&f != 0 }
func (c *Conn) put(f flags)     { c.flags |= f }
func (c *Conn) cut(f flags)     { c.flags &^= f }

// State is what Adopt was given, or SetState.
func (c *Conn) State() any { return c.state }

// SetState replaces it.
func (c *Conn) SetState(state any) { c.state = state }

// Settings are those of Adopt.
func (c *Conn) Settings() *Settings { return c.set }

// runner is the loop, or the strand, on which the connection's turns run.
func (c *Conn) runner() *runner {
	if c.driver != nil {
		return &c.driver.strand.runner
	}
	return c.loop.base()
}

// Runner is the number of the runner that the connection is on.
func (c *Conn) Runner() int { return c.runner().index }

// Send sends a message, compressed if that was agreed, it is long enough and
// it becomes shorter. data is copied or written before it returns. After the
// connection's end, or behind a close frame, it does nothing.
func (c *Conn) Send(op frame.Opcode, data []byte) {
	if c.is(closeSent | dead) {
		return
	}
	c.set.Meters.MessagesOut.Add(c.shard(), 1)
	if c.params.On && c.set.CompressFrom > 0 && len(data) >= c.set.CompressFrom {
		buf := scratchPool.Get().(*[]byte)
		defer putScratch(buf)
		if *buf = c.params.Deflate((*buf)[:0], data); len(*buf) < len(data) {
			c.write(frame.Header{Fin: true, Rsv1: true, Op: op}, *buf)
			return
		}
	}
	c.write(frame.Header{Fin: true, Op: op}, data)
}

// SendPiece sends the next part of a message as a frame of its own.
func (c *Conn) SendPiece(op frame.Opcode, data []byte, first, last bool) {
	if c.is(closeSent | dead) {
		return
	}
	if last {
		c.set.Meters.MessagesOut.Add(c.shard(), 1)
	}
	if !first {
		op = frame.Continuation
	}
	c.write(frame.Header{Fin: last, Op: op}, data)
}

// Deliver sends what was prepared, without a copy. It never calls back into
// App (a connection that is too slow is closed a moment later), and may be
// called not only in the turn, but by whatever runs on the connection's runner.
func (c *Conn) Deliver(p *frame.Prepared) { c.deliver(p, true) }

// Answer is Deliver for an answer to the client's own request: it does not count as
// waiting for a slow client, and is never dropped.
func (c *Conn) Answer(p *frame.Prepared) { c.deliver(p, false) }

func (c *Conn) deliver(p *frame.Prepared, shared bool) {
	if c.driver != nil {
		c.driver.deliver(c, p, shared)
		return
	}
	if c.is(closeSent | dead | doomed) {
		return
	}
	c.loop.deliver(c, p.Bytes(c.params), shared)
}

// Close begins the closing handshake (RFC 6455, 7.1.2); Closed is called when
// it is over, or after a few seconds. reason is cut to 123 bytes.
func (c *Conn) Close(code frame.Code, reason string) {
	if c.is(closeSent | dead) {
		return
	}
	c.countClose(closeReason(code, true))
	c.sendClose(code, reason)
	c.schedule(closeTime)
}

func (c *Conn) sendClose(code frame.Code, reason string) {
	if c.is(closeSent | dead) {
		return
	}
	c.code = cmp.Or(c.code, code)
	var b [frame.MaxControl + 2]byte
	c.writeLast(frame.AppendClose(b[:0], code, reason))
	c.put(closeSent)
}

// fail ends the connection of a peer that breaks the protocol. The peer is told why,
// and nothing more that it sends counts (RFC 6455, 7.1.7).
func (c *Conn) fail(e *frame.Error) {
	c.countClose(closeReason(e.Code, true))
	if !c.is(closeSent) {
		c.sendClose(e.Code, e.Reason)
	}
	c.put(failed)
	c.releaseInput()
	if c.driver == nil {
		c.loop.discardInput(c)
	}
	within := uint32(failTime)
	if _, waits := c.stuckSince(); waits || c.waiting() > stallAt {
		within = c.lastWords()
	}
	c.schedule(within)
}

// closedNone is how connections are counted that ended without a close frame,
// and closedDead those whose clients did not answer any more, or over a proxy
// took nothing.
const (
	closedNone = "without a close frame"
	closedDead = "dead"
	// closedPassed are those that have said goodbye to each other, over a proxy.
	closedPassed = "passed on"
)

// countClose counts a connection's end, once: by what came first.
func (c *Conn) countClose(reason string) {
	if p, ok := c.state.(*pipe); ok && c.is(pipeEnd) {
		p.countClose(c.set, reason)
	} else if !c.is(counted) {
		c.put(counted)
		c.set.Meters.Closed.Add(reason)
	}
}

// shard spreads the counters.
func (c *Conn) shard() uint32 { return uint32(c.runner().index) }

// Handle returns a handle, which may be kept and used from anywhere, also after the
// connection's end.
func (c *Conn) Handle() Handle { return Handle{c: c, on: c.runner(), gen: c.gen} }

// Handle stands for a connection outside of its turn. The zero Handle stands for none.
type Handle struct {
	c   *Conn
	on  *runner
	gen uint32
}

// Do has f called in the connection's turn, soon; never, if it is over by
// then. It may be called from anywhere and does not block.
func (h Handle) Do(f func(c *Conn)) {
	if h.c == nil {
		return
	}
	h.on.post(func() {
		if h.c.driver != nil {
			h.c.driver.inTurn(h.c, func() { f(h.c) })
		} else if h.c.gen == h.gen && !h.c.is(dead) {
			h.c.loop.inTurn(h.c, f)
		}
	})
}
