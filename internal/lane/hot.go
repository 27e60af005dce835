package lane

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"millrace/internal/accesslog"
	"millrace/internal/send"
)

// scratch is the memory needed to look at one connection's bytes. It is borrowed
// only while there are any. With a thousand connections, memory of their own would
// be cold at every request; this stays in the processor's cache.
type scratch struct {
	buf [maxHead]byte
	req request
	out outbox
}

var scratchPool = sync.Pool{New: func() any { return new(scratch) }}

// outcome says why hot stopped looking at bytes.
type outcome uint8

const (
	waiting  outcome = iota // for more bytes
	notHot                  // what is left is for net/http
	blocked                 // the client takes no more for now: see pendingWrite
	ended                   // the client sends no more, or reading failed
	finished                // the last answer was sent, or could not be: nothing may follow
)

// readState is where hot stands on one connection.
type readState struct {
	p       []byte // where bytes stay that are not answered: net/http's buffer; before net/http, made when needed
	n       int    // how many are in it
	err     error
	pending *pendingWrite
}

// pendingWrite is what could not be sent without waiting. Only slow clients and
// files need one.
type pendingWrite struct {
	head, body   []byte
	batch        *[]byte // where head is, if borrowed
	file         *response
	sent         int64         // of the file
	closing      bool          // nothing follows
	awaitsClient bool          // a loop has it among those that wait for their clients
	unsent       *atomic.Int64 // counts holds, which head has of it; nil: nothing does
	counted      int64

	// For the log line of a file, which is written at its end.
	log   *accesslog.Log
	began time.Time
	line  []byte
	req   request
}

// Serve answers a new connection's requests for as long as they are hot. It
// reports true when something has come that is for net/http, which then gets
// the connection and sees it for the first time; otherwise the connection has
// ended and is closed. Most connections of a site with a warm lane never cost
// what net/http's state of one does.
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
		c.stopWatching() // net/http looks itself
		c.setMode(loopServes)
		c.readAhead, t.p, t.n = bytes.Clone(t.p[:t.n]), nil, 0
		return true
	}
}

// readHot reads between requests, when net/http holds nothing of the connection.
// Complete hot requests are answered right here; it returns only with bytes
// that are for net/http, which stand in p then.
func (c *Conn) readHot(p []byte) (int, error) {
	t := &c.reading
	t.p, t.err = p[:min(len(p), maxHead)], nil
	t.n = c.unbuffer(t.p) // all of it: Read has seen that there is room
	defer func() { t.p = nil }()
	switch o := c.serveHot(); {
	case o == finished:
		// Even if more requests have come: their answers would be taken
		// for those that could not be sent. Only at EOF net/http adds no
		// answer of its own, which would be taken for the rest of a file.
		return 0, io.EOF
	case o == ended && (t.n == 0 || c.answeredBy != byNetHTTP && t.n < minNextBytes):
		return 0, t.err
	case c.startsWithEmptyLine():
		// After a POST net/http forgives empty lines before the next
		// request, and it does not know that there were others since,
		// after which it would not. Let it see what it cannot forgive.
		p[0] = 0
		return c.deliverHead(p, t.n), nil
	default: // after the end half a request is for net/http, too; the error will come again
		return c.deliverHead(p, t.n), nil
	}
}

// serveHot answers hot requests until it cannot go on, and says why.
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

// serveHotRaw works within the poller's callback: being woken, reading, answering
// and going back to wait are one pass through memory.
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

// readable is c.onReadable.
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

// serveHotStream is for connections without a raw socket: TLS.
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

// startHeadTimeout starts the clock for half a request: now it must come to its end.
func (c *Conn) startHeadTimeout(n int) {
	if n > 0 && !c.headStarted {
		c.headStarted = true
		c.setInputDeadline(c.deadlineIn(c.lane.settings.Load().Header))
	}
}

// minNextBytes is how many bytes of a next request net/http waits for before it
// answers a malformed one; the first request of a connection it judges by fewer.
const minNextBytes = 4

// answerHot answers the hot requests at the start of b, and returns how much of b
// they were and why it stopped.
func (c *Conn) answerHot(s *scratch, b []byte, fd uintptr) (used int, o outcome) {
	now := time.Now()
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
		if r == nil {
			o = notHot
			break
		}
		notModified, ok := r.choose(req, q)
		if ok && r.gate != nil {
			if as := c.applyGate(r, q, req, now, settings); as != r {
				r, notModified, ok = as, false, as != nil
			}
		}
		if ok && r.answer.File != nil && !notModified && !q.headOnly {
			ok = r.answer.File.Retain() // not when it is being replaced at this moment
		}
		if !ok {
			o = notHot
			break
		}
		used += size
		c.headStarted, c.answeredBy = false, byLane
		o = c.reply(s, r, req[:size], replyParams{notModified, used == len(b), fd, now, settings.Log})
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

// replyParams is what one answer depends on besides its content.
type replyParams struct {
	notModified bool
	last        bool // nothing more has come
	fd          uintptr
	now         time.Time
	log         *accesslog.Log
}

// reply sends one answer, or leaves it in the outbox when more will follow.
func (c *Conn) reply(s *scratch, r *response, req []byte, y replyParams) (o outcome) {
	status, sent := r.status, r.answer.Size
	var st *stamped
	if y.notModified {
		status, sent, st = http.StatusNotModified, 0, r.stamp304(y.now.Unix())
	} else {
		st = r.stamp(y.now.Unix())
	}
	head, body := st.bytes, []byte(nil)
	closing := y.last && c.lane.draining.Load()
	if closing {
		head = st.withClose()
	}
	switch {
	case y.notModified:
	case s.req.headOnly:
		head, sent = head[:len(head)-(len(st.bytes)-st.head)], 0
	case r.answer.File != nil:
		return c.replyFile(s, r, req, head, closing, y)
	case len(st.bytes) == st.head: // too large to stand beside its header
		body = r.answer.Body
	}
	switch o = c.queue(&s.out, head, body, y.fd); {
	case o == waiting && y.last:
		o = c.flush(&s.out, y.fd, closing)
	case o == blocked:
		c.reading.pending.closing = closing
	}
	c.record(y.log, answerRecord{r, &s.req, req, status, sent, y.now, http1, ""})
	return o
}

// bytesPerEvent is the largest file that is sent within the poller's callback, where
// the loop's other connections wait for it: some hundred microseconds.
const bytesPerEvent = 512 << 10

// replyFile sends a file that is in the system's memory as far as the client
// takes it, and leaves the rest, or all of one that may have to be read from the
// disk, to sendPending, outside the poller's callback, where it may wait. The
// reference to the file goes with it.
func (c *Conn) replyFile(s *scratch, r *response, req, head []byte, closing bool, y replyParams) outcome {
	o, sent := c.flush(&s.out, y.fd, false), int64(0)
	a := r.answer
	switch {
	case o == blocked: // what was queued before it goes first
		head = slices.Concat(c.reading.pending.head, c.reading.pending.body, head)
		c.reading.pending.release()
	case o != waiting:
		a.File.Release()
		return o
	case y.fd < onTLSLoop && !closing && a.Size <= bytesPerEvent && a.File.Warm(y.now.Unix()):
		n, m, err := send.TrySendFile(y.fd, head, a.File, a.Base, a.Size)
		c.lane.meters.Sent.Writev.Add(c.shard, uint64(n))
		c.lane.meters.Sent.Sendfile.Add(c.shard, uint64(m))
		if err != nil || m == a.Size {
			return c.fileSent(s, r, req, m, y, err)
		}
		head, sent = head[n:], m
	}
	rs := &pendingWrite{head: head, file: r, sent: sent, closing: closing, log: y.log, began: y.now, req: s.req}
	if !r.noLog && y.log.Wants(y.now, r.status, 0) {
		rs.line = bytes.Clone(req)
	}
	c.reading.pending = rs
	return blocked
}

// fileSent ends an answer whose file went at once.
func (c *Conn) fileSent(s *scratch, r *response, req []byte, sent int64, y replyParams, err error) outcome {
	o := waiting
	if err != nil {
		c.reading.err, o = err, finished
	} else {
		r.answer.File.WasSent(y.now.Unix())
	}
	r.answer.File.Release()
	c.record(y.log, answerRecord{r, &s.req, req, r.status, sent, y.now, http1, ""})
	return o
}

// sendPending sends what could not be sent at once.
func (c *Conn) sendPending() error {
	r := c.reading.pending
	c.setInputDeadline(0) // a connection that is answered is not idle, however slow the disk
	var n int64
	var err error
	if r.file == nil {
		n, err = c.transmit(r.head, r.body)
		c.lane.meters.Sent.Writev.Add(c.shard, uint64(n))
	} else {
		a := r.file.answer
		n, err = c.sendFile(r.head, a.File.Section(a.Base+r.sent, a.Size-r.sent))
		r.sent += n
	}
	return c.endPending(err)
}

// endPending counts and logs an answer that could not be sent at once. The error is err, or
// io.EOF if the connection is to be closed.
func (c *Conn) endPending(err error) error {
	r := c.reading.pending
	c.reading.pending = nil
	if r.file != nil {
		if err == nil {
			r.file.answer.File.WasSent(time.Now().Unix())
		}
		r.file.answer.File.Release()
		c.record(r.log, answerRecord{r.file, &r.req, r.line, r.file.status, r.sent, r.began, http1, ""})
	}
	r.release()
	c.awaitRequest(time.Now(), c.lane.settings.Load())
	if err == nil && r.closing {
		err = io.EOF // net/http closes the connection
	}
	return err
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
	batch      *[]byte // several, in a pooled buffer
	n          int
}

// queue adds an answer to the outbox.
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

// add copies b behind what is there; there is room for it.
func (o *outbox) add(b []byte) { o.n += copy((*o.batch)[o.n:], b) }

// Stand-ins for the descriptor of a connection over TLS: with a goroutine, which
// waits for the client, and on a loop.
const (
	noDescriptor = ^uintptr(0)
	onTLSLoop    = noDescriptor - 1
)

// flush sends the outbox, as far as that goes without waiting.
func (c *Conn) flush(out *outbox, fd uintptr, closing bool) outcome {
	head, body, batch := out.head, out.body, out.batch
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
			whole = len(c.wire.unsent) == 0
		} else {
			n, err = send.TryWrite(fd, head, body)
		}
		if err != nil {
			c.reading.err, o = err, finished
		} else if n < len(head)+len(body) || !whole {
			skip := min(n, len(head))
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

// answerRecord is what is counted and logged of one answer.
type answerRecord struct {
	response *response
	req      *request
	bytes    []byte // the request's own; req points into them
	status   int
	sent     int64 // bytes of the body
	began    time.Time
	proto    string
	id       string // set when it is logged
}

// record counts an answer and logs it.
func (c *Conn) record(log *accesslog.Log, a answerRecord) {
	took := a.count(c.shard)
	if a.bytes == nil || a.response.noLog || !log.Wants(a.began, a.status, took) {
		return
	}
	if c.remote == "" {
		c.remote = RemoteHost(c.RemoteAddr())
	}
	settings := c.lane.settings.Load()
	a.id = settings.requestID(c.remote, a.req, a.bytes)
	a.log(log, settings.loggedClient(c.remote, a.req, a.bytes), c.scope.Secure, c.shard, took)
}

// count counts an answer and returns how long it took.
func (a *answerRecord) count(shard uint32) time.Duration {
	took := time.Since(a.began)
	a.response.job.Fast.Observe(shard, a.status, a.sent, took)
	return took
}

func (a *answerRecord) log(log *accesslog.Log, remote string, secure bool, shard uint32, took time.Duration) {
	target := a.req.path
	if a.req.hasQuery {
		target.to = a.req.query.to
	}
	method := http.MethodGet
	if a.req.headOnly {
		method = http.MethodHead
	}
	log.Write(&accesslog.Record{
		Time:      a.began,
		Remote:    remote,
		Host:      view(a.req.value(a.bytes, hdrHost)),
		Method:    method,
		Target:    view(a.bytes[target.from:target.to]),
		Proto:     a.proto,
		Referer:   view(a.req.value(a.bytes, hdrReferer)),
		UserAgent: view(a.req.value(a.bytes, hdrUserAgent)),
		Status:    a.status,
		Bytes:     a.sent,
		Duration:  took,
		Fast:      true,
		Secure:    secure,
		ID:        a.id,
		Shard:     shard,
	})
}

const http1 = "HTTP/1.1"

// bytesOf is s as bytes without a copy, to be read only.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// view is b as a string without a copy. The log only reads it during Write,
// while the read buffer stands still.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
