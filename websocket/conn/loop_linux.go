package conn

import (
	"runtime"

	"golang.org/x/sys/unix"

	"millrace/internal/wire/epoll"
	"millrace/internal/wire/send"
	"millrace/websocket/frame"
)

const (
	// loopEvents is how many connections a loop is told of at once.
	loopEvents = 256
	// readSize is what a loop reads at once, of one connection: as much as a
	// socket's buffer usually has for a quick client, and it stays in the
	// second level cache.
	readSize = 64 << 10
	// directFrom is the size from which on a payload is written from where it
	// lies: copying it to the end of a frame's header is dearer than a second
	// entry of writev.
	directFrom = 2 << 10
	// batchSize is how much small output is collected before it is written.
	batchSize = 32 << 10
)

// loop serves plain connections on one goroutine. They are watched under their
// slot in the slab as the key. An idle loop holds no thread.
type loop struct {
	runner
	engine *Engine
	poller *epoll.Poller
	waker  *epoll.Waker // there is something in the inbox
	ended  bool

	slab     slab
	doomed   []*Conn // to be closed at the end of the turn
	inflater inflater

	batch   []byte // output of current, not yet written
	current *Conn
	events  [loopEvents]epoll.Event
	n       int
	buf     []byte // frame.MaxHeader + readSize
}

func (lp *loop) base() *runner { return &lp.runner }

// startLoops starts n loops, or none where the system has no descriptors left:
// every connection has a goroutine then.
func startLoops(e *Engine, n int) (loops []*loop) {
	for range n {
		lp, err := newLoop(e)
		if err != nil {
			break
		}
		loops = append(loops, lp)
	}
	return loops
}

func newLoop(e *Engine) (*loop, error) {
	poller, err := epoll.NewPoller()
	if err != nil {
		return nil, err
	}
	waker, err := poller.NewWaker()
	if err != nil {
		_ = poller.Close()
		return nil, err
	}
	lp := &loop{engine: e, poller: poller, waker: waker}
	lp.buf = make([]byte, frame.MaxHeader+readSize)
	lp.batch = make([]byte, 0, batchSize+directFrom+frame.MaxHeader)
	lp.wake, lp.guard = waker.Wake, e.mistake
	return lp, nil
}

// run is the loop's goroutine. It is started by NewEngine and ends with Close.
func (lp *loop) run() {
	lp.poller.Run(lp.work)
	lp.stop()
	_ = lp.poller.Close()
	_ = lp.waker.Close()
}

// work serves until there is nothing to do. Only then may the poller wait: it reports
// what comes later, but not what is there already.
func (lp *loop) work() (done bool) {
	lp.tick = lp.engine.now()
	for {
		lp.runner.run(lp.endTurn)
		if lp.ended {
			return true
		}
		lp.inflateStep()
		if lp.n = lp.poller.Poll(lp.events[:]); lp.n == 0 && !lp.more() && lp.inflater.idle() {
			return false
		}
		for i := range lp.n {
			lp.serve(&lp.events[i])
		}
		runtime.Gosched() // under load there is always more; let others run
	}
}

// serve serves one connection. The watch is level-triggered: what is left in the
// socket is reported again.
func (lp *loop) serve(event *epoll.Event) {
	if event.Key() == epoll.WakeKey {
		return // edge-triggered: seeing it is enough, the inbox is looked at in every round
	}
	c := lp.slab.at(uint32(event.Key()))
	if c.gen != event.Generation() || c.set == nil {
		return // closed a moment ago, within the same round of events
	}
	lp.ready(c, event.Events)
}

// ready does what a connection's events allow, and ends its turn.
func (lp *loop) ready(c *Conn, events uint32) {
	defer lp.settled(c)
	switch {
	case c.is(pipeEnd):
		lp.readyPipe(c, events)
	case c.out != nil:
		if c.is(failed) {
			lp.read(c)
		}
		lp.drain(c)
	case c.is(inflating):
		if events&(epoll.HungUp|epoll.Failed) != 0 {
			c.put(doomed) // nobody waits for it any more
		}
	default:
		lp.read(c)
	}
}

// settled ends a turn after code that may have panicked.
func (lp *loop) settled(c *Conn) {
	if cause := recover(); cause != nil {
		func() {
			defer lp.engine.guard(c)
			panic(cause)
		}()
	}
	lp.settle(c)
	if len(lp.doomed) > 0 {
		lp.endTurn()
	}
}

// read takes what has come.
func (lp *loop) read(c *Conn) {
	n, ok, err := send.TryRead(uintptr(c.fd), lp.buf[frame.MaxHeader:])
	if !ok {
		return
	}
	if n == 0 && err == nil && c.out != nil {
		lp.watch(c, epoll.Out) // it has said all, and may still read
		return
	}
	if n == 0 || err != nil {
		c.put(doomed)
		return
	}
	c.has(lp.tick)
	c.set.Meters.BytesIn.Add(uint32(lp.index), uint64(n))
	if c.is(failed | closeSeen) {
		return
	}
	from := frame.MaxHeader
	if h := c.partial; h != nil && h.nHead > 0 {
		from -= int(h.nHead)
		copy(lp.buf[from:], h.head[:h.nHead])
		h.nHead = 0
	}
	c.consume(lp.buf[from : frame.MaxHeader+n])
	if c.partial != nil {
		c.releaseEmptyInput()
	}
}

// write adds a frame to the turn's output, or writes it together with that.
func (lp *loop) write(c *Conn, h frame.Header, body []byte) {
	lp.turnTo(c)
	lp.batch = h.Append(lp.batch)
	if len(body) >= directFrom {
		lp.flush(body)
		return
	}
	lp.batch = append(lp.batch, body...)
	if len(lp.batch) >= batchSize {
		lp.flush(nil)
	}
}

func (lp *loop) writeRaw(c *Conn, b []byte) {
	lp.turnTo(c)
	lp.batch = append(lp.batch, b...)
}

// turnTo begins a turn of c, whose output is collected from now on.
func (lp *loop) turnTo(c *Conn) {
	if lp.current != c {
		lp.flush(nil)
		lp.current = c
	}
}

// flush writes the collected output, and body behind it, which the loop does not keep.
func (lp *loop) flush(body []byte) {
	c := lp.current
	if len(lp.batch) == 0 {
		return
	}
	b := lp.batch
	lp.batch = lp.batch[:0]
	if c.is(dead | doomed) {
		return
	}
	n := 0
	if c.out == nil {
		var err error
		if n, err = send.TryWrite(uintptr(c.fd), b, body); err != nil {
			lp.doom(c)
			return
		}
		c.set.Meters.BytesOut.Add(uint32(lp.index), uint64(n))
		if n == len(b)+len(body) {
			return
		}
	}
	rest := make([]byte, 0, len(b)+len(body)-n)
	rest = append(rest, b[min(n, len(b)):]...)
	rest = append(rest, body[max(0, n-len(b)):]...)
	lp.queue(c, rest, false)
	if n > 0 {
		c.out.partial = true
	}
}

// doom has a connection closed at the end of the turn.
func (lp *loop) doom(c *Conn) {
	if !c.is(dead | doomed) {
		c.put(doomed)
		lp.doomed = append(lp.doomed, c)
	}
}

// queue keeps b until the socket takes it. Meanwhile nothing is read, except from a
// client that has failed; see discardInput.
func (lp *loop) queue(c *Conn, b []byte, message bool) {
	if c.out == nil {
		c.out = outputPool.Get().(*output)
		c.out.since = lp.tick
		if lp.watch(c, epoll.Out); c.is(failed) {
			lp.discardInput(c)
		}
		if c.set.WriteTimeout > 0 && !c.is(closeSent|closeSeen|failed) {
			c.schedule(ticks(c.set.WriteTimeout))
		}
	}
	c.out.push(chunk{b: b, message: message})
	length := 0
	if message {
		length = 1
	}
	c.set.account(len(b), length)
}

// discardInput has what a failed client sends read and thrown away while output waits
// for it: the client may read our close frame only when it has sent everything.
func (lp *loop) discardInput(c *Conn) {
	if c.out != nil && !c.is(doomed|dead|pipeEnd) {
		lp.watch(c, epoll.In|epoll.PeerShut|epoll.Out)
	}
}

// watch sets the events that the loop waits for.
func (lp *loop) watch(c *Conn, events uint32) {
	if err := lp.poller.Change(int(c.fd), events, int32(c.slot), c.gen); err != nil {
		lp.doom(c)
	}
}

// deliver writes a whole message, which may be shared with other connections.
func (lp *loop) deliver(c *Conn, b []byte, shared bool) {
	if lp.current == c {
		lp.flush(nil) // what was said before
		if c.is(doomed) {
			return
		}
	}
	if c.out != nil {
		if shared {
			ok, slow := c.out.admit(c.set, len(b))
			if slow {
				c.tooSlow()
			}
			if !ok {
				return
			}
		}
		lp.queue(c, b, shared)
		c.set.Meters.MessagesOut.Add(uint32(lp.index), 1)
		return
	}
	n, err := send.TryWrite(uintptr(c.fd), b, nil)
	if err != nil {
		lp.doom(c)
		return
	}
	c.set.Meters.MessagesOut.Add(uint32(lp.index), 1)
	c.set.Meters.BytesOut.Add(uint32(lp.index), uint64(n))
	if n < len(b) {
		lp.queue(c, b, shared)
		c.out.skip, c.out.bytes = n, c.out.bytes-n
		c.set.account(-n, 0)
	}
}

// drain writes what waits, and when all was written parses input again.
func (lp *loop) drain(c *Conn) {
	all, err := lp.push(c)
	if err != nil {
		lp.doom(c)
	}
	if !all {
		return
	}
	if c.is(inflating) {
		lp.watch(c, 0)
		return
	}
	lp.watch(c, epoll.In|epoll.PeerShut)
	if !c.is(doomed | dead) {
		c.resume()
	}
}

// push writes what waits, as much as the socket takes. It reports whether that was
// all.
func (lp *loop) push(c *Conn) (all bool, err error) {
	o := c.out
	length, before := o.length, o.bytes
	defer func() {
		if c.out == nil {
			c.set.account(-before, -length)
		} else {
			c.set.account(o.bytes-before, o.length-length)
		}
	}()
	for {
		n, err := o.writeTo(int(c.fd))
		if n == 0 || err != nil {
			return false, err
		}
		c.set.Meters.BytesOut.Add(uint32(lp.index), uint64(n))
		o.advance(n)
		o.since = lp.tick
		if o.bytes == 0 {
			c.out = nil
			putOutput(o)
			return true, nil
		}
	}
}

// settle ends a connection's turn.
func (lp *loop) settle(c *Conn) {
	lp.flush(nil)
	lp.current = nil
	switch {
	case c.is(dead):
	case c.is(doomed):
		lp.finish(c)
	case c.out != nil || c.is(pipeEnd|halfShut):
	case c.is(closeSeen | failed):
		// All was said. What the client still sends is read and thrown away
		// until it ends, too, or its time is over: a closed socket would answer
		// with a reset, which can overtake our last words (RFC 6455, 7.1.1).
		c.put(halfShut)
		_ = unix.Shutdown(int(c.fd), unix.SHUT_WR)
	}
}

// endTurn ends the turn of the connection whose output was collected last.
func (lp *loop) endTurn() {
	lp.flush(nil)
	lp.current = nil
	for len(lp.doomed) > 0 {
		c := lp.doomed[len(lp.doomed)-1]
		lp.doomed = lp.doomed[:len(lp.doomed)-1]
		if c.is(doomed) && !c.is(dead) {
			lp.finish(c)
		}
	}
}

// adopt begins to serve a connection.
func (lp *loop) adopt(fd int, early []byte, s *Settings, p frame.Params, state any) {
	c := lp.enter(fd, s, p, state)
	if c == nil {
		lp.refuse(fd, s)
		ended(state)
		return
	}
	defer lp.settled(c)
	c.set.App.Open(c)
	c.leaveToo()
	if n := c.firstLook(lp.tick); !c.is(closeSent) {
		lp.wheel.put(c, n)
	}
	if len(early) > 0 && !c.is(doomed) {
		c.lastBytes = lp.tick
		c.set.Meters.BytesIn.Add(uint32(lp.index), uint64(len(early)))
		c.consume(early)
		c.releaseEmptyInput()
	}
}

func (lp *loop) refuse(fd int, s *Settings) {
	_ = unix.Close(fd)
	lp.engine.count(s, -1)
}

// enter gives a descriptor a place in the slab and watches it; nil if that is
// not possible.
func (lp *loop) enter(fd int, s *Settings, p frame.Params, state any) *Conn {
	if lp.ended {
		return nil
	}
	c := lp.slab.get()
	*c = Conn{set: s, state: state, loop: lp, params: p, fd: int32(fd), slot: c.slot, gen: c.gen + 1, lastBytes: lp.tick, lastMessage: lp.tick}
	if err := lp.poller.Add(fd, epoll.In|epoll.PeerShut, int32(c.slot), c.gen); err != nil {
		c.set = nil
		lp.slab.put(c)
		return nil
	}
	return c
}

// finish is the end of a connection.
func (lp *loop) finish(c *Conn) {
	c.put(dead)
	s, state := c.set, c.state
	counts := true
	if c.is(pipeEnd) {
		counts = lp.finishPipe(c)
	} else {
		func() {
			defer lp.engine.guard(c)
			s.App.Closed(c, c.endCode())
		}()
		c.countClose(closedNone)
	}
	lp.release(c)
	if counts {
		lp.engine.count(s, -1)
	}
	ended(state)
}

// inTurn calls f in a connection's turn.
func (lp *loop) inTurn(c *Conn, f func(c *Conn)) {
	defer lp.settled(c)
	f(c)
}

// release gives back all that a connection has.
func (lp *loop) release(c *Conn) {
	if lp.current == c {
		lp.batch, lp.current = lp.batch[:0], nil
	}
	lp.wheel.take(c)
	c.releaseInput()
	if c.out != nil {
		c.out.forget(c.set, droppedGone)
	}
	_ = unix.Close(int(c.fd)) // leaves the epoll set by itself: there is no other reference
	*c = Conn{slot: c.slot, gen: c.gen + 1, flags: dead}
	lp.slab.put(c)
}

// turnWheel looks at the connections whose time has come.
func (lp *loop) turnWheel() {
	now := lp.engine.now()
	lp.tick = now
	lp.wheel.turn(now, func(c *Conn) {
		defer lp.settled(c)
		if next := c.look(now); !c.is(doomed | dead) {
			lp.wheel.put(c, next)
		}
	})
}

// eachChunks is how many chunks of the slab are visited before others on the
// loop get their turn.
const eachChunks = 4

// each calls f in the turn of each connection with these settings, from the slab's
// chunk from on. After some chunks it posts itself for the others.
func (lp *loop) each(s *Settings, f func(c *Conn), from int) {
	to := from + eachChunks
	lp.slab.each(from, to, func(c *Conn) {
		if c.set == s {
			defer lp.settled(c)
			f(c)
		}
	})
	if to < len(lp.slab.chunks) {
		lp.post(func() { lp.each(s, f, to) })
	}
}

// end is called by Close: all are cut, and no more are taken.
func (lp *loop) end() {
	lp.slab.each(0, len(lp.slab.chunks), func(c *Conn) {
		defer lp.settled(c)
		c.put(doomed)
	})
	lp.ended = true
}
