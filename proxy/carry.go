package proxy

import (
	"net/netip"
	"strings"
	"sync"
	"time"

	"millrace/internal/lane"
	"millrace/internal/route/site"
	"millrace/internal/upstream"
	"millrace/internal/wire/field"
)

// passage is a request that an event loop forwards. The upstream and the client get
// the same as by ServeHTTP.
type passage struct {
	upstream.Passage
	handler *Handler
	method  string
	editor  Editor // nil: none
	pages   site.Pages
	asked   hop // what the client has asked for, as far as it is known
	out     outgoing
	answer  upstream.Answer
	lines   []field.Line
	began   time.Time
	beyond  bool // its answer is not for a loop
}

// Editor changes the answers that a loop takes, for a job that uses the proxy. It does
// there what the hook of [Handler.Serve] does.
type Editor interface {
	// Edit changes the lines of an answer, in place or by a longer slice. They need
	// no order, but those of one name. It runs on the loop, and must not wait.
	Edit(status int, lines []field.Line) []field.Line
}

var passagePool = sync.Pool{New: func() any {
	p := new(passage)
	p.out.value = p.out.valueOf
	return p
}}

// manyOdd is after how many answers in a row that a loop cannot take, for example with
// a long body, loops stop trying: such a try costs more than the handler alone. One
// request in tryAgain still tries, to notice when that has changed.
const (
	manyOdd  = 8
	tryAgain = 64
	// slow is from when on an answer that has not come counts as odd. One that others
	// of its connection take along to a goroutine does not.
	slow = 50 * time.Millisecond
)

// handedOver counts a request that a loop has begun and a goroutine continues.
func (h *Handler) handedOver(began time.Time, beyond bool) {
	if beyond || time.Since(began) >= slow {
		h.odd.Add(1)
	}
}

// canForward reports whether loops can forward the route's requests: nothing on their way
// needs an http.Request.
func (h *Handler) canForward() bool {
	_, ours := h.pool.(*upstream.Pool)
	return ours && !h.stream
}

// Pass implements [lane.Passer].
func (h *Handler) Pass(q *lane.ForwardRequest) lane.RoundTrip { return h.PassEdited(q, nil) }

// PassEdited is Pass for a job of which e, if it is not nil, edits the answers. If
// the passage is handed over, that job takes its own part by [lane.Take], and calls
// Serve.
func (h *Handler) PassEdited(q *lane.ForwardRequest, e Editor) lane.RoundTrip {
	if !h.simple || !h.shouldTry(q) {
		return nil
	}
	to, ok := h.paths.target(q.Head)
	if !ok {
		return nil
	}
	p := passagePool.Get().(*passage)
	from := h.senderOf(q)
	p.out.to = to
	p.out.collect(h, q, &from)
	asked := upstream.Request{Client: netip.AddrPortFrom(from.client, 0), Secure: q.Head.Secure, Path: to.path, Query: to.query, Asks: to.asks, Fields: p.out.fields}
	if !h.pool.(*upstream.Pool).Begin(&p.Passage, q.Loop, &asked, q.Waiting) {
		passagePool.Put(p)
		return nil
	}
	p.handler, p.method, p.editor, p.pages, p.asked = h, q.Head.Method, e, q.Pages, from.asked
	p.began, p.beyond = time.Now(), false
	if !p.Waits() && !p.send(q, &from) {
		p.release()
		return nil
	}
	return p
}

// send sends the request, or has it wait for a new connection. If it reports false,
// nothing was sent; see [upstream.Passage.Send].
func (p *passage) send(q *lane.ForwardRequest, from *sender) bool {
	text, err := p.request(q, from)
	if err != nil {
		p.Cancel()
		return false
	}
	return p.SendText(text)
}

// Start implements [lane.RoundTrip].
func (p *passage) Start(q *lane.ForwardRequest) bool {
	if !p.Enter() {
		return false
	}
	from := p.handler.senderOf(q)
	p.out.to, _ = p.handler.paths.target(q.Head) // as in PassEdited
	p.out.collect(p.handler, q, &from)
	return p.send(q, &from)
}

func appendLine(b []byte, name, value string) []byte {
	b = append(b, name...)
	b = append(b, ": "...)
	b = append(b, value...)
	return append(b, "\r\n"...)
}

// Take implements [lane.RoundTrip].
func (p *passage) Take(buf []byte, r *lane.Reply) lane.Progress {
	body, t := p.Passage.Take(buf, p.method, &p.answer)
	switch {
	case t == upstream.Wait:
		return lane.Incomplete
	case t == upstream.Other:
		p.beyond = true
		return lane.NeedsHandler
	case p.pages.For(p.answer.Status) != "", !p.restored():
		p.beyond = true
		p.Hold()
		return lane.NeedsHandler
	}
	if p.editor != nil {
		p.lines = p.editor.Edit(p.answer.Status, p.lines)
	}
	field.SortLines(p.lines)
	r.Status, r.Lines, r.Body = p.answer.Status, p.lines, body
	p.End()
	if p.handler.odd.Load() != 0 {
		p.handler.odd.Store(0)
	}
	return lane.Complete
}

// restored makes the lines of the client's answer, as Serve does but in no order. It
// reports false where the handler has to do it.
func (p *passage) restored() bool {
	const via, events = "1.1 " + pseudonym, "text/event-stream"
	paths := &p.handler.paths
	lines := append(p.lines[:0], field.Line{Name: "Via", Value: via})
	addresses := 0
	for _, l := range p.answer.Fields {
		switch l.Name {
		case "Server":
			continue
		case "Via":
			if lines[0].Value != via {
				return false
			}
			lines[0].Value = l.Value + ", " + via
			continue
		case "Location", "Content-Location", "Refresh":
			if paths.answers {
				if addresses++; addresses > 1 { // of one name, perhaps, which stay as they are
					return false
				}
				l.Value = paths.address(l.Name, l.Value, p.asked.proto, p.asked.host)
			}
		case "Set-Cookie":
			if paths.answers && paths.moves() {
				l.Value = paths.cookie(l.Value)
			}
		case "Content-Type":
			if len(l.Value) >= len(events) && strings.EqualFold(l.Value[:len(events)], events) {
				return false
			}
		}
		if !isConnectionLevel(l.Name) {
			lines = append(lines, l)
		}
	}
	p.lines = lines
	return true
}

// Sent implements [lane.RoundTrip].
func (p *passage) Sent(*lane.Conn, *lane.Reply) {
	p.Release()
	p.release()
}

// Discard implements [lane.RoundTrip].
func (p *passage) Discard() {
	p.Passage.Discard()
	p.release()
}

// Owner is for [lane.Take].
func (p *passage) Owner() *Handler { return p.handler }

func (p *passage) release() {
	p.editor, p.pages, p.asked = nil, nil, hop{}
	passagePool.Put(p)
}
