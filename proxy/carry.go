package proxy

import (
	"sync"

	"millrace/internal/lane"
	"millrace/internal/route/site"
	"millrace/internal/wire/field"
)

// passage is a request that an event loop forwards. The upstream and the client get
// the same as by Serve.
type passage struct {
	Trip
	editor Editor // nil: none
	pages  site.Pages
	out    outgoing
}

var passagePool = sync.Pool{New: func() any {
	p := new(passage)
	p.out.value = p.out.valueOf
	return p
}}

// Pass implements [lane.Passer].
func (h *Handler) Pass(q *lane.ForwardRequest) lane.RoundTrip { return h.PassEdited(q, nil) }

// PassEdited is Pass for an answer that e edits; nil: nobody does. If the passage is handed
// over, that job takes its own part by [lane.Take], and calls Serve.
func (h *Handler) PassEdited(q *lane.ForwardRequest, e Editor) lane.RoundTrip {
	if !h.tries(q.Head) {
		return nil
	}
	vouch(q.Head)
	p := passagePool.Get().(*passage)
	if !h.outgoing(q.Head, &p.out) || !h.Begin(&p.Trip, q, &p.out.Request) {
		passagePool.Put(p)
		return nil
	}
	p.editor, p.pages = e, q.Pages
	if !p.Waits() && !p.send(q) {
		p.release()
		return nil
	}
	h.copies.sendWhole(&p.out.Request, q.Body)
	return p
}

// send sends the request, or has it wait for a new connection. If it reports false,
// nothing was sent; see [upstream.Exchange.Send].
func (p *passage) send(q *lane.ForwardRequest) bool {
	return p.Send(&p.out.Request, q.Body, q.Out)
}

// Start implements [lane.RoundTrip].
func (p *passage) Start(q *lane.ForwardRequest) bool { return p.Enter() && p.send(q) }

// Take implements [lane.RoundTrip].
func (p *passage) Take(buf []byte, r *lane.Reply) lane.Progress {
	a, body, progress := p.read(buf)
	switch {
	case progress != lane.Complete:
		return progress
	case p.pages.For(a.Status) != "":
		p.Hold()
		return lane.NeedsHandler
	}
	p.handler.edit(a, p.out.from.asked, p.editor)
	field.SortLines(a.Fields)
	r.Status, r.Lines, r.Body = a.Status, a.Fields, body
	p.End()
	return lane.Complete
}

// Sent implements [lane.RoundTrip].
func (p *passage) Sent(*lane.Conn, *lane.Reply) {
	p.Release()
	p.release()
}

// Discard implements [lane.RoundTrip].
func (p *passage) Discard() {
	p.Trip.Discard()
	p.release()
}

// Owner is for [lane.Take].
func (p *passage) Owner() *Handler { return p.handler }

func (p *passage) release() {
	p.editor, p.pages = nil, nil
	passagePool.Put(p)
}
