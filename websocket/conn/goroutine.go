package conn

import (
	"io"
	"sync"
	"time"

	"millrace/internal/wire/epoll"
	"millrace/websocket/frame"
)

// goroutineDriver drives a connection with a goroutine that reads from it. Whoever has
// output and finds no writer becomes the writer: the reader itself, so that an echo
// costs no switch between goroutines, or a goroutine that ends when nothing waits.
type goroutineDriver struct {
	strand *strand
	rw     io.ReadWriteCloser

	turn sync.Mutex

	mu         sync.Mutex // Conn.out, and below; taken last
	drained    sync.Cond
	batch      *[]byte // collected and not yet in Conn.out; of scratchPool
	inside     bool    // a turn is under way, settle will come
	writing    bool
	sealed     bool // nothing more is taken
	busy       bool // the reader writes, or waits for who does
	discarding bool // another goroutine reads meanwhile, see discard
	gone       bool // the connection is over
	then       afterOutput

	parked    epoll.Place
	wasParked bool   // once at least
	renewed   uint32 // tick behind that in which it was last said how long to stay awake; 0: never

	first [firstRead]byte
}

// firstRead is the buffer with which a quiet connection waits. It takes a larger one
// from a pool when there is more to read.
const firstRead = 256

// recordRead is that larger buffer: a record of TLS.
const recordRead = 16 << 10

var readPool = sync.Pool{New: func() any { b := make([]byte, frame.MaxHeader+recordRead); return &b }}

// afterOutput is what to do when all output was written.
type afterOutput uint8

const (
	goOn afterOutput = iota
	halfClose
	closeAll
)

// inTurn calls f in the connection's turn, unless the connection is over. Another
// goroutine writes what f sends.
func (o *goroutineDriver) inTurn(c *Conn, f func()) {
	o.turn.Lock()
	defer o.turn.Unlock()
	o.during(c, f)
}

// tryTurn is inTurn for callers that cannot wait for another turn's end; false: there
// is one.
func (o *goroutineDriver) tryTurn(c *Conn, f func()) bool {
	if !o.turn.TryLock() {
		return false
	}
	defer o.turn.Unlock()
	o.during(c, f)
	return true
}

func (o *goroutineDriver) during(c *Conn, f func()) {
	if c.is(dead) {
		return
	}
	o.call(c, f)
	o.settle(c, false)
}

// call calls f, which may panic. The caller has the turn.
func (o *goroutineDriver) call(c *Conn, f func()) {
	o.mu.Lock()
	o.inside = true
	o.mu.Unlock()
	defer o.strand.engine.guard(c)
	f()
}

// write adds a frame to the turn's output.
func (o *goroutineDriver) write(h frame.Header, body []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := o.collect()
	*b = append(h.Append(*b), body...)
}

// writeLast adds a close frame, behind which nothing is sent.
func (o *goroutineDriver) writeLast(last []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := o.collect()
	*b = append(*b, last...)
	o.sealed = true
}

// collect returns the buffer of a turn's output. mu is held, here and below.
func (o *goroutineDriver) collect() *[]byte {
	if o.batch == nil {
		o.batch = scratchPool.Get().(*[]byte)
		*o.batch = (*o.batch)[:0]
	}
	return o.batch
}

func (o *goroutineDriver) collected() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.batch == nil {
		return 0
	}
	return len(*o.batch)
}

// queueBatch moves the turn's output behind the output that waits already.
func (o *goroutineDriver) queueBatch(c *Conn) {
	if o.batch == nil {
		return
	}
	if k := (chunk{b: *o.batch, from: o.batch}); len(k.b) > 0 {
		o.output(c).push(k)
		c.set.account(len(k.b), 0)
	} else {
		putScratch(k.from)
	}
	o.batch = nil
}

func (o *goroutineDriver) output(c *Conn) *output {
	if c.out == nil {
		c.out = outputPool.Get().(*output)
		c.out.since = o.strand.engine.now()
	}
	return c.out
}

// settle ends a turn and has its output written. If the caller is the reader, it
// reports whether the caller has to drain; otherwise another goroutine does.
func (o *goroutineDriver) settle(c *Conn, reader bool) (writer bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inside = false
	o.queueBatch(c)
	if reader {
		o.busy = true
	}
	switch {
	case c.is(doomed):
		o.then, o.sealed = closeAll, true
		_ = o.cut()
	case c.is(closeSeen|failed) && !c.is(halfShut): // as loop.settle does it
		c.put(halfShut)
		o.then = halfClose
		if o.busy && c.is(failed) && c.out != nil && (o.writing || c.out.bytes > maxCloseFrame) {
			o.discarding = true
			o.strand.writers.Go(func() { o.discard(c) })
		}
	}
	if o.writing || o.gone || c.out == nil && o.then == goOn {
		return false
	}
	o.writing = true
	if !reader {
		o.strand.writers.Go(func() { o.drain(c) })
	}
	return reader
}

// deliver is Conn.Deliver.
func (o *goroutineDriver) deliver(c *Conn, p *frame.Prepared, shared bool) {
	b := p.Bytes(c.params)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sealed || o.gone {
		return
	}
	if c.out != nil && shared {
		ok, slow := c.out.admit(c.set, len(b))
		if slow {
			o.sealed = true
			o.strand.post(func() { o.inTurn(c, c.tooSlow) })
		}
		if !ok {
			return
		}
	}
	o.queueBatch(c) // what was said before
	out := o.output(c)
	length := out.length
	out.push(chunk{b: b, message: shared})
	c.set.account(len(b), out.length-length)
	c.set.Meters.MessagesOut.Add(c.shard(), 1)
	if !o.writing && !o.inside {
		o.writing = true
		o.strand.writers.Go(func() { o.drain(c) })
	}
}

// replace drops what still waits, and queues last; see Conn.tooSlow.
func (o *goroutineDriver) replace(c *Conn, last chunk) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queueBatch(c)
	o.output(c).replace(c.set, last)
	o.sealed = true
}

const (
	// joinUpTo is how many bytes of small frames go into one write.
	joinUpTo = 16 << 10
	// writeUpTo is what is written at once: the write timeout is for so much.
	writeUpTo = 64 << 10
)

// next returns what is to be written next: a part of a chunk, or several small chunks,
// which are joined in buf. mu is held.
func (o *output) next(buf **[]byte) []byte {
	b := o.chunks[o.first].b[o.skip:]
	o.going = 1
	if len(o.chunks)-o.first == 1 || len(b) >= joinUpTo {
		return b[:min(len(b), writeUpTo)]
	}
	if *buf == nil {
		*buf = scratchPool.Get().(*[]byte)
	}
	all := append((**buf)[:0], b...)
	for _, k := range o.chunks[o.first+1:] {
		if len(all)+len(k.b) > joinUpTo {
			break
		}
		all = append(all, k.b...)
		o.going++
	}
	**buf = all
	return all
}

// drain writes until nothing waits. The caller has set writing.
func (o *goroutineDriver) drain(c *Conn) {
	var buf *[]byte
	o.mu.Lock()
	for c.out != nil && c.out.bytes > 0 && !o.gone {
		b := c.out.next(&buf)
		o.mu.Unlock()
		n, err := o.rw.Write(b)
		o.mu.Lock()
		c.set.Meters.BytesOut.Add(c.shard(), uint64(n))
		length := c.out.length
		c.out.going = 0
		c.out.advance(n)
		c.out.since = o.strand.engine.now()
		c.set.account(-n, c.out.length-length)
		if err != nil {
			o.then, o.sealed = closeAll, true
			_ = o.cut()
			break
		}
	}
	o.writing = false
	o.drop(c)
	then := o.then
	if then == halfClose {
		o.then = goOn
	}
	o.drained.Broadcast()
	o.mu.Unlock()
	if buf != nil {
		putScratch(buf)
	}
	switch then {
	case closeAll:
		o.close()
	case halfClose:
		endWriting(o.rw)
	}
}

// drop gives the output back. mu is held.
func (o *goroutineDriver) drop(c *Conn) {
	if o.batch != nil && o.gone {
		putScratch(o.batch)
		o.batch = nil
	}
	if c.out == nil {
		return
	}
	c.out.forget(c.set, droppedGone)
	c.out = nil
}

// awaitDrained is the backpressure: it waits until all output was written, before more
// is read. It does not wait behind a close frame.
func (o *goroutineDriver) awaitDrained() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.discarding || o.writing && !o.sealed && !o.gone && o.then != closeAll {
		o.drained.Wait()
	}
	o.busy = false
}

// maxCloseFrame is the size of the longest close frame of a server.
const maxCloseFrame = 2 + frame.MaxControl

// discard reads and throws away what a failed client sends, while the reader is busy
// with writing: the client may read our close frame only when it has sent everything.
// It ends with the connection, or with what the client sends.
func (o *goroutineDriver) discard(c *Conn) {
	if d, ok := o.rw.(readDeadliner); ok {
		_ = d.SetReadDeadline(time.Time{}) // that of the last read
	}
	buf := readPool.Get().(*[]byte)
	defer readPool.Put(buf)
	for {
		n, err := o.rw.Read(*buf)
		c.set.Meters.BytesIn.Add(c.shard(), uint64(n))
		if err != nil {
			break
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.discarding = false
	o.drained.Broadcast()
}

// close ends both directions in good order, but waits for nobody.
func (o *goroutineDriver) close() {
	if !takesMore(o.rw) {
		_ = o.cut()
	}
	_ = o.rw.Close()
	o.strand.parker.Leave(&o.parked)
}

// cut ends the connection from outside.
func (o *goroutineDriver) cut() error {
	err := cut(o.rw)
	o.strand.parker.Leave(&o.parked)
	return err
}

// serve is the connection's goroutine. Its first turn was begun by newConn.
func (o *goroutineDriver) serve(c *Conn, early []byte) {
	o.finishTurn(c, func() {
		c.set.App.Open(c)
		c.leaveToo()
	})
	o.strand.post(func() { o.strand.enter(c, 1) })
	if len(early) > 0 {
		o.take(c, func() { c.input(early) })
	}
	o.read(c)
}

// read reads until the connection is over, or until it is quiet and is parked.
func (o *goroutineDriver) read(c *Conn) {
	sock := o.watchable()
	var big *[]byte
	for {
		o.extendWait(sock)
		buf := o.first[:]
		if big != nil {
			buf = (*big)[frame.MaxHeader:]
		}
		n, err := o.rw.Read(buf)
		if n > 0 {
			o.take(c, func() { c.input(buf[:n]) })
		}
		if isIdleTimeout(sock, err) && !o.over(c) {
			if o.park(c) {
				break // and somebody else goes on, or has
			}
			continue
		}
		if err != nil || o.over(c) {
			defer o.finish(c)
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
}

func (o *goroutineDriver) over(c *Conn) bool {
	o.turn.Lock()
	defer o.turn.Unlock()
	return c.is(doomed)
}

// take calls f in the turn and writes what it has sent, and then parses the input that
// has waited for that.
func (o *goroutineDriver) take(c *Conn, f func()) {
	o.turn.Lock()
	o.finishTurn(c, f)
}

// finishTurn is take in a turn that has begun.
func (o *goroutineDriver) finishTurn(c *Conn, f func()) {
	for {
		o.call(c, f)
		left := c.partial != nil && c.partial.unparsed != nil
		writer := o.settle(c, true)
		o.turn.Unlock()
		if writer {
			o.drain(c)
		}
		o.awaitDrained()
		if !left || o.over(c) {
			return
		}
		f = c.resume
		o.turn.Lock()
	}
}

// input takes what was read.
func (c *Conn) input(b []byte) {
	c.has(c.driver.strand.engine.now())
	c.set.Meters.BytesIn.Add(c.shard(), uint64(len(b)))
	if c.is(failed | closeSeen | doomed) {
		return
	}
	if c.partial != nil && c.partial.nHead > 0 {
		b = append(append(make([]byte, 0, int(c.partial.nHead)+len(b)), c.partial.head[:c.partial.nHead]...), b...)
		c.partial.nHead = 0
	}
	c.consume(b)
	c.releaseEmptyInput()
}

// finish is the end. Nobody gets a turn any more.
func (o *goroutineDriver) finish(c *Conn) {
	o.turn.Lock()
	c.put(dead)
	func() {
		defer o.strand.engine.guard(c)
		c.set.App.Closed(c, c.endCode())
	}()
	c.countClose(closedNone)
	c.releaseInput()
	o.turn.Unlock()
	o.mu.Lock()
	o.gone, o.sealed = true, true
	if !o.writing {
		o.drop(c)
	}
	writing := o.writing
	o.drained.Broadcast()
	o.mu.Unlock()
	if _, stream := o.rw.(cutter); !stream || writing {
		_ = o.cut()
	}
	_ = o.rw.Close()
	s := o.strand
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.post(func() { s.wheel.take(c) })
	s.engine.count(c.set, -1)
	ended(c.state)
	s.readers.Done()
}

// endCode is the close code that the App gets.
func (c *Conn) endCode() frame.Code {
	if c.code == 0 || !c.is(closeSent|closeSeen) {
		return frame.Abnormal
	}
	return c.code
}
