package lane

import (
	"io"
	"net"
	"net/http"
	"time"
	"unsafe"

	"millrace/internal/accesslog"
)

// hot reads between requests, when net/http holds nothing of the connection.
// Complete hot requests are answered right here, into p's own space, and it
// reads on; it returns only with bytes that are for net/http.
func (c *Conn) hot(p []byte) (int, error) {
	n := c.unhold(p)
	for {
		if n > 0 {
			used, v, err := c.answer(p[:n])
			if err != nil {
				return 0, err
			}
			n = copy(p, p[used:n])
			if v == refused || n == len(p) {
				return c.handOver(p, n), nil
			}
		}
		if n > 0 && !c.headBegun { // half a request: now it must come to its end
			c.headBegun = true
			c.deadline.Store(c.in(c.lane.settings.Load().Header))
		}
		m, err := c.read(p[n:])
		n += m
		if err != nil {
			if n == 0 {
				return 0, err
			}
			return c.handOver(p, n), nil // the error will come again
		}
	}
}

// outbox collects the answers to pipelined requests.
type outbox struct {
	head, body []byte  // the first answer, not copied: mostly it is the only one
	batch      *[]byte // several, in a pooled buffer
	n          int
}

// answer answers the hot requests at the start of b. used is how much of b
// they were; v says what follows: refused when that is for net/http, short
// when more must come (also when nothing is left).
func (c *Conn) answer(b []byte) (used int, v verdict, err error) {
	now := time.Now()
	second := now.Unix()
	sites := c.scope.Sites.Load()
	settings := c.lane.settings.Load()
	var out outbox
	for v = short; used < len(b); {
		req := b[used:]
		var size int
		if size, v = match(req, &c.req); v != matched {
			break
		}
		r := c.lane.table.find(sites.ID(c.req.value(req, hdrHost)), req, &c.req, second)
		if r == nil {
			v = refused
			break
		}
		notModified, ok := r.choose(req, &c.req)
		if !ok || (r.answer.File != nil && !r.answer.File.Retain()) {
			v = refused
			break
		}
		used += size
		last := used == len(b)
		v = short
		status, sent, err := c.reply(r, notModified, second, last, &out)
		if r.answer.File != nil {
			r.answer.File.Release()
		}
		c.record(settings.Log, r, req, status, sent, now)
		if err != nil {
			out.drop()
			return used, v, err
		}
		c.headBegun = false
	}
	if err = c.flush(&out); err != nil {
		return used, v, err
	}
	if used > 0 {
		c.deadline.Store(now.Add(settings.Idle).UnixNano())
	}
	return used, v, nil
}

// reply sends one answer, or leaves it in the outbox when more may follow.
// sent is the body's length, as far as it is known.
func (c *Conn) reply(r *response, notModified bool, second int64, last bool, out *outbox) (status int, sent int64, err error) {
	status = http.StatusOK
	var s *stamped
	if notModified {
		status, s = http.StatusNotModified, r.stamp304(second)
	} else {
		s, sent = r.stamp(second), r.answer.Size
	}
	head, body := s.bytes, []byte(nil)
	closing := last && c.lane.draining.Load()
	if closing {
		head = s.closing()
	}
	switch {
	case notModified:
		sent = 0
	case c.req.headOnly:
		head, sent = head[:len(head)-(len(s.bytes)-s.head)], 0
	case r.answer.File != nil:
		if err = c.flush(out); err == nil {
			sent, err = c.sendFile(head, r.answer.File.Section(0, r.answer.Size))
		}
		if err == nil && closing {
			err = io.EOF
		}
		return status, sent, err
	case len(s.bytes) == s.head: // too large to stand beside its header
		body = r.answer.Body
	}
	if err = c.queue(out, head, body); err != nil || !last {
		return status, sent, err
	}
	if err = c.flush(out); err == nil && closing {
		err = io.EOF // net/http closes the connection
	}
	return status, sent, err
}

// queue adds an answer to the outbox.
func (c *Conn) queue(out *outbox, head, body []byte) error {
	if out.batch == nil && out.head == nil {
		out.head, out.body = head, body
		return nil
	}
	if out.batch == nil {
		out.batch = bufferPool.Get().(*[]byte)
		out.n = 0
		if len(out.head)+len(out.body) > len(*out.batch) {
			if err := c.flush(out); err != nil {
				return err
			}
			return c.queue(out, head, body)
		}
		out.n = copy(*out.batch, out.head)
		out.n += copy((*out.batch)[out.n:], out.body)
		out.head, out.body = nil, nil
	}
	if len(*out.batch)-out.n < len(head)+len(body) {
		if err := c.flush(out); err != nil {
			return err
		}
		return c.queue(out, head, body)
	}
	out.n += copy((*out.batch)[out.n:], head)
	out.n += copy((*out.batch)[out.n:], body)
	return nil
}

// flush writes the outbox.
func (c *Conn) flush(out *outbox) error {
	head, body := out.head, out.body
	if out.batch != nil && out.n > 0 {
		head, body = (*out.batch)[:out.n], nil
	}
	var err error
	if len(head) > 0 {
		var n int64
		n, err = c.transmit(head, body)
		c.lane.meters.Sent.Writev.Add(c.shard, uint64(n))
	}
	out.drop()
	return err
}

func (o *outbox) drop() {
	if o.batch != nil {
		bufferPool.Put(o.batch)
	}
	*o = outbox{}
}

// record counts an answer and logs it.
func (c *Conn) record(log *accesslog.Log, r *response, req []byte, status int, sent int64, began time.Time) {
	took := time.Since(began)
	r.job.Fast.Observe(c.shard, status, sent, took)
	if log == nil {
		return
	}
	if c.remote == "" {
		c.remote = RemoteHost(c.nc.RemoteAddr())
	}
	q := &c.req
	target := q.path
	if q.hasQuery {
		target.to = q.query.to
	}
	method := http.MethodGet
	if q.headOnly {
		method = http.MethodHead
	}
	log.Write(&accesslog.Record{
		Time:      began,
		Remote:    c.remote,
		Host:      view(q.value(req, hdrHost)),
		Method:    method,
		Target:    view(req[target.from:target.to]),
		Proto:     "HTTP/1.1",
		Referer:   view(q.value(req, hdrReferer)),
		UserAgent: view(q.value(req, hdrUserAgent)),
		Status:    status,
		Bytes:     sent,
		Duration:  took,
		Fast:      true,
	})
}

// view is b as a string without a copy. The log only reads it during Write,
// while the read buffer stands still.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// RemoteHost is a client's address as it is logged: without the port, "-" on a
// UNIX socket.
func RemoteHost(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return tcp.IP.String()
	}
	return "-"
}
