package lane

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2/hpack"

	"millrace/internal/wire/h2"
	"millrace/internal/wire/message"
)

// HTTP2 is how a lane reaches net/http for its HTTP/2 connections.
type HTTP2 struct {
	// Settings and HeaderList are those of [h2.Options].
	Settings   []byte
	HeaderList int
	// Serve runs net/http on a connection whose preface was read, until it ends.
	// ctx is the parent of its requests' contexts.
	Serve func(ctx context.Context, nc net.Conn)
}

// On reports whether the lane answers requests.
func (l *Lane) On() bool { return l.on() }

// ServeHTTP2 serves a new connection that has agreed on HTTP/2: hot requests by the lane,
// the others by workers and net/http. Where there are loops it returns before the connection
// has ended. done is called when this goroutine is no longer needed for it.
func (c *TLSConn) ServeHTTP2(o *HTTP2, done func()) {
	h := &h2Host{TLSConn: c, options: o}
	h2conn := h2.New(h, h2.Options{Settings: o.Settings, HeaderList: o.HeaderList, Stall: c.lane.settings.Load().Write, Budget: c.lane.budget})
	switch {
	case h2conn.ReadPreface() != nil:
		h.end(h2conn)
		done()
	case c.adopt(h, h2conn, nil):
		done()
	default:
		c.h2conn.Store(h2conn)
		h.serve(h2conn, done)
	}
}

// serve serves a connection that no loop owns. While it is idle it may be parked.
func (h *h2Host) serve(h2conn *h2.Conn, done func()) {
	if h.lane.draining.Load() {
		h.lane.shutdownHTTP2(h2conn)
	}
	h.park(func() bool {
		if h.runUntilIdle(h2conn) {
			return true
		}
		h.end(h2conn)
		done()
		return false
	})
}

// OnLoop implements [h2.Host].
func (h *h2Host) OnLoop() bool { return h.looped }

// Full implements [h2.Host].
func (h *h2Host) Full() <-chan struct{} {
	if !h.looped {
		return nil
	}
	return h.wire.awaitRoom()
}

// Wake implements [h2.Host].
func (h *h2Host) Wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isOwnedLocked() {
		h.wakeLoop()
	}
}

// Close implements [net.Conn]. A loop closes its connection itself, when the client has taken
// what was written.
func (h *h2Host) Close() error {
	if h.looped {
		h.over.Store(true)
		h.Wake()
		return nil
	}
	return h.TLSConn.Close()
}

// end closes a connection, waits for net/http and counts why it was refused, if it was.
func (h *h2Host) end(h2conn *h2.Conn) {
	_ = h.Close() // if it was not closed before
	h.inner.Wait()
	h.countRefusal(h2conn.Reason())
}

// runUntilIdle serves the connection until it ends, or the sweeper finds it idle.
func (h *h2Host) runUntilIdle(h2conn *h2.Conn) (idle bool) {
	defer h.recoverPanic()
	return endedByDeadline(h2conn.Run())
}

// countRefusal counts a connection that was ended for what its client did.
func (h *h2Host) countRefusal(why h2.Reason) {
	m := &h.lane.meters.HTTP2Refused
	switch why {
	case h2.Malformed:
		m.Malformed.Add(h.shard, 1)
	case h2.Headers:
		m.Headers.Add(h.shard, 1)
	case h2.ControlFrames:
		m.Idle.Add(h.shard, 1)
	case h2.Resets:
		m.Resets.Add(h.shard, 1)
	case h2.Stalled:
		m.Stalled.Add(h.shard, 1)
	case h2.TooMany:
		m.TooMany.Add(h.shard, 1)
	case h2.None:
	}
}

// h2Host implements [h2.Host] for one connection.
type h2Host struct {
	*TLSConn
	options *HTTP2
	inner   sync.WaitGroup // net/http's goroutines, without a loop
	looped  bool           // a loop has the connection, from its first frame to its end
	over    atomic.Bool    // the loop is to close it

	calls      []*call // requests that the loop has forwarded, in the order of their streams; for the loop alone
	needsFlush bool    // answers were queued and not written; for the loop alone
}

// Buffered implements [h2.Host].
func (h *h2Host) Buffered(n int64) { h.lane.unsent.Add(n) }

// Read reads from the client.
func (h *h2Host) Read(p []byte) (int, error) { return h.nc.Read(p) }

// Write writes to the client, which has the write timeout for each piece. On a loop it never
// waits: the loop sends what the client does not take at once.
func (h *h2Host) Write(p []byte) (total int, err error) {
	if h.looped {
		total, err = h.nc.Write(p)
		h.wire.ifFull(h.awaitClient) // the loop may hear of the connection only when there is room
		return total, err
	}
	defer h.writeBy.Store(0)
	for len(p) > 0 && err == nil {
		var n int
		h.writeBy.Store(h.deadlineIn(h.lane.settings.Load().Write))
		n, err = h.nc.Write(p[:min(len(p), maxWrite)])
		p, total = p[n:], total+n
	}
	return total, err
}

// awaitClient has the write timeout run, unless it does, and no other: the loop starts the idle
// timeout when the client has taken everything.
func (h *h2Host) awaitClient() {
	h.deadline.Store(0)
	if h.writeBy.Load() == 0 {
		h.writeBy.Store(h.deadlineIn(h.lane.settings.Load().Write))
	}
}

// Awaits sets the connection's deadline.
func (h *h2Host) Awaits(w h2.Wait) {
	if w != h2.WaitNothing && h.lane.draining.Load() && h.deadline.Load()&idleMark != 0 {
		return // the client was told to leave: its requests do not extend its time
	}
	switch w {
	case h2.WaitRequest:
		h.awaitRequest(time.Now(), h.lane.settings.Load())
		if h.looped {
			h.wire.ifFull(h.awaitClient)
		}
	case h2.WaitFrame:
		if h.deadline.Load()&idleMark != 0 || h.deadline.Load() == 0 { // else the timeout runs already
			h.deadline.Store(h.deadlineIn(h.lane.settings.Load().Header))
		}
	case h2.WaitNothing:
		h.deadline.Store(0)
	}
}

// Inner starts net/http.
func (h *h2Host) Inner(nc net.Conn) {
	ctx := context.WithValue(h.lane.WithDrain(context.Background()), h2Key{}, h.Conn)
	if h.looped {
		h.lane.leaving.Go(func() { h.options.Serve(ctx, nc) })
		return
	}
	h.inner.Go(func() { h.options.Serve(ctx, nc) })
}

// Answer answers a request from the table.
func (h *h2Host) Answer(dst []byte, id uint32, fields []hpack.HeaderField, room h2.Room) (out []byte, sent int, ok bool) {
	s := scratchPool.Get().(*scratch)
	defer s.release()
	n, ok := matchFields(s.buf[:0], fields, &s.req)
	if !ok {
		return dst, 0, false
	}
	now := time.Now()
	c, q, req := h.Conn, &s.req, s.buf[:n]
	settings := c.lane.settings.Load()
	r := c.lane.table.find(c.scope.Sites.Load().ID(q.value(req, hdrHost)), req, q, now.Unix())
	if r == nil || !settings.allow(req, q) {
		return dst, 0, false
	}
	as := r.choose(req, q)
	if as.of == nil {
		return dst, 0, false
	}
	size := int(as.size)
	if q.headOnly {
		size = 0
	}
	f := as.file(q)
	block := as.block(now.Unix(), &s.part)
	if len(block) > room.Frame || size > room.Window || f != nil && size > maxCopiedFile {
		return dst, 0, false
	}
	body := as.body()
	if size > 0 && f != nil {
		buf := bufferPool.Get().(*[]byte)
		defer bufferPool.Put(buf)
		if body = (*buf)[:size]; !as.readFile(body, now.Unix()) {
			return dst, 0, false
		}
	}
	if r.gate != nil && !r.admits(c.RemoteAddr(), q, req, now, settings) {
		return dst, 0, false
	}
	out = h2.AppendHeaders(dst, id, block, size == 0)
	if size > 0 {
		out = h2.AppendData(out, id, body[:size], room.Frame)
	}
	c.lane.meters.Sent.Copied.Add(c.shard, uint64(len(out)-len(dst)))
	c.record(settings.Log, answerRecord{r, q, req, as.status, int64(size), now, "HTTP/2.0", ""})
	return out, size, true
}

// maxCopiedFile is the largest file that is copied into the answers of one Run.
const maxCopiedFile = maxWrite

// readFile reads what is sent of a file, if that is in the page cache. Otherwise it returns
// false.
func (c *choice) readFile(body []byte, second int64) bool {
	a := c.of.answer
	if !a.File.Retain() {
		return false
	}
	defer a.File.Release()
	if !c.inMemory(second) {
		return false
	}
	n, err := a.File.ReadAt(body, a.Base+c.base)
	if err != nil || n < len(body) {
		return false
	}
	c.fileSent(second)
	return true
}

// inMemory reports whether what is sent of a file should be in the page cache. For a whole file
// it costs nothing; of a part that is not known otherwise, so the system is asked.
func (c *choice) inMemory(second int64) bool {
	a := c.of.answer
	return a.File.Warm(second) || c.isPart() && a.File.InMemory(a.Base+c.base, c.size)
}

// h2Key is the context key of the *Conn of an HTTP/2 connection.
type h2Key struct{}

// sourceKey is the context key of the *requestSource of a request over HTTP/2 or HTTP/3: of
// these there are many at once on a connection.
type sourceKey struct{}

// matchFields is match for the fields of a request over HTTP/2. Their values are appended
// to b, to which r's spans refer. It accepts what match accepts, in HTTP/2's form
// (RFC 9113, 8.3.1), and "te: trailers".
func matchFields(b []byte, fields []hpack.HeaderField, r *request) (n int, ok bool) {
	*r = request{}
	p, rest, ok := splitPseudo(fields)
	if !ok {
		return 0, false
	}
	method, scheme, path, authority := p.method, p.scheme, p.path, p.authority
	if scheme != "https" || authority == "" || len(path) == 0 || path[0] != '/' || method != http.MethodGet && method != http.MethodHead {
		return 0, false
	}
	r.headOnly = method == http.MethodHead
	if len(path)+len(authority) > maxHead {
		return 0, false
	}
	if b, ok = matchPath(b, path, r); !ok {
		return 0, false
	}
	b, r.headers[hdrHost] = appendValue(b, authority)
	r.fields = rest
	te := false
	for i := range rest {
		if rest[i].Name == "te" { // net/http takes one
			if te || rest[i].Value != "trailers" {
				return 0, false
			}
			te = true
			continue
		}
		if b, ok = matchHPACKField(b, &rest[i], r); !ok {
			return 0, false
		}
	}
	return len(b), finish(b, r) == matched
}

// pseudo has the pseudo-header fields of a request (RFC 9113, 8.3.1).
type pseudo struct{ method, scheme, path, authority string }

// splitPseudo splits the pseudo-header fields from the others. It is not ok if one comes
// twice or is empty.
func splitPseudo(fields []hpack.HeaderField) (p pseudo, rest []hpack.HeaderField, ok bool) {
	rest = fields
	for ; len(rest) > 0 && len(rest[0].Name) > 0 && rest[0].Name[0] == ':'; rest = rest[1:] {
		to := &p.method
		switch rest[0].Name {
		case ":method":
		case ":scheme":
			to = &p.scheme
		case ":path":
			to = &p.path
		case ":authority":
			to = &p.authority
		default:
			return p, nil, false
		}
		if *to != "" || rest[0].Value == "" {
			return p, nil, false
		}
		*to = rest[0].Value
	}
	return p, rest, true
}

// matchPath appends a path and its query to b, if match would accept them.
func matchPath(b []byte, path string, r *request) ([]byte, bool) {
	n := pathEnd(bytesOf(path), 0)
	r.path = span{0, uint16(n)}
	if n < len(path) {
		if path[n] != '?' {
			return b, false
		}
		for i := n + 1; i < len(path); i++ {
			if message.Class[path[i]]&message.TargetByte == 0 {
				return b, false
			}
		}
		r.query, r.hasQuery = span{uint16(n + 1), uint16(len(path))}, true
	}
	return append(b, path...), true
}

// appendValue appends a field's value to b and returns its span.
func appendValue(b []byte, value string) ([]byte, span) {
	from := len(b)
	b = append(b, value...)
	return b, span{uint16(from), uint16(len(b))}
}

// matchHPACKField is matchField for a field of HTTP/2. Its name is in lower case, and there
// are no blanks around its value (RFC 9113, 8.2.1). It accepts no field of the connection
// (8.2.2).
func matchHPACKField(b []byte, f *hpack.HeaderField, r *request) ([]byte, bool) {
	v := f.Value
	if v != "" && (blank(v[0]) || blank(v[len(v)-1])) || !message.Text(bytesOf(v)) {
		return b, false
	}
	id := lookupLower(bytesOf(f.Name))
	switch {
	case id == hdrHost:
		return b, false // :authority says it
	case id < numKept:
		if v == "" || len(b)+len(v) > maxHead {
			return b, false
		}
		if r.has(id) {
			return b, id == hdrCookie || r.repeat(id) // a Cookie may come in parts (RFC 9113, 8.2.3)
		}
		b, r.headers[id] = appendValue(b, v)
		return b, true
	case f.Name == "keep-alive", strings.ContainsFunc(f.Name, isUpper):
		return b, false
	case id == hdrUnknown, f.Name == "content-type":
		r.unknown = true
		return b, true
	}
	return b, id == hdrHarmless
}

func isUpper(c rune) bool { return 'A' <= c && c <= 'Z' }
