package lane

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
	"unsafe"

	"millrace/internal/accesslog"
	"millrace/internal/send"
)

// scratch is what it takes to look at one connection's bytes. It is borrowed
// only while there are any: at a thousand connections memory of their own
// would be cold at every request, this is in the cache.
type scratch struct {
	buf [maxHead]byte
	req request
	out outbox
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// outcome says why hot stopped looking at bytes.
type outcome uint8

const (
	waiting  outcome = iota // for more bytes
	foreign                 // what is left is for net/http
	blocked                 // the client takes no more for now: see rest
	ended                   // the client sends no more, or reading failed
	finished                // the last answer was sent, or could not be: nothing may follow
)

// talk is where hot stands on one connection.
type talk struct {
	p    []byte // where bytes stay that are not answered: net/http's buffer; before net/http, made when needed
	n    int    // how many are in it
	err  error
	rest *rest
}

// rest is what could not be sent without waiting. Only slow clients and files
// get one.
type rest struct {
	head, body []byte
	batch      *[]byte // where head is, if borrowed
	file       *response
	closing    bool // nothing follows

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
	if !c.lane.on() {
		return true
	}
	defer c.guard()
	t := &c.talk
	if t.rest != nil && c.sendRest() != nil {
		_ = c.Close()
		return false
	}
	if len(c.held) > 0 {
		t.p = make([]byte, maxHead)
		t.n = c.unhold(t.p)
	}
	o := c.converse()
	if o == finished || o == ended && t.n == 0 {
		_ = c.Close()
		return false
	}
	c.held, t.p, t.n = bytes.Clone(t.p[:t.n]), nil, 0
	return true
}

// hot reads between requests, when net/http holds nothing of the connection.
// Complete hot requests are answered right here; it returns only with bytes
// that are for net/http, which stand in p then.
func (c *Conn) hot(p []byte) (int, error) {
	t := &c.talk
	t.p, t.err = p[:min(len(p), maxHead)], nil
	if t.n = c.unhold(t.p); len(c.held) > 0 {
		c.ledger.lost = true // more than there is room for: nothing may be read before it
		return t.n, nil
	}
	defer func() { t.p = nil }()
	switch o := c.converse(); {
	case o == finished:
		// Even if more requests have come: their answers would be taken
		// for those that could not be sent. Only at EOF net/http adds no
		// answer of its own, which would be taken for the rest of a file.
		return 0, io.EOF
	case o == ended && (t.n == 0 || c.answered && t.n < leastNext):
		return 0, t.err
	case c.emptyLine():
		// After a POST net/http forgives empty lines before the next
		// request, and it does not know that there were others since,
		// after which it would not. Let it see what it cannot forgive.
		p[0] = 0
		return c.handOver(p, t.n), nil
	default: // after the end half a request is for net/http, too; the error will come again
		return c.handOver(p, t.n), nil
	}
}

// converse answers hot requests until it cannot go on, and says why.
func (c *Conn) converse() outcome {
	for {
		var o outcome
		if c.sock != nil {
			o = c.hotRaw()
		} else {
			o = c.hotStream()
		}
		if o != blocked {
			return o
		}
		if c.sendRest() != nil {
			return finished
		}
	}
}

// hotRaw works within the poller's callback: being woken, reading, answering
// and going back to wait are one pass through memory.
func (c *Conn) hotRaw() (o outcome) {
	err := c.sock.Readable(c.onReadable)
	if err != nil {
		c.talk.err = err
		return ended
	}
	return c.outcome
}

// emptyLine reports whether what follows answers of the lane begins with the
// end of a line.
func (c *Conn) emptyLine() bool {
	return c.answered && c.talk.n > 0 && (c.talk.p[0] == '\r' || c.talk.p[0] == '\n')
}

// readable is c.onReadable.
func (c *Conn) readable(fd uintptr) (done bool) {
	s := scratches.Get().(*scratch)
	n := copy(s.buf[:], c.talk.p[:c.talk.n])
	limit := maxHead
	if c.talk.p != nil {
		limit = len(c.talk.p)
	}
	for {
		if n > 0 {
			used, o := c.answer(s, s.buf[:n], fd)
			n = copy(s.buf[:], s.buf[used:n])
			if c.outcome = o; o != waiting {
				break
			}
			if n == limit {
				c.outcome = foreign
				break
			}
			c.beginHead(n)
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
			c.talk.err, c.outcome = err, ended
			break
		}
		n += m
	}
	if c.talk.p == nil && n > 0 {
		c.talk.p = make([]byte, maxHead)
	}
	c.talk.n = copy(c.talk.p, s.buf[:n])
	scratches.Put(s)
	return c.outcome != waiting
}

// hotStream is for connections without a raw socket: TLS.
func (c *Conn) hotStream() outcome {
	t := &c.talk
	if t.p == nil {
		t.p = make([]byte, maxHead)
	}
	for {
		if t.n > 0 {
			s := scratches.Get().(*scratch)
			used, o := c.answer(s, t.p[:t.n], noDescriptor)
			scratches.Put(s)
			t.n = copy(t.p, t.p[used:t.n])
			if o != waiting {
				return o
			}
			if t.n == len(t.p) {
				return foreign
			}
			c.beginHead(t.n)
		}
		m, err := c.nc.Read(t.p[t.n:])
		t.n += m
		if err != nil {
			t.err = err
			return ended
		}
	}
}

// beginHead starts the clock for half a request: now it must come to its end.
func (c *Conn) beginHead(n int) {
	if n > 0 && !c.headBegun {
		c.headBegun = true
		c.deadline.Store(c.in(c.lane.settings.Load().Header))
	}
}

// leastNext is how many bytes of a next request net/http waits for, without an
// answer if they do not come; of a first one it would judge less.
const leastNext = 4

// answer answers the hot requests at the start of b, and returns how much of b
// they were and why it stopped.
func (c *Conn) answer(s *scratch, b []byte, fd uintptr) (used int, o outcome) {
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
		if v == refused {
			o = foreign
			break
		}
		r := c.lane.table.find(sites.ID(q.value(req, hdrHost)), req, q, second)
		if r == nil {
			o = foreign
			break
		}
		notModified, ok := r.choose(req, q)
		if file := r.answer.File; ok && file != nil && !notModified && !q.headOnly {
			ok = file.Retain() // not when it is being replaced at this moment
		}
		if !ok {
			o = foreign
			break
		}
		used += size
		c.headBegun, c.answered = false, true
		o = c.reply(s, r, req[:size], reply{notModified, used == len(b), fd, now, settings.Log})
	}
	if o == waiting || o == foreign {
		if f := c.flush(&s.out, fd, false); f != waiting {
			o = f
		}
	}
	if used > 0 {
		c.setIdle(now, settings)
	}
	if o == foreign && c.answered && len(b)-used < leastNext {
		o = waiting
	}
	return used, o
}

// reply is the circumstances of one answer.
type reply struct {
	notModified bool
	last        bool // nothing more has come
	fd          uintptr
	now         time.Time
	log         *accesslog.Log
}

// reply sends one answer, or leaves it in the outbox when more will follow.
func (c *Conn) reply(s *scratch, r *response, req []byte, y reply) (o outcome) {
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
		head = st.closing()
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
		c.talk.rest.closing = closing
	}
	c.record(y.log, answered{r, &s.req, req, status, sent, y.now})
	return o
}

// replyFile leaves a file to sendRest, outside the poller's callback, where
// it may wait for the client. The reference to the file goes with it.
func (c *Conn) replyFile(s *scratch, r *response, req, head []byte, closing bool, y reply) outcome {
	rs := &rest{file: r, closing: closing, log: y.log, began: y.now, req: s.req}
	if y.log != nil {
		rs.line = bytes.Clone(req)
	}
	if o := c.flush(&s.out, y.fd, false); o == blocked {
		// What was queued before it goes first.
		rs.head = slices.Concat(c.talk.rest.head, c.talk.rest.body, head)
		c.talk.rest.release()
	} else if o != waiting {
		r.answer.File.Release()
		return o
	} else {
		rs.head = head
	}
	c.talk.rest = rs
	return blocked
}

// sendRest sends what could not be sent at once.
func (c *Conn) sendRest() error {
	r := c.talk.rest
	c.talk.rest = nil
	var err error
	if r.file == nil {
		var n int64
		n, err = c.transmit(r.head, r.body)
		c.lane.meters.Sent.Writev.Add(c.shard, uint64(n))
	} else {
		a := r.file.answer
		var sent int64
		sent, err = c.sendFile(r.head, a.File.Section(a.Base, a.Size))
		a.File.Release()
		c.record(r.log, answered{r.file, &r.req, r.line, r.file.status, sent, r.began})
	}
	r.release()
	c.setIdle(time.Now(), c.lane.settings.Load())
	if err == nil && r.closing {
		err = io.EOF // net/http closes the connection
	}
	return err
}

func (r *rest) release() {
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
				r := c.talk.rest
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

// noDescriptor stands for connections without a raw socket.
const noDescriptor = ^uintptr(0)

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
			c.talk.err, o = err, finished
		}
	default:
		var err error
		if n, err = send.TryWrite(fd, head, body); err != nil {
			c.talk.err, o = err, finished
		} else if n < len(head)+len(body) {
			skip := min(n, len(head))
			c.talk.rest = &rest{head: head[skip:], body: body[n-skip:], batch: batch, closing: closing}
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
		c.talk.err, o = io.EOF, finished // net/http closes the connection
	}
	return o
}

// answered is one answer for the books.
type answered struct {
	response *response
	req      *request
	bytes    []byte // the request's own; req points into them
	status   int
	sent     int64 // bytes of the body
	began    time.Time
}

// record counts an answer and logs it.
func (c *Conn) record(log *accesslog.Log, a answered) {
	took := time.Since(a.began)
	a.response.job.Fast.Observe(c.shard, a.status, a.sent, took)
	if log == nil {
		return
	}
	if c.remote == "" {
		c.remote = RemoteHost(c.RemoteAddr())
	}
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
		Remote:    c.remote,
		Host:      view(a.req.value(a.bytes, hdrHost)),
		Method:    method,
		Target:    view(a.bytes[target.from:target.to]),
		Proto:     "HTTP/1.1",
		Referer:   view(a.req.value(a.bytes, hdrReferer)),
		UserAgent: view(a.req.value(a.bytes, hdrUserAgent)),
		Status:    a.status,
		Bytes:     a.sent,
		Duration:  took,
		Fast:      true,
		Shard:     c.shard,
	})
}

// view is b as a string without a copy. The log only reads it during Write,
// while the read buffer stands still.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// RemoteHost is a client's address as it is logged: without the port, "-" on a
// UNIX socket.
func RemoteHost(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	switch {
	case !ok:
		return "-"
	case tcp.Zone != "":
		return tcp.IP.String() + "%" + tcp.Zone
	}
	return tcp.IP.String()
}
