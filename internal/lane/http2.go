package lane

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2/hpack"

	"millrace/internal/h2"
)

// HTTP2 is net/http's part in the HTTP/2 connections of a lane.
type HTTP2 struct {
	// Settings and HeaderList are of [h2.Options].
	Settings   []byte
	HeaderList int
	// Serve runs net/http on a connection whose preface was read, until it ends,
	// with ctx below its requests' contexts.
	Serve func(ctx context.Context, nc net.Conn)
}

// On reports whether the lane answers at all.
func (l *Lane) On() bool { return l.on() }

// ServeHTTP2 serves a new connection that has agreed on HTTP/2: hot requests
// here, the others by net/http. It may return before the connection has ended;
// done is called then.
func (c *TLSConn) ServeHTTP2(o *HTTP2, done func()) {
	h := &h2Host{TLSConn: c, options: o}
	front := h2.New(h, h2.Options{Settings: o.Settings, HeaderList: o.HeaderList, Stall: c.lane.settings.Load().Write, Budget: c.lane.budget, Pause: h.mustPause})
	switch {
	case front.ReadPreface() != nil:
		h.end(front)
		done()
	case c.adopt(h, front, func() { // the loop's lane waits for who leaves it
		c.lane.leaving.Add(1)
		h.serve(front, c.lane.leaving.Done)
	}):
		done()
	default:
		c.h2conn.Store(front)
		h.serve(front, done)
	}
}

// serve serves a connection that no loop owns. It may be parked in between.
func (h *h2Host) serve(front *h2.Conn, done func()) {
	h.mustLeave = false
	_ = front.Unpark() // a read finds out
	if h.lane.draining.Load() {
		h.lane.shutdownHTTP2(front)
	}
	if nc := h.pendingInner; nc != nil {
		h.pendingInner = nil
		h.Inner(nc)
	}
	h.park(func() bool {
		if h.runUntilIdle(front) {
			if h.returnToLoop(front) {
				done()
				return false
			}
			return true
		}
		h.end(front)
		done()
		return false
	})
}

// returnToLoop gives a quiet connection back to its loop.
func (h *h2Host) returnToLoop(front *h2.Conn) bool {
	if h.lane.draining.Load() || h.wire != nil && len(h.wire.unsent) > 0 || !front.Park() {
		return false
	}
	if !h.innerAwaited {
		h.innerAwaited = true
		h.lane.leaving.Go(h.inner.Wait) // as end does elsewhere
	}
	p := h.parking.Swap(nil)
	if h.adopt(h, front, func() {
		h.lane.leaving.Add(1)
		h.serve(front, h.lane.leaving.Done)
	}) {
		return true
	}
	h.parking.Store(p)
	_ = front.Unpark() // a read finds out
	return false
}

// LeaveLoop implements [h2.Host].
func (h *h2Host) LeaveLoop() { h.mustLeave = true }

// Wake implements [h2.Host].
func (h *h2Host) Wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isOwnedLocked() {
		h.wakeLoop()
	}
}

// Close implements [net.Conn]. While a loop has the connection, net/http can only cut
// it: its streams have ended.
func (h *h2Host) Close() error {
	if f := h.h2conn.Load(); f != nil && f.Parked() {
		h.cut()
		return nil
	}
	return h.TLSConn.Close()
}

// end counts a connection that has ended.
func (h *h2Host) end(front *h2.Conn) {
	_ = h.Close() // if it is not: the client knows why
	h.inner.Wait()
	h.handoffs.discardUnclaimed()
	h.countRefusal(front.Reason())
}

// mustPause reports whether the loop must do something first: wait for the client,
// or give the connection up.
func (h *h2Host) mustPause() bool {
	return h.wire.onLoop() && (len(h.wire.unsent) > 0 || h.pendingInner != nil || h.mustLeave)
}

// runUntilIdle reads until the connection ends, or is quiet.
func (h *h2Host) runUntilIdle(front *h2.Conn) (isQuiet bool) {
	defer h.recoverPanic()
	return endedByDeadline(front.Run())
}

// countRefusal counts a connection that was cut off.
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

// h2Host is the lane as an HTTP/2 connection sees it.
type h2Host struct {
	*TLSConn
	options      *HTTP2
	inner        sync.WaitGroup
	pendingInner net.Conn // net/http's side, which has yet to start: on a loop it cannot

	calls        []*call  // requests that the loop has passed on, in the order of their streams; the loop's alone
	needsFlush   bool     // there are answers to be written; the loop's alone
	mustLeave    bool     // it must leave the loop
	innerAwaited bool     // it has gone home, and somebody waits for net/http's side
	handoffs     handoffs // of flights, for net/http's handlers
}

// roundTripField is [h2.Mark] as net/http writes it.
const roundTripField = "Millrace-Passage"

// handoffs are passages that handlers are to go on with, by the streams' numbers.
type handoffs struct {
	mu  sync.Mutex
	all map[string]*handoff
}

type handoff struct {
	roundTrip RoundTrip
	claimed   bool // by the handler, which ends it
	prepared  any  // what a Carrier has left, which did not carry the request
}

func (l *handoffs) put(id uint32, p *handoff) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[string]*handoff{}
	}
	l.all[strconv.FormatUint(uint64(id), 10)] = p
}

// prepared is what a Carrier has left under a mark.
func (l *handoffs) prepared(mark []string) any {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.all[strings.Join(mark, ",")]
	if p == nil {
		return nil
	}
	return p.prepared
}

// claim is the passage with a mark, which from then on is the handler's; nil: none.
func (l *handoffs) claim(mark []string) *RoundTrip {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.all[strings.Join(mark, ",")]
	if p == nil {
		return nil
	}
	p.claimed = true
	return &p.roundTrip
}

// remove is of, and forgets the passage.
func (l *handoffs) remove(mark []string) *RoundTrip {
	p := l.claim(mark)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, strings.Join(mark, ","))
	return p
}

// discardUnclaimed gives up what no handler has taken. What one has taken stays until it claims
// that.
func (l *handoffs) discardUnclaimed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for mark, p := range l.all {
		if p.claimed {
			continue
		}
		if delete(l.all, mark); p.roundTrip != nil {
			p.roundTrip.Discard()
		}
	}
}

// Buffered implements [h2.Host].
func (h *h2Host) Buffered(n int64) { h.lane.unsent.Add(n) }

// Read reads from the client.
func (h *h2Host) Read(p []byte) (int, error) { return h.nc.Read(p) }

// Write writes to the client, which has the write timeout for each piece.
func (h *h2Host) Write(p []byte) (total int, err error) {
	if h.wire.onLoop() { // where the loop sees to the timeout
		return h.nc.Write(p)
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

// Awaits sets the connection's deadline.
func (h *h2Host) Awaits(w h2.Wait) {
	if w != h2.WaitNothing && h.lane.draining.Load() && h.deadline.Load()&idleMark != 0 {
		return // the client was told to leave: what it still sends does not extend its time
	}
	switch w {
	case h2.WaitRequest:
		h.awaitRequest(time.Now(), h.lane.settings.Load())
	case h2.WaitFrame:
		if h.deadline.Load()&idleMark != 0 || h.deadline.Load() == 0 { // else it is on its way
			h.deadline.Store(h.deadlineIn(h.lane.settings.Load().Header))
		}
	case h2.WaitNothing:
		h.deadline.Store(0)
	}
}

// Inner starts net/http.
func (h *h2Host) Inner(nc net.Conn) {
	if h.wire.onLoop() {
		h.pendingInner = nc
		return
	}
	ctx := context.WithValue(h.lane.WithDrain(context.Background()), h2Key{}, h.Conn)
	h.inner.Go(func() { h.options.Serve(ctx, nc) })
}

// Answer answers a request from the table.
func (h *h2Host) Answer(dst []byte, id uint32, fields []hpack.HeaderField, room h2.Room) (out []byte, sent int, ok bool) {
	s := scratchPool.Get().(*scratch)
	defer scratchPool.Put(s)
	n, ok := matchFields(s.buf[:0], fields, &s.req)
	if !ok {
		return dst, 0, false
	}
	now := time.Now()
	c, q, req := h.Conn, &s.req, s.buf[:n]
	r := c.lane.table.find(c.scope.Sites.Load().ID(q.value(req, hdrHost)), req, q, now.Unix())
	if r == nil {
		return dst, 0, false
	}
	notModified, ok := r.choose(req, q)
	if !ok {
		return dst, 0, false
	}
	a, status, size := r.answer, r.status, int(r.answer.Size)
	block := r.block(now.Unix(), notModified)
	if notModified {
		status = http.StatusNotModified
	}
	if notModified || q.headOnly {
		size = 0
	}
	if len(block) > room.Frame || size > room.Window || a.File != nil && size > maxCopiedFile {
		return dst, 0, false
	}
	body := a.Body
	switch {
	case size == 0:
	case a.File != nil:
		buf := bufferPool.Get().(*[]byte)
		defer bufferPool.Put(buf)
		if body = (*buf)[:size]; !readFile(r, body, now.Unix()) {
			return dst, 0, false
		}
	}
	if r.gate != nil && !r.admits(c.RemoteAddr(), q, req, now, c.lane.settings.Load()) {
		return dst, 0, false
	}
	out = h2.AppendHeaders(dst, id, block, size == 0)
	if size > 0 {
		out = h2.AppendData(out, id, body[:size], room.Frame)
	}
	c.lane.meters.Sent.Copied.Add(c.shard, uint64(len(out)-len(dst)))
	c.record(c.lane.settings.Load().Log, answerRecord{r, q, req, status, int64(size), now, "HTTP/2.0", ""})
	return out, size, true
}

// maxCopiedFile is the largest file that is copied into a turn's answers.
const maxCopiedFile = maxWrite

// readFile reads a file that is in the system's memory.
func readFile(r *response, body []byte, second int64) bool {
	a := r.answer
	if !a.File.Retain() {
		return false
	}
	defer a.File.Release()
	if !a.File.Warm(second) {
		return false
	}
	n, err := a.File.ReadAt(body, a.Base)
	if err != nil || n < len(body) {
		return false
	}
	a.File.WasSent(second)
	return true
}

// h2Key finds the HTTP/2 connection that a request came by.
type h2Key struct{}

// sourceKey finds the origin of such a request: there are many at once.
type sourceKey struct{}

// matchFields is match for the fields of HTTP/2: b gets their values, to which
// r's spans point. What it accepts is what match accepts, in HTTP/2's form
// (RFC 9113, 8.3.1), and "te: trailers".
func matchFields(b []byte, fields []hpack.HeaderField, r *request) (n int, ok bool) {
	*r = request{coding: codingAbsent}
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

// pseudo are the pseudo-fields of a request (RFC 9113, 8.3.1).
type pseudo struct{ method, scheme, path, authority string }

// splitPseudo takes them from the beginning of the fields: each once, and none empty.
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

// matchPath takes a path and its query.
func matchPath(b []byte, path string, r *request) ([]byte, bool) {
	n := 0
	for n < len(path) && class[path[n]]&isPath != 0 {
		n++
	}
	r.path = span{0, uint16(n)}
	if n < len(path) {
		if path[n] != '?' {
			return b, false
		}
		for i := n + 1; i < len(path); i++ {
			if class[path[i]]&isQuery == 0 {
				return b, false
			}
		}
		r.query, r.hasQuery = span{uint16(n + 1), uint16(len(path))}, true
	}
	return append(b, path...), true
}

func appendValue(b []byte, value string) ([]byte, span) {
	from := len(b)
	b = append(b, value...)
	return b, span{uint16(from), uint16(len(b))}
}

// matchHPACKField takes one field.
func matchHPACKField(b []byte, f *hpack.HeaderField, r *request) ([]byte, bool) {
	v := f.Value
	if v == "" || v[0] == ' ' || v[len(v)-1] == ' ' || len(b)+len(v) > maxHead || !clearText(bytesOf(v)) {
		return b, false
	}
	name := bytesOf(f.Name)
	id := keptHeader(name)
	switch {
	case id == hdrHost:
		return b, false // :authority says it
	case id == hdrCookie && r.has(id): // in parts (RFC 9113, 8.2.3)
		return b, true
	case id != hdrRefuse:
		if r.has(id) {
			return b, false
		}
		b, r.headers[id] = appendValue(b, v)
		return b, true
	}
	return b, harmlessHeader(name) == hdrHarmless && f.Name != "keep-alive" && f.Name != "content-type"
}
