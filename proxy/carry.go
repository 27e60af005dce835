package proxy

import (
	"context"
	"sync"
	"time"

	"millrace/internal/lane"
	"millrace/internal/route/site"
	"millrace/internal/upstream"
	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
)

// roundTrip is a request that an event loop forwards. The upstream and the client get
// the same as by Serve.
type roundTrip struct {
	RoundTrip
	editor Editor // nil: none
	pages  site.Pages
	out    outgoing
}

var roundTrips = sync.Pool{New: func() any {
	p := new(roundTrip)
	p.out.value = p.out.valueOf
	return p
}}

// Pass implements [lane.Passer].
func (h *Handler) Pass(q *lane.ForwardRequest) lane.RoundTrip { return h.PassEdited(q, nil) }

// PassEdited is Pass for an answer that e edits; nil: nobody does. If it is handed
// over, that job takes its own part by [lane.Take], and calls Serve.
func (h *Handler) PassEdited(q *lane.ForwardRequest, e Editor) lane.RoundTrip {
	if !h.tries(q.Head) {
		return nil
	}
	vouch(q.Head)
	p := roundTrips.Get().(*roundTrip)
	if !h.outgoing(q.Head, &p.out) || !h.Begin(&p.RoundTrip, q, &p.out.Request) {
		roundTrips.Put(p)
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
func (p *roundTrip) send(q *lane.ForwardRequest) bool {
	return p.Send(&p.out.Request, q.Body, q.Out)
}

// Start implements [lane.RoundTrip].
func (p *roundTrip) Start(q *lane.ForwardRequest) bool { return p.Enter() && p.send(q) }

// Take implements [lane.RoundTrip].
func (p *roundTrip) Take(buf []byte, r *lane.Reply) lane.Progress {
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
func (p *roundTrip) Sent(*lane.Conn, *lane.Reply) {
	p.Release()
	p.release()
}

// Discard implements [lane.RoundTrip].
func (p *roundTrip) Discard() {
	p.RoundTrip.Discard()
	p.release()
}

// Owner is for [lane.Take].
func (p *roundTrip) Owner() *Handler { return p.handler }

func (p *roundTrip) release() {
	p.editor, p.pages = nil, nil
	roundTrips.Put(p)
}

// RoundTrip is a request to the upstream that an event loop makes: for the proxy itself, and for
// a job that makes the request and reads the answer, the cache, for example.
type RoundTrip struct {
	upstream.Exchange
	handler *Handler
	method  string
	answer  upstream.Answer
	began   time.Time
	beyond  bool // its answer is not for a loop
}

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

// Tries reports whether Begin is worth while for a request: the upstream's last answers were
// mostly ones that a loop can take, nothing about the request takes long, and it need not be
// refused, which the handler does.
func (h *Handler) Tries(q *message.Request) bool {
	return h.tries(q) && h.loops.Loops() && h.paths.stays(q.Path)
}

// tries is Tries but for what Begin, and outgoing, find out themselves.
func (h *Handler) tries(q *message.Request) bool { return !q.Upgrades && h.carries(q) }

// carries is tries for a request that may ask for another protocol.
func (h *Handler) carries(q *message.Request) bool {
	if h.loops == nil || !h.paths.brief(q.Path) {
		return false
	}
	if h.odd.Load() >= manyOdd && h.tried.Add(1)%tryAgain != 0 {
		return false
	}
	return refusal(q) == 0
}

// Begin takes a connection for the request q, of which out was made, into t, or has it wait
// for a place or a connection (see Waits). It may be called only after Tries reported true.
func (h *Handler) Begin(t *RoundTrip, q *lane.ForwardRequest, out *upstream.Request) bool {
	out.Received = q.Received
	if !h.loops.Begin(&t.Exchange, q.Loop, out, q.Waiting) {
		return false
	}
	t.begun(h, out)
	return true
}

// OutgoingNow is [Handler.Outgoing] for an event loop and a request that asks for another
// protocol, made in room; nil: it is for a handler.
func (h *Handler) OutgoingNow(q *message.Request, room *Room) *upstream.Request {
	if !h.carries(q) {
		return nil
	}
	vouch(q)
	o := room.clear()
	if !h.outgoing(q, o) {
		return nil
	}
	return &o.Request
}

// BeginUpgrade is Begin for a request that asks for another protocol, of which OutgoingNow
// has made out.
func (h *Handler) BeginUpgrade(t *RoundTrip, q *lane.ForwardRequest, out *upstream.Request) bool {
	out.Received = q.Received
	if !h.loops.BeginUpgrade(&t.Exchange, q.Loop, out, q.Waiting) {
		return false
	}
	t.begun(h, out)
	return true
}

// begun notes that the exchange has begun.
func (t *RoundTrip) begun(h *Handler, out *upstream.Request) {
	t.handler, t.method, t.began, t.beyond, t.answer.Status = h, out.Method, out.Received, false, 0
}

// Ask sends out, which has no body; its text is written into room. If it reports false,
// nothing was sent, see [upstream.Exchange.Send]. If it waits for a new connection, Ask is
// called again when there is one.
func (t *RoundTrip) Ask(out *upstream.Request, room []byte) bool {
	return t.Send(out, nil, room)
}

// Answer reads what has come. With [lane.Complete] there is an answer without a body,
// and the body, which is in buf until Release; the next call must be End, or Hold
// if it is an answer for a goroutine.
func (t *RoundTrip) Answer(buf []byte) (*upstream.Answer, []byte, lane.Progress) {
	a, body, progress := t.read(buf)
	if progress == lane.Complete {
		t.Own(t.method, a)
	}
	return a, body, progress
}

// read is Answer with fields that are in buf as well.
func (t *RoundTrip) read(buf []byte) (a *upstream.Answer, body []byte, progress lane.Progress) {
	a = &t.answer
	body, taken := t.Exchange.Take(buf, t.method, a)
	switch {
	case taken == upstream.Wait && (!t.handler.stream || a.Status == 0):
		return nil, nil, lane.Incomplete
	case taken != upstream.Whole: // or some of it, which must not wait for more
		t.beyond = true
		return nil, nil, lane.NeedsHandler
	}
	return a, body, lane.Complete
}

// Hold ends the loop's part of an answer that came whole and that a goroutine has to
// read.
func (t *RoundTrip) Hold() {
	t.beyond = true
	t.Exchange.Hold()
}

// End releases the connection and the place after a whole answer.
func (t *RoundTrip) End() {
	t.Exchange.End()
	if t.handler.odd.Load() != 0 {
		t.handler.odd.Store(0)
	}
}

// Continue waits for the answer to what Ask has sent, or sends out first if it has not. It
// is for a goroutine; interim is told of interim answers.
func (t *RoundTrip) Continue(ctx context.Context, out *upstream.Request, interim func(status int, fields field.Lines) error) (*upstream.Answer, error) {
	h := t.handler
	if t.beyond || time.Since(t.began) >= slow {
		h.odd.Add(1)
	}
	return h.loops.Continue(ctx, out, &t.Exchange, interim)
}
