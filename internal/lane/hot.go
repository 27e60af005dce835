package lane

import (
	"bytes"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/observe/accesslog"
	"millrace/internal/wire/send"
)

// scratch is the memory for reading and answering one connection's requests. A connection
// has one only while it is served. With a thousand connections, memory of their own would
// not be in the processor's cache; this is.
type scratch struct {
	buf  [maxHead]byte
	req  request
	out  outbox
	part stamped   // the header of a part
	now  time.Time // when answerHot was called last
}

var scratchPool = sync.Pool{New: func() any { return new(scratch) }}

// release puts the scratch of a request that another parser has read back into the pool.
func (s *scratch) release() {
	s.req.fields, s.req.header = nil, nil
	scratchPool.Put(s)
}

// outcome says why no further request was answered.
type outcome uint8

const (
	waiting  outcome = iota // more bytes must come
	notHot                  // the next request is not hot
	blocked                 // the client takes no more for now: see pendingWrite
	ended                   // reading failed, or has reached the end
	finished                // the connection's last answer was sent, or sending failed
)

// readState is what was read of a connection, and what of its answers is not sent.
type readState struct {
	p       []byte // the buffer: net/http's if that reads, else made when needed
	n       int    // how many bytes in it are not answered
	err     error
	pending *pendingWrite
}

// pendingWrite is the part of an answer that could not be sent without waiting. Only slow
// clients and files need one.
type pendingWrite struct {
	head, body   []byte
	batch        *[]byte       // head's buffer if that is from bufferPool
	file         choice        // what is sent of a file; of is nil without one
	sent         int64         // bytes of that
	closing      bool          // the connection is to be closed after it
	awaitsClient bool          // the connection is in its loop's out
	unsent       *atomic.Int64 // Lane.unsent, which counts the bytes of head; nil: they are not counted
	counted      int64

	// For the log line of a file, which is written at its end.
	log   *accesslog.Log
	began time.Time
	line  []byte
	req   request
}

// Serve serves requests until one comes that is for net/http: then it returns true, and
// net/http gets the connection, by [ForNetHTTP]. If it returns false, the connection was
// closed, or is back on its loop. Most connections of a site with a filled lane never need
// net/http, nor its memory.
func (c *Conn) Serve() (forNetHTTP bool) {
	if !c.lane.on() || c.startedOnLoop() {
		return true
	}
	defer c.recoverPanic()
	t := &c.reading
	if t.pending != nil && c.sendPending() != nil {
		_ = c.Close()
		return false
	}
	if len(c.readAhead) > 0 {
		t.p = make([]byte, maxHead)
		t.n = c.unbuffer(t.p)
	}
	for {
		if t.n == 0 && c.toLoop() {
			return false
		}
		switch o := c.serveHot(); {
		case o == finished, o == ended && (t.n == 0 || c.answeredBy != byNetHTTP && t.n < minNextBytes):
			_ = c.Close()
			return false
		case o == notHot:
			switch c.serveDirect() {
			case connOver:
				return false
			case lookAgain:
				continue
			}
		}
		c.stopWatching() // net/http does it by its background read
		c.setMode(loopServes)
		c.readAhead, t.p, t.n = bytes.Clone(t.p[:t.n]), nil, 0
		return true
	}
}

// readHot is Read where net/http waits for a request and has no byte of it. It answers hot
// requests, and returns with the first bytes in p that are for net/http.
func (c *Conn) readHot(p []byte) (int, error) {
	t := &c.reading
	t.p, t.err = p[:min(len(p), maxHead)], nil
	t.n = c.unbuffer(t.p) // everything: Read has checked that there is room
	defer func() { t.p = nil }()
	switch o := c.serveHot(); {
	case o == finished:
		// Also if more requests have come: the client would take their answers for
		// those that could not be sent. It is EOF since after any other error
		// net/http sends an answer, which the client would take for the remaining
		// bytes of a file.
		return 0, io.EOF
	case o == ended && (t.n == 0 || c.answeredBy != byNetHTTP && t.n < minNextBytes):
		return 0, t.err
	case c.startsWithEmptyLine():
		// net/http skips empty lines after a POST. If its last request was one, it
		// would skip these, although the lane has answered others since. A zero
		// byte makes it refuse the request, as it should.
		p[0] = 0
		return c.deliverHead(p, t.n), nil
	default: // half a request before the end as well: net/http's next read gets the error
		return c.deliverHead(p, t.n), nil
	}
}

// serveHot reads and answers hot requests, and waits for the client in between. It never
// returns waiting or blocked.
func (c *Conn) serveHot() outcome {
	for {
		var o outcome
		if c.sock != nil {
			o = c.serveHotRaw()
		} else {
			o = c.serveHotStream()
		}
		if o != blocked {
			return o
		}
		if c.sendPending() != nil {
			return finished
		}
	}
}

// serveHotRaw serves a connection with a raw socket. It reads and answers within the
// callback of Go's poller, so that waking, answering and waiting again are one call.
func (c *Conn) serveHotRaw() (o outcome) {
	err := c.sock.Readable(c.onReadable)
	for c.isRecheck(err) {
		err = c.sock.Readable(c.onReadable)
	}
	if err != nil {
		c.reading.err = err
		return ended
	}
	return c.outcome
}

// readable is the callback: it reads and answers what has come. It returns false if it
// is to be called again when more has come.
func (c *Conn) readable(fd uintptr) (done bool) {
	s := scratchPool.Get().(*scratch)
	n := copy(s.buf[:], c.reading.p[:c.reading.n])
	limit := maxHead
	if c.reading.p != nil {
		limit = len(c.reading.p)
	}
	for {
		if n > 0 {
			used, o := c.answerHot(s, s.buf[:n], fd)
			n = copy(s.buf[:], s.buf[used:n])
			if c.outcome = o; o != waiting {
				break
			}
			if n == limit {
				c.outcome = notHot
				break
			}
			c.startHeadTimeout(n)
		}
		m, ok, err := send.TryRead(fd, s.buf[n:limit])
		if !ok {
			c.outcome = waiting
			break
		}
		if m == 0 {
			if err == nil {
				err = io.EOF
			}
			c.reading.err, c.outcome = err, ended
			break
		}
		n += m
	}
	if c.reading.p == nil && n > 0 {
		c.reading.p = make([]byte, maxHead)
	}
	c.reading.n = copy(c.reading.p, s.buf[:n])
	scratchPool.Put(s)
	return c.outcome != waiting
}

// serveHotStream serves a connection without a raw socket, such as one over TLS.
func (c *Conn) serveHotStream() outcome {
	t := &c.reading
	if t.p == nil {
		t.p = make([]byte, maxHead)
	}
	for {
		if t.n > 0 {
			s := scratchPool.Get().(*scratch)
			used, o := c.answerHot(s, t.p[:t.n], noDescriptor)
			scratchPool.Put(s)
			t.n = copy(t.p, t.p[used:t.n])
			if o != waiting {
				return o
			}
			if t.n == len(t.p) {
				return notHot
			}
			c.startHeadTimeout(t.n)
		}
		m, err := c.nc.Read(t.p[t.n:])
		if t.n += m; m == 0 && c.isRecheck(err) {
			continue
		}
		if err != nil {
			t.err = err
			return ended
		}
	}
}

// startHeadTimeout is called when the first n bytes of a head have come: the others must
// come within the header timeout.
func (c *Conn) startHeadTimeout(n int) {
	if n > 0 && !c.headStarted {
		c.headStarted = true
		c.setInputDeadline(c.deadlineIn(c.lane.settings.Load().Header))
	}
}

// minNextBytes is how many bytes net/http reads of a second or later request before it
// answers that it is malformed. Of a connection's first request it needs fewer.
const minNextBytes = 4

// answerHot answers the hot requests at the start of b. It returns how many bytes of b
// they took, and why it has stopped.
func (c *Conn) answerHot(s *scratch, b []byte, fd uintptr) (used int, o outcome) {
	now := time.Now()
	s.now = now
	second := now.Unix()
	sites := c.scope.Sites.Load()
	settings := c.lane.settings.Load()
	q := &s.req
	for used < len(b) && o == waiting {
		req := b[used:]
		size, v := match(req, q)
		if v == short {
			break
		}
		if v == refused || size < len(req) && c.lane.cutsShort(now) {
			o = notHot
			break
		}
		r := c.lane.table.find(sites.ID(q.value(req, hdrHost)), req, q, second)
		if r == nil || !settings.allow(req, q) {
			o = notHot
			break
		}
		as := r.choose(req, q)
		if as.of != nil && r.gate != nil {
			as = c.applyGate(as, q, req, now, settings)
		}
		ok := as.of != nil
		if ok {
			if f := as.file(q); f != nil {
				ok = f.Retain() // false if it was closed just now
			}
		}
		if !ok {
			o = notHot
			break
		}
		used += size
		c.headStarted, c.answeredBy = false, byLane
		o = c.reply(s, as, req[:size], replyParams{used == len(b), fd, now, settings.Log})
	}
	if o == waiting || o == notHot {
		if f := c.flush(&s.out, fd, false); f != waiting {
			o = f
		}
	}
	if used > 0 {
		c.awaitRequest(now, settings)
	}
	if o == notHot && c.answeredBy != byNetHTTP && len(b)-used < minNextBytes {
		o = waiting
	}
	return used, o
}

// replyParams is what an answer depends on besides the response.
type replyParams struct {
	last bool // no further request has come
	fd   uintptr
	now  time.Time
	log  *accesslog.Log
}

// reply sends an answer, or leaves it in the outbox if another request has come.
func (c *Conn) reply(s *scratch, as choice, req []byte, y replyParams) (o outcome) {
	room := &s.part
	if s.out.borrowed { // by the part before this one
		room = new(stamped)
	}
	st := as.text(y.now.Unix(), room)
	head, body, sent := st.bytes, []byte(nil), as.size
	closing := y.last && c.lane.draining.Load()
	if closing {
		head = st.withClose()
	}
	switch {
	case s.req.headOnly:
		head, sent = head[:len(head)-(len(st.bytes)-st.head)], 0
	case as.file(&s.req) != nil:
		return c.replyFile(s, as, req, head, closing, y)
	case len(st.bytes) == st.head: // the body is larger than contiguous, or there is none
		body = as.body()
	}
	o = c.queue(&s.out, head, body, y.fd)
	s.out.borrowed = st == &s.part && s.out.batch == nil
	switch {
	case o == waiting && y.last:
		o = c.flush(&s.out, y.fd, closing)
	case o == blocked:
		c.reading.pending.closing = closing
	}
	c.record(y.log, answerRecord{as.of, &s.req, req, as.status, sent, y.now, http1, ""})
	return o
}

// bytesPerEvent is the most that a loop sends for one event, and the largest file that
// is sent within a poller's callback: other connections wait for it, some hundred
// microseconds.
const bytesPerEvent = 512 << 10

// replyFile sends as much of a file as the client takes now, if the file is in the page
// cache. The remaining bytes, and all of a file that may have to be read from the disk,
// are left to sendPending, which may wait. The caller's reference to the file goes over to
// the pendingWrite.
func (c *Conn) replyFile(s *scratch, as choice, req, head []byte, closing bool, y replyParams) outcome {
	o, sent := c.flush(&s.out, y.fd, false), int64(0)
	f, base := as.of.answer.File, as.of.answer.Base+as.base
	switch {
	case o == blocked: // what was queued goes first
		head = slices.Concat(c.reading.pending.head, c.reading.pending.body, head)
		c.reading.pending.release()
	case o != waiting:
		f.Release()
		return o
	case y.fd < onTLSLoop && !closing && as.size <= bytesPerEvent && as.inMemory(y.now.Unix()):
		n, m, err := send.TrySendFile(y.fd, head, f, base, as.size)
		c.lane.meters.Sent.Writev.Add(c.shard, uint64(n))
		c.lane.meters.Sent.Sendfile.Add(c.shard, uint64(m))
		if err != nil || m == as.size {
			return c.fileSent(s, as, req, m, y, err)
		}
		head, sent = head[n:], m
	}
	if as.isPart() {
		head = bytes.Clone(head) // from the scratch
	}
	rs := &pendingWrite{head: head, file: as, sent: sent, closing: closing, log: y.log, began: y.now, req: s.req}
	if !as.of.noLog && y.log.Wants(y.now, as.status, 0) {
		rs.line = bytes.Clone(req)
	}
	c.reading.pending = rs
	return blocked
}

// fileSent counts and logs an answer whose file was sent at once, or failed to be.
func (c *Conn) fileSent(s *scratch, as choice, req []byte, sent int64, y replyParams, err error) outcome {
	o := waiting
	if err != nil {
		c.reading.err, o = err, finished
	} else {
		as.fileSent(y.now.Unix())
	}
	as.of.answer.File.Release()
	c.record(y.log, answerRecord{as.of, &s.req, req, as.status, sent, y.now, http1, ""})
	return o
}

// sendPending sends what could not be sent at once, and waits for the client and the disk.
func (c *Conn) sendPending() error {
	r := c.reading.pending
	c.setInputDeadline(0) // no idle timeout meanwhile, however slow the disk is
	var n int64
	var err error
	if r.file.of == nil {
		n, err = c.transmit(r.head, r.body)
		c.lane.meters.Sent.Writev.Add(c.shard, uint64(n))
	} else {
		f, from := r.fileFrom()
		n, err = c.sendFile(r.head, f.Section(from, r.file.size-r.sent))
		r.sent += n
	}
	return c.endPending(err)
}

// endPending counts and logs an answer that could not be sent at once; err is the outcome
// of sending. It returns err, or io.EOF if the connection is to be closed.
func (c *Conn) endPending(err error) error {
	r := c.reading.pending
	c.reading.pending = nil
	if r.file.of != nil {
		if err == nil {
			r.file.fileSent(time.Now().Unix())
		}
		r.file.of.answer.File.Release()
		c.record(r.log, answerRecord{r.file.of, &r.req, r.line, r.file.status, r.sent, r.began, http1, ""})
	}
	r.release()
	if c.h2host != nil {
		c.h2conn.Load().ReportWait()
	} else {
		c.awaitRequest(time.Now(), c.lane.settings.Load())
	}
	if err == nil && r.closing {
		err = io.EOF // net/http closes the connection
	}
	return err
}

// fileFrom returns the file, and where what is not sent of it begins.
func (r *pendingWrite) fileFrom() (f *send.File, from int64) {
	a := r.file.of.answer
	return a.File, a.Base + r.file.base + r.sent
}

func (r *pendingWrite) release() {
	if r.unsent != nil {
		r.unsent.Add(-r.counted)
		r.unsent = nil
	}
	if r.batch != nil {
		bufferPool.Put(r.batch)
		r.batch = nil
	}
}

// outbox collects the answers to pipelined requests.
type outbox struct {
	head, body []byte  // the first answer, not copied: mostly it is the only one
	borrowed   bool    // head is in scratch.part
	batch      *[]byte // several, in a pooled buffer
	n          int
}

// queue adds an answer to the outbox, after flushing it if it is full.
func (c *Conn) queue(out *outbox, head, body []byte, fd uintptr) outcome {
	held := out.n + len(out.head) + len(out.body)
	if held > 0 && held+len(head)+len(body) > maxWrite {
		if o := c.flush(out, fd, false); o != waiting {
			if o == blocked { // a slow client: this answer waits behind the others
				r := c.reading.pending
				r.body = append(append(bytes.Clone(r.body), head...), body...)
			}
			return o
		}
		held = 0
	}
	if held == 0 {
		out.head, out.body = head, body
		return waiting
	}
	if out.batch == nil {
		out.batch = bufferPool.Get().(*[]byte)
		out.add(out.head)
		out.add(out.body)
		out.head, out.body = nil, nil
	}
	out.add(head)
	out.add(body)
	return waiting
}

// add appends a copy of b to the batch, which has room for it.
func (o *outbox) add(b []byte) { o.n += copy((*o.batch)[o.n:], b) }

// These stand for the descriptor of a connection over TLS: one with a goroutine, which
// waits for the client, and one on a loop.
const (
	noDescriptor = ^uintptr(0)
	onTLSLoop    = noDescriptor - 1
)

// flush sends the outbox. What the client does not take at once becomes a pendingWrite;
// with noDescriptor it waits instead.
func (c *Conn) flush(out *outbox, fd uintptr, closing bool) outcome {
	head, body, batch, borrowed := out.head, out.body, out.batch, out.borrowed
	if batch != nil {
		head = (*batch)[:out.n]
	}
	*out = outbox{}
	o, n := waiting, 0
	switch {
	case len(head) == 0:
	case fd == noDescriptor:
		sent, err := c.transmit(head, body)
		if n = int(sent); err != nil {
			c.reading.err, o = err, finished
		}
	default:
		var err error
		whole := true
		if fd == onTLSLoop {
			n, err = c.seal(head, body)
			whole = !c.wire.full()
		} else {
			n, err = send.TryWrite(fd, head, body)
		}
		if err != nil {
			c.reading.err, o = err, finished
		} else if n < len(head)+len(body) || !whole {
			skip := min(n, len(head))
			if borrowed {
				head = bytes.Clone(head)
			}
			c.reading.pending = &pendingWrite{head: head[skip:], body: body[n-skip:], batch: batch, closing: closing}
			o, batch = blocked, nil
		}
	}
	if n > 0 {
		c.lane.meters.Sent.Writev.Add(c.shard, uint64(n))
	}
	if batch != nil {
		bufferPool.Put(batch)
	}
	if o == waiting && closing {
		c.reading.err, o = io.EOF, finished // net/http closes the connection
	}
	return o
}
