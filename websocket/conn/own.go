package conn

import (
	"io"
	"net"
	"sync"

	"millrace/websocket/frame"
)

// own is the driver of a connection with a goroutine of its own, which reads.
// Whoever finds something to write and nobody writing becomes the writer: the
// reader itself, so that an echo costs no switch, or a goroutine that lives
// until nothing waits any more.
type own struct {
	strand *strand
	rw     io.ReadWriteCloser

	turn  sync.Mutex
	batch []byte // collected in the turn

	mu      sync.Mutex // Conn.out, and below; taken last
	drained sync.Cond
	writing bool
	sealed  bool // nothing more is taken
	gone    bool // the connection is over
	then    afterwards

	first [firstRead]byte
}

// firstRead is what a quiet connection waits with. A larger buffer is borrowed
// when there is more.
const firstRead = 256

// ownRead is that larger buffer: a record of TLS.
const ownRead = 16 << 10

var readPool = sync.Pool{New: func() any { b := make([]byte, frame.MaxHeader+ownRead); return &b }}

// afterwards is what happens when all output has gone.
type afterwards uint8

const (
	goOn afterwards = iota
	halfClose
	closeAll
)

// strand is the runner of connections with a goroutine.
type strand struct {
	runner
	engine  *Engine
	ended   bool
	signal  chan struct{}
	mu      sync.Mutex
	conns   map[*Conn]struct{}
	pipes   map[*ownPipe]struct{}
	readers sync.WaitGroup
	writers sync.WaitGroup
}

func newStrand(e *Engine, index int) *strand {
	s := &strand{engine: e, signal: make(chan struct{}, 1), conns: map[*Conn]struct{}{}}
	s.index = index
	s.wake = func() {
		select {
		case s.signal <- struct{}{}:
		default:
		}
	}
	return s
}

// run is the strand's goroutine. It is started by NewEngine and ends with Close.
func (s *strand) run() {
	for !s.ended {
		<-s.signal
		s.runner.run(func() {})
	}
}

func (s *strand) newConn(rw io.ReadWriteCloser, set *Settings, p frame.Params, state any) *Conn {
	both := &struct {
		Conn
		own
	}{}
	c := &both.Conn
	c.own = &both.own
	c.set, c.params, c.state = set, p, state
	c.own.strand, c.own.rw = s, rw
	c.own.drained.L = &c.own.mu
	now := s.engine.now()
	c.seen, c.heard = now, now
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	return c
}

// enter puts a connection into the wheel; on the strand.
func (s *strand) enter(c *Conn, n uint32) {
	s.mu.Lock()
	_, there := s.conns[c]
	s.mu.Unlock()
	if there {
		s.wheel.put(c, n)
	}
}

// each calls f in the turn of connections with these settings (nil: all).
func (s *strand) each(set *Settings, f func(c *Conn)) {
	s.mu.Lock()
	var list []*Conn
	for c := range s.conns {
		if set == nil || c.set == set {
			list = append(list, c)
		}
	}
	s.mu.Unlock()
	for _, c := range list {
		c.own.inTurn(c, func() { f(c) })
	}
}

func (s *strand) turnWheel() {
	now := s.engine.now()
	s.tick = now
	for s.wheel.at != now {
		s.wheel.turn(func(c *Conn) {
			c.own.inTurn(c, func() {
				v, n := c.timeUp(now)
				c.act(v, now)
				if !c.is(dead | doomed) {
					if v == sendOff {
						n = closeTime
					}
					s.wheel.put(c, n)
				}
			})
		})
	}
}

// inTurn calls f in the connection's turn, unless it is over. What f sends is
// written by another goroutine.
func (o *own) inTurn(c *Conn, f func()) {
	o.turn.Lock()
	if c.is(dead) {
		o.turn.Unlock()
		return
	}
	func() {
		defer o.strand.engine.guard(c)
		f()
	}()
	writer := o.settle(c)
	o.turn.Unlock()
	if writer {
		o.strand.writers.Go(func() { o.drain(c) })
	}
}

// settle ends a turn: what was collected is handed over. It reports whether
// the caller has to drain.
func (o *own) settle(c *Conn) (writer bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case c.is(doomed):
		o.then, o.sealed = closeAll, true
		_ = o.cut()
	case c.is(closeSeen) && c.is(closeSent):
		o.then = closeAll
	case c.is(failed):
		o.then = halfClose
	}
	if len(o.batch) > 0 && !o.sealed {
		o.output(c).push(o.batch, false)
		c.set.account(len(o.batch), 0)
		o.batch = nil
	}
	o.batch = o.batch[:0]
	o.sealed = o.sealed || c.is(closeSent)
	if o.writing || o.gone || c.out == nil && o.then == goOn {
		return false
	}
	o.writing = true
	return true
}

func (o *own) output(c *Conn) *output {
	if c.out == nil {
		c.out = outputPool.Get().(*output)
		c.out.since = o.strand.engine.now()
	}
	return c.out
}

// deliver is Conn.Deliver.
func (o *own) deliver(c *Conn, p *frame.Prepared, shared bool) {
	b := p.Bytes(c.params)
	o.mu.Lock()
	if o.sealed || o.gone {
		o.mu.Unlock()
		return
	}
	out := o.output(c)
	ok, slow := true, false
	if shared {
		ok, slow = out.admit(c.set, len(b))
	}
	if slow {
		o.sealed = true
		o.strand.post(func() { o.inTurn(c, func() { c.tooSlow() }) })
	}
	if length := out.length; ok {
		out.push(b, shared)
		c.set.account(len(b), out.length-length)
		c.set.Meters.MessagesOut.Add(c.shard(), 1)
	}
	writer := ok && !o.writing
	o.writing = o.writing || ok
	o.mu.Unlock()
	if writer {
		o.strand.writers.Go(func() { o.drain(c) })
	}
}

// joinUpTo is how many bytes of small frames go into one write.
const joinUpTo = 16 << 10

// drain writes until nothing waits. The caller has set writing.
func (o *own) drain(c *Conn) {
	var buf *[]byte
	defer func() {
		if buf != nil {
			putScratch(buf)
		}
	}()
	o.mu.Lock()
	for c.out != nil && c.out.bytes > 0 && !o.gone {
		b := c.out.chunks[c.out.first].b[c.out.skip:]
		if len(c.out.chunks)-c.out.first > 1 && len(b) < joinUpTo {
			if buf == nil {
				buf = scratchPool.Get().(*[]byte)
			}
			*buf = (*buf)[:0]
			for i := c.out.first; i < len(c.out.chunks) && (len(*buf) == 0 || len(*buf)+len(c.out.chunks[i].b) <= joinUpTo); i++ {
				from := 0
				if i == c.out.first {
					from = c.out.skip
				}
				*buf = append(*buf, c.out.chunks[i].b[from:]...)
			}
			b = *buf
		}
		o.mu.Unlock()
		n, err := o.rw.Write(b)
		o.mu.Lock()
		c.set.Meters.BytesOut.Add(c.shard(), uint64(n))
		if err != nil {
			o.then, o.sealed = closeAll, true
			break
		}
		if c.out != nil {
			length := c.out.length
			c.out.advance(n)
			c.out.since = o.strand.engine.now()
			c.set.account(-n, c.out.length-length)
		}
	}
	o.writing = false
	o.drop(c)
	then := o.then
	o.drained.Broadcast()
	o.mu.Unlock()
	switch then {
	case closeAll:
		_ = o.rw.Close()
	case halfClose:
		if half, ok := o.rw.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		} else {
			_ = o.rw.Close() // a stream of HTTP/2, where no data is lost by that
		}
	}
}

// drop gives the output back. mu is held.
func (o *own) drop(c *Conn) {
	if c.out == nil {
		return
	}
	c.set.account(-c.out.bytes, -c.out.length)
	putOutput(c.out)
	c.out = nil
}

// awaitDrained is the backpressure: nothing is read while output waits.
func (o *own) awaitDrained(c *Conn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for (o.writing || c.out != nil) && !o.gone && o.then != closeAll {
		o.drained.Wait()
	}
}

// cut ends the connection from outside, below TLS, whose own Close may wait
// for a client that does not read.
func (o *own) cut() error {
	if t, ok := o.rw.(interface{ NetConn() net.Conn }); ok {
		return t.NetConn().Close()
	}
	return o.rw.Close()
}

// serve is the connection's goroutine.
func (o *own) serve(c *Conn, early []byte) {
	o.take(c, func() { c.set.App.Open(c) })
	o.strand.post(func() { o.strand.enter(c, 1) })
	if len(early) > 0 {
		o.take(c, func() { c.input(early) })
	}
	var big *[]byte
	for {
		buf := o.first[:]
		if big != nil {
			buf = (*big)[frame.MaxHeader:]
		}
		n, err := o.rw.Read(buf)
		if n > 0 {
			o.take(c, func() { c.input(buf[:n]) })
		}
		if err != nil || o.over(c) {
			break
		}
		if n == len(buf) && big == nil {
			big = readPool.Get().(*[]byte)
		} else if n < firstRead && big != nil {
			readPool.Put(big)
			big = nil
		}
	}
	if big != nil {
		readPool.Put(big)
	}
	o.finish(c)
}

func (o *own) over(c *Conn) bool {
	o.turn.Lock()
	defer o.turn.Unlock()
	return c.is(doomed)
}

// take has f called in the turn and writes what it has sent, and then what was
// left of the input meanwhile.
func (o *own) take(c *Conn, f func()) {
	for {
		o.turn.Lock()
		func() {
			defer o.strand.engine.guard(c)
			f()
		}()
		rest := c.held != nil && c.held.rest != nil
		writer := o.settle(c)
		o.turn.Unlock()
		if writer {
			o.drain(c)
		}
		o.awaitDrained(c)
		if !rest || o.over(c) {
			return
		}
		f = c.resume
	}
}

// input takes what was read.
func (c *Conn) input(b []byte) {
	c.seen = c.own.strand.engine.now()
	c.cut(pinged)
	c.set.Meters.BytesIn.Add(c.shard(), uint64(len(b)))
	if c.is(failed | closeSeen | doomed) {
		return
	}
	if c.held != nil && c.held.nHead > 0 {
		b = append(append(make([]byte, 0, int(c.held.nHead)+len(b)), c.held.head[:c.held.nHead]...), b...)
		c.held.nHead = 0
	}
	c.consume(b)
	c.tidy()
}

// finish is the end. Nobody gets a turn any more.
func (o *own) finish(c *Conn) {
	o.turn.Lock()
	c.put(dead)
	func() {
		defer o.strand.engine.guard(c)
		c.set.App.Closed(c, c.endCode())
	}()
	c.letGo()
	o.turn.Unlock()
	o.mu.Lock()
	o.gone, o.sealed = true, true
	if !o.writing {
		o.drop(c)
	}
	o.drained.Broadcast()
	o.mu.Unlock()
	_ = o.cut()
	_ = o.rw.Close()
	s := o.strand
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.post(func() { s.wheel.take(c) })
	s.engine.count(c.set, -1)
}

// endCode is what the App is told.
func (c *Conn) endCode() frame.Code {
	if c.code == 0 || !c.is(closeSent|closeSeen) {
		return frame.Abnormal
	}
	return c.code
}
