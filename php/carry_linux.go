package php

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"millrace/internal/lane"
	"millrace/internal/route/site"
	"millrace/internal/upstream/fastcgi"
	"millrace/internal/wire/field"
)

// On Linux, an event loop of the lane forwards a simple request to php-fpm without a
// goroutine if its script was found a moment ago (docs/decisions/0040). All other
// requests, and answers that are not simple, are for run and answer.

const (
	// carried is the longest answer that a loop takes, carriedBody the longest body of
	// a request.
	carried     = 64 << 10
	carriedBody = 32 << 10
	// seenFor is how long a loop may rely on what was found in the folder: it must
	// not look itself, since a folder can be on another machine.
	seenFor = time.Second
	// maxSeen bounds the paths that are remembered for it.
	maxSeen = 1024
)

// seen remembers which scripts paths led to, for loops.
type seen struct {
	mu    sync.Mutex
	paths map[string]cachedTarget
}

type cachedTarget struct {
	target target
	until  time.Time
}

// note remembers what a path leads to.
func (s *seen) note(path string, t target) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paths == nil || len(s.paths) >= maxSeen {
		s.paths = map[string]cachedTarget{}
	}
	s.paths[strings.Clone(path)] = cachedTarget{t, now.Add(seenFor)}
}

// of returns what a path led to a moment ago.
func (s *seen) of(path string) (target, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.paths[path]
	return found.target, ok && time.Now().Before(found.until)
}

// passage is a request that a loop forwards.
type passage struct {
	h      *Handler
	line   fastcgi.Line
	target target
	raw    *[carried]byte
	n      int // bytes of raw that have come
	pages  site.Pages
	lines  []field.Line
}

var (
	passages = sync.Pool{New: func() any { return new(passage) }}
	rooms    = sync.Pool{New: func() any { return new([carried]byte) }}
)

// socketOf is the socket that loops may use; "" for none. There must be exactly one
// address, and no connections may be kept.
func (o *Options) socketOf() string {
	if len(o.To) != 1 || o.Idle > 0 {
		return ""
	}
	if path, ok := strings.CutPrefix(o.To[0], "unix:"); ok || strings.HasPrefix(path, "/") {
		return path
	}
	return ""
}

// Pass implements [lane.Passer].
func (h *Handler) Pass(q *lane.ForwardRequest) lane.RoundTrip {
	socket := h.options.socketOf()
	if socket == "" || q.Head.Method == http.MethodHead || len(q.Body) > carriedBody {
		return nil
	}
	t, ok := h.seen.of(q.Head.Path)
	if !ok {
		return nil
	}
	select {
	case h.places <- struct{}{}:
	default:
		return nil
	}
	request, ok := fastcgi.AppendRequest(q.Out, func(b []byte) []byte { return h.appendParams(b, q, t) }, q.Body)
	var line fastcgi.Line
	if ok {
		line, ok = fastcgi.Ask(socket, request)
	}
	if !ok {
		<-h.places
		return nil
	}
	p := passages.Get().(*passage)
	p.h, p.line, p.target, p.n, p.pages = h, line, t, 0, q.Pages
	return p
}

// appendParams is params for a request that the lane has read.
func (h *Handler) appendParams(b []byte, q *lane.ForwardRequest, t target) []byte {
	about := about{method: q.Head.Method, uri: q.Head.Target, path: q.Head.Path, query: q.Head.Query, proto: "HTTP/1.1", host: q.Head.Host, secure: q.Head.Secure, remote: q.Client.String()}
	if q.Head.Major == 2 {
		about.proto = "HTTP/2.0"
	}
	if q.Local != nil {
		about.local = q.Local.String()
	}
	about.length = contentLength(int64(len(q.Body)), q.Head.Method, q.Head.Value("Content-Length"))
	about.kind = q.Head.Value("Content-Type")
	b = h.appendAbout(b, &about, t)
	trusted := h.clients.Trusts(q.Head.Peer)
	add := func(l field.Line) {
		if name := variable(l.Name, trusted); name != "" {
			b = fastcgi.AppendParam(b, name, l.Value)
		}
	}
	for _, l := range q.Head.Fields {
		if !q.Head.Replaced(l.Name) {
			add(l)
		}
	}
	for _, l := range q.Head.Set {
		if l.Value != "" {
			add(l)
		}
	}
	return h.appendOwn(b)
}

// Line implements [lane.RoundTrip].
func (p *passage) Line(func(int)) (fd int, serial uint32, unknown bool) {
	return p.line.FD, p.line.Serial, true
}

// Waits implements [lane.RoundTrip]: what finds no place is for the handler.
func (p *passage) Waits() bool { return false }

// Start implements [lane.RoundTrip], for what waits.
func (p *passage) Start(*lane.ForwardRequest) bool { return false }

// Take implements [lane.RoundTrip].
func (p *passage) Take(buf []byte, r *lane.Reply) lane.Progress {
	if p.raw == nil {
		p.raw = rooms.Get().(*[carried]byte)
	}
	n, err := p.line.Read(p.raw[p.n:])
	if p.n += n; err != nil || p.n == len(p.raw) {
		return lane.NeedsHandler
	}
	out, state := fastcgi.Scan(buf[:0], p.raw[:p.n])
	switch {
	case state == fastcgi.Partial:
		return lane.Incomplete
	case state == fastcgi.Odd || !p.plain(out, r):
		return lane.NeedsHandler
	}
	p.line.Close()
	<-p.h.places
	return lane.Complete
}

// plain makes the lane's answer of a script's whole output, if answer would send it as
// it is.
func (p *passage) plain(out []byte, r *lane.Reply) bool {
	end := bytes.Index(out, []byte("\r\n\r\n"))
	if end < 0 {
		return false
	}
	in := newOutput(bytes.NewReader(out[:end+4]))
	defer in.free()
	status, header, err := readHead(in)
	if _, more := in.ReadByte(); more == nil { // an earlier empty line, of another kind, was the end
		return false
	}
	if err != nil || p.pages.For(status) != "" || status == http.StatusNoContent || status == http.StatusNotModified || header["Date"] != nil {
		return false
	}
	to := make(http.Header, len(header)+1)
	body := out[end+4:]
	if length, err := passOn(to, header); err != nil || length >= 0 && length != int64(len(body)) {
		return false
	}
	delete(to, "Server")
	p.lines = append(p.lines[:0], field.Line{Name: "Content-Length", Value: strconv.Itoa(len(body))})
	for name, values := range to {
		for _, value := range values {
			p.lines = append(p.lines, field.Line{Name: name, Value: value})
		}
	}
	field.SortLines(p.lines)
	r.Status, r.Lines, r.Body = status, p.lines, body
	return true
}

// Sent implements [lane.RoundTrip].
func (p *passage) Sent(*lane.Conn, *lane.Reply) { p.free() }

// Discard implements [lane.RoundTrip].
func (p *passage) Discard() {
	p.line.Close()
	<-p.h.places
	p.free()
}

// Owner is for [lane.Take].
func (p *passage) Owner() *Handler { return p.h }

// free has the passage used again.
func (p *passage) free() {
	if p.raw != nil {
		rooms.Put(p.raw)
	}
	*p = passage{lines: p.lines[:0]}
	passages.Put(p)
}

// resume continues a request that a loop has forwarded; false if none has.
func (h *Handler) resume(w http.ResponseWriter, r *http.Request) bool {
	p, started := lane.Take[*passage](r, h)
	if !started {
		return false
	}
	defer p.free()
	leave := sync.OnceFunc(func() { <-h.places })
	nc, err := p.line.Conn()
	if err != nil {
		leave()
		h.fail(w, r, p.target, err)
		return true
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	var came []byte
	if p.raw != nil {
		came = p.raw[:p.n]
	}
	answer, err := h.client.Resume(ctx, nc, came)
	if err != nil {
		leave()
		h.fail(w, r, p.target, err)
		return true
	}
	h.answer(w, r, p.target, &running{answer: answer, leave: leave, cancel: cancel})
	return true
}
