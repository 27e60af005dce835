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
	"millrace/internal/wire/epoll"
	"millrace/internal/wire/field"
)

// An event loop of the lane forwards a simple request to php-fpm without a goroutine if its
// script was found a moment ago (docs/decisions/0040), and a place and a connection are
// free. A goroutine goes on where more must be waited for than the lane allows, where
// php-fpm does something wrong or complains, and with long answers.

const (
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

// onLoop is what an exchange has while an event loop has it.
type onLoop struct {
	body   bytes.Reader // of the request
	method string
	pages  site.Pages
	watch  epoll.Watch // the loop's
	lines  field.Lines // of the answer
}

// Pass implements [lane.Passer].
func (h *Handler) Pass(q *lane.ForwardRequest) lane.RoundTrip {
	if len(q.Body) > fastcgi.Small || q.Head.Upgrades {
		return nil
	}
	t, ok := h.seen.of(q.Head.Decoded())
	if !ok {
		return nil
	}
	select {
	case h.places <- struct{}{}:
	default:
		return nil
	}
	x := h.begin(t)
	if !h.client.Begin(&x.up) || !x.ask(q) {
		x.end()
		return nil
	}
	x.loop.method, x.loop.pages = q.Head.Method, q.Pages
	return x
}

// ask sends the request, if that can be done at once.
func (x *exchange) ask(q *lane.ForwardRequest) bool {
	x.loop.body.Reset(q.Body)
	params := x.h.appendParams(q.Out, &asked{Request: q.Head, local: addrOf(q.Local), length: int64(len(q.Body))}, x.target)
	return x.up.Send(&fastcgi.Request{Params: params, Body: &x.loop.body, Length: int64(len(q.Body))})
}

// Line implements [lane.RoundTrip].
func (x *exchange) Line(w epoll.Watch) (fd int, serial uint32, unknown bool) {
	x.loop.watch = w
	fd, serial = x.up.FD()
	return fd, serial, true
}

// Waits implements [lane.RoundTrip]: what finds no place is for the handler.
func (x *exchange) Waits() bool { return false }

// Connects implements [lane.RoundTrip].
func (x *exchange) Connects() bool { return false }

// Start implements [lane.RoundTrip], for what waits.
func (x *exchange) Start(*lane.ForwardRequest) bool { return false }

// Take implements [lane.RoundTrip]. The body of r is valid until Sent.
func (x *exchange) Take(_ []byte, r *lane.Reply) lane.Progress {
	whole, err := x.ahead()
	switch {
	case err == nil && !whole && x.received.n < len(x.received.text):
		return lane.Incomplete
	case !whole || x.up.Complained() || !x.reply(r):
		return lane.NeedsHandler
	}
	if fd, _ := x.up.FD(); x.h.options.Idle > 0 {
		x.loop.watch.End(fd) // it may be kept for others
	}
	_ = x.up.Close() // there is none
	x.leave()
	return lane.Complete
}

// reply makes the lane's answer of a script's, if the client gets that as it is.
func (x *exchange) reply(r *lane.Reply) bool {
	n, err := x.head.read(x.received.text[:x.received.n])
	if n == 0 || err != nil || x.loop.pages.For(x.head.status) != "" {
		return false
	}
	body := x.head.body(x.received.text[n:x.received.n])
	if x.head.bodiless(x.loop.method) {
		body = nil
	} else if x.head.length > int64(len(body)) {
		return false
	}
	x.loop.lines = append(x.loop.lines[:0], x.head.fields...)
	if length := x.head.framed(x.loop.method, body, true); length >= 0 {
		x.loop.lines.Add("Content-Length", strconv.FormatInt(length, 10))
	}
	field.SortLines(x.loop.lines)
	r.Status, r.Lines, r.Body = x.head.status, x.loop.lines, body
	return true
}

// Sent implements [lane.RoundTrip].
func (x *exchange) Sent(*lane.Conn, *lane.Reply) { x.end() }

// Discard implements [lane.RoundTrip].
func (x *exchange) Discard() { x.end() }

// Owner is for [lane.Take].
func (x *exchange) Owner() *Handler { return x.h }

// resume goes on with a request that a loop has begun; false if none has, or if it has to
// be made again.
func (h *Handler) resume(w http.ResponseWriter, r *http.Request) bool {
	x, started := lane.Take[*exchange](r, h)
	if !started {
		return false
	}
	defer x.end()
	if x.up.Stale() && r.ContentLength == 0 && safe(r.Method) {
		return false
	}
	ctx, cancel := context.WithCancel(r.Context())
	x.cancel = cancel
	if err := h.client.Continue(ctx, &x.up); err != nil {
		x.fail(w, r, err)
	} else {
		x.answer(w, r)
	}
	return true
}
