package proxy

import (
	"net/http"
	"net/netip"
	"time"

	"millrace/internal/lane"
	"millrace/internal/upstream"
)

// Trip is a request to the upstream that an event loop makes, for a job that makes the
// request and reads the answer itself: the cache, for example.
type Trip struct {
	upstream.Passage
	handler *Handler
	method  string
	answer  upstream.Answer
	began   time.Time
	beyond  bool // its answer is not for a loop
}

// Tries reports whether Begin is worth while: the upstream's last answers were mostly
// ones that a loop can take, and its servers are chosen by no more than the URL, the
// only part of the request that is known yet.
func (h *Handler) Tries(q *lane.ForwardRequest) bool {
	pool, ok := h.pool.(*upstream.Pool)
	if !ok || h.stream || !pool.Loops() {
		return false
	}
	_, ok = h.paths.target(q.Head)
	return ok && h.shouldTry(q)
}

// Begin takes a connection for the request q into t, or has it wait for a place or a
// connection (see Waits). key is the one of [upstream.WithHashKey]. It may be called
// only after Tries reported true.
func (h *Handler) Begin(t *Trip, q *lane.ForwardRequest, key string) bool {
	pool, ours := h.pool.(*upstream.Pool)
	if !ours {
		return false
	}
	to, _ := h.paths.target(q.Head)
	asked := upstream.Request{Client: netip.AddrPortFrom(q.Head.Peer, 0), Secure: q.Head.Secure, Path: to.path, Query: to.query, Asks: to.asks, Key: key}
	if !pool.Begin(&t.Passage, q.Loop, &asked, q.Waiting) {
		return false
	}
	t.handler, t.method, t.began, t.beyond = h, q.Head.Method, time.Now(), false
	return true
}

// shouldTry reports whether a loop should try to forward q; see manyOdd. Requests that
// loop between proxies are refused by the handler.
func (h *Handler) shouldTry(q *lane.ForwardRequest) bool {
	if h.odd.Load() >= manyOdd && h.tried.Add(1)%tryAgain != 0 {
		return false
	}
	via := q.Head.Value("Via")
	return via == "" || !looping(via)
}

// Ask sends r, which has no body; its text is written into room. onSuspect is called if
// the answer turns out to be suspect, see [upstream.OnSuspect]. If it reports false,
// nothing was sent, see [upstream.Passage.Send]. If it waits for a new connection, Ask
// is called again when there is one.
func (t *Trip) Ask(r *http.Request, room []byte, onSuspect func()) bool {
	text, err := t.Write(room, r)
	if err != nil {
		t.Cancel()
		return false
	}
	if !t.SendText(text) {
		return false
	}
	if !t.Waits() {
		t.OnSuspect(onSuspect) // only now: Send takes another connection where the server has closed this one
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
	t.Own(t.method, &t.answer)
	return t.answer.Response(), body, lane.Complete
}

// Hold ends the loop's part of an answer that came whole and that a goroutine has to
// read.
func (t *Trip) Hold() {
	t.beyond = true
	t.Passage.Hold()
}

// End releases the connection and the place after a whole answer.
func (t *Trip) End() {
	t.Passage.End()
	if t.handler.odd.Load() != 0 {
		t.handler.odd.Store(0)
	}
}

// Late returns the unfinished exchange, for the goroutine that continues it by
// [upstream.Pool.Resume].
func (t *Trip) Late() *upstream.Passage {
	t.handler.handedOver(t.began, t.beyond)
	return &t.Passage
}
