package proxy

import (
	"net/http"
	"time"

	"millrace/internal/lane"
	"millrace/internal/upstream"
	"millrace/internal/upstream/http1"
)

// Trip is a request to the upstream, and its answer, on a connection of a loop: for
// a job that makes the request and looks at the answer itself.
type Trip struct {
	upstream.Passage
	handler *Handler
	method  string
	answer  http1.Answer
	began   time.Time
	beyond  bool // its answer is not for a loop
}

// Tries reports whether it makes sense to Begin: the upstream's answers are mostly ones
// for a loop. What the request will say is not known yet, but for its URL; so where a
// server is chosen by more than that, loops do not make it.
func (h *Handler) Tries(q *lane.ForwardRequest) bool {
	pool, ok := h.pool.(*upstream.Pool)
	if !ok || h.stream || !pool.Loops() {
		return false
	}
	_, ok = h.paths.target(q.Head)
	return ok && h.shouldTry(q)
}

// Begin takes a connection for what q asks for into t, if there is one at once or
// the request may wait for a place or a connection (see Waits). key is the one of
// [upstream.WithHashKey]. It is for those who have asked Tries.
func (h *Handler) Begin(t *Trip, q *lane.ForwardRequest, key string) bool {
	pool, ours := h.pool.(*upstream.Pool)
	if !ours {
		return false
	}
	to, _ := h.paths.target(q.Head)
	asked := upstream.Asked{Client: q.From(), Secure: q.Scope.Secure, Path: to.path, Query: to.query, Asks: to.asks, Key: key}
	if !pool.Begin(&t.Passage, q.Loop, &asked, q.Waiting) {
		return false
	}
	t.handler, t.method, t.began, t.beyond = h, q.Head.Method, time.Now(), false
	return true
}

// shouldTry reports whether a loop should try: see manyOdd. What loops between proxies
// is refused on the other road.
func (h *Handler) shouldTry(q *lane.ForwardRequest) bool {
	if h.odd.Load() >= manyOdd && h.tried.Add(1)%tryAgain != 0 {
		return false
	}
	via := q.Head.Value("Via")
	return via == "" || !looping(via)
}

// Ask sends r, which has no body, with room for its text. doubt is what
// [upstream.OnSuspect] is given elsewhere. If it reports false, nothing was sent, see
// [upstream.Passage.Send]; it may also wait for a new connection, and is asked again
// then.
func (t *Trip) Ask(r *http.Request, room []byte, doubt func()) bool {
	text, err := t.Write(room, r)
	if err != nil {
		t.Cancel()
		return false
	}
	if !t.Send(text) {
		return false
	}
	if !t.Waits() {
		t.OnSuspect(doubt) // only now: Send takes another connection where the server has closed this one
	}
	return true
}

// Answer reads what has come. With [lane.Complete] there is a response without a body,
// and the body, which is in buf until Release; the next call must be End, or Hold
// if it is an answer for a goroutine.
func (t *Trip) Answer(buf []byte) (*http.Response, []byte, lane.Progress) {
	body, taken := t.Take(buf, t.method, &t.answer)
	switch taken {
	case upstream.Wait:
		return nil, nil, lane.Incomplete
	case upstream.Other:
		t.beyond = true
		return nil, nil, lane.NeedsHandler
	}
	return t.Response(t.method, &t.answer), body, lane.Complete
}

// Hold ends the loop's part where a whole answer is one for a goroutine.
func (t *Trip) Hold() {
	t.beyond = true
	t.Passage.Hold()
}

// End frees the connection and the place behind a whole answer.
func (t *Trip) End() {
	t.Passage.End()
	if t.handler.odd.Load() != 0 {
		t.handler.odd.Store(0)
	}
}

// Late is the passage for a goroutine that goes on with it, for [upstream.Pool.Resume].
func (t *Trip) Late() *upstream.Passage {
	t.handler.handedOver(t.began, t.beyond)
	return &t.Passage
}
