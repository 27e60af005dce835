package proxy

import (
	"sync"
	"time"

	"millrace/internal/lane"
	"millrace/internal/route/site"
	"millrace/internal/upstream"
	"millrace/internal/wire/field"
)

// passage is a request that an event loop forwards. The upstream and the client get
// the same as by Serve.
type passage struct {
	upstream.Passage
	handler *Handler
	editor  Editor // nil: none
	pages   site.Pages
	out     outgoing
	answer  upstream.Answer
	began   time.Time
	beyond  bool // its answer is not for a loop
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

// Pass implements [lane.Passer].
func (h *Handler) Pass(q *lane.ForwardRequest) lane.RoundTrip { return h.PassEdited(q, nil) }

// PassEdited is Pass for an answer that e edits; nil: nobody does. If the passage is handed
// over, that job takes its own part by [lane.Take], and calls Serve.
func (h *Handler) PassEdited(q *lane.ForwardRequest, e Editor) lane.RoundTrip {
	head := q.Head
	if h.loops == nil || !h.paths.brief(head.Path) || !h.shouldTry(head) {
		return nil
	}
	p := passagePool.Get().(*passage)
	if !h.outgoing(head, &p.out) || !h.loops.Begin(&p.Passage, q.Loop, &p.out.Request, q.Waiting) {
		passagePool.Put(p)
		return nil
	}
	p.handler, p.editor, p.pages, p.began, p.beyond, p.answer.Status = h, e, q.Pages, time.Now(), false, 0
	if !p.Waits() && !p.send(q) {
		p.release()
		return nil
	}
	h.copies.sendWhole(&p.out.Request, q.Body)
	return p
}

// send sends the request, or has it wait for a new connection. If it reports false,
// nothing was sent; see [upstream.Passage.Send].
func (p *passage) send(q *lane.ForwardRequest) bool {
	return p.Send(&p.out.Request, q.Body, q.Out)
}

// Start implements [lane.RoundTrip].
func (p *passage) Start(q *lane.ForwardRequest) bool { return p.Enter() && p.send(q) }

// Take implements [lane.RoundTrip].
func (p *passage) Take(buf []byte, r *lane.Reply) lane.Progress {
	h, a := p.handler, &p.answer
	body, t := p.Passage.Take(buf, p.out.Method, a)
	switch {
	case t == upstream.Wait && (!h.stream || a.Status == 0):
		return lane.Incomplete
	case t != upstream.Whole: // or some of it, which must not wait for more
		p.beyond = true
		return lane.NeedsHandler
	case p.pages.For(a.Status) != "":
		p.beyond = true
		p.Hold()
		return lane.NeedsHandler
	}
	h.edit(a, p.out.from.asked, p.editor)
	field.SortLines(a.Fields)
	r.Status, r.Lines, r.Body = a.Status, a.Fields, body
	p.End()
	if h.odd.Load() != 0 {
		h.odd.Store(0)
	}
	return lane.Complete
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
	p.editor, p.pages = nil, nil
	passagePool.Put(p)
}
