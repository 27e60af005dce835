package websocket

import (
	"net/http"
	"sync"

	"millrace/internal/lane"
	"millrace/internal/observe/trace"
	"millrace/internal/upstream"
	"millrace/internal/wire/message"
	"millrace/proxy"
	"millrace/websocket/conn"
)

// opening is a handshake that an event loop passes on, over HTTP/1.1 without TLS: it connects
// to the upstream, reads the answer, and hands both connections over to the engine. A handler
// goes on where the upstream refuses or does something wrong.
type opening struct {
	proxy.RoundTrip
	h      *Handler
	out    *upstream.Request
	key    string // that the upstream gets
	client string // and that of the client
	place  *seat
	answer upstream.Answer

	// Of a handshake that the upstream has agreed to:
	back   conn.Detached
	tunnel *upstream.Tunnel // nil: it has not

	room proxy.Room // of out
}

var openings = sync.Pool{New: func() any { return new(opening) }}

// end has it used again, with nothing of this handshake.
func (o *opening) end() {
	clear(o.answer.Fields)
	*o = opening{answer: upstream.Answer{Fields: o.answer.Fields[:0]}}
	openings.Put(o)
}

// Pass implements [lane.Passer]. What is refused is left to the handler.
func (h *Handler) Pass(q *lane.ForwardRequest) lane.RoundTrip {
	head := q.Head
	switch {
	case h.proxy == nil:
		return nil
	case !head.Upgrades:
		return h.proxy.Pass(q)
	case !h.watched.Load() || h.ended.Load() || !h.engine.TakesDescriptors() || check(head) != nil || !h.accepts(head):
		return nil
	}
	place, fault := h.place(head)
	if fault != nil {
		return nil
	}
	o, _ := openings.Get().(*opening)
	o.h, o.place, o.client = h, place, head.Value("Sec-Websocket-Key")
	if o.out = h.proxy.OutgoingNow(head, &o.room); o.out != nil {
		o.key = handshakeOf(o.out)
		if h.proxy.BeginUpgrade(&o.RoundTrip, q, o.out) && (o.Waits() || o.Ask(o.out, q.Out)) {
			return o
		}
	}
	place.leave()
	o.end()
	return nil
}

// Start implements [lane.RoundTrip].
func (o *opening) Start(q *lane.ForwardRequest) bool { return o.Enter() && o.Ask(o.out, q.Out) }

// Take implements [lane.RoundTrip].
func (o *opening) Take(buf []byte, r *lane.Reply) lane.Progress {
	switch o.TakeUpgrade(buf, o.out, &o.answer) {
	case upstream.Wait:
		return lane.Incomplete
	case upstream.Other:
		return lane.NeedsHandler
	}
	if agreed(&o.answer, o.key) != nil {
		o.Hold()
		return lane.NeedsHandler
	}
	fd, tunnel, ok := o.Switch()
	if !ok {
		o.Hold()
		return lane.NeedsHandler
	}
	o.back, o.tunnel = conn.Detached(fd), tunnel
	header := passedOn(&o.answer)
	header.Add("Sec-Websocket-Accept", acceptKey(o.client))
	r.Status, r.Body = http.StatusSwitchingProtocols, switching(header)
	return lane.Switched
}

// Switched implements [lane.Switching].
func (o *opening) Switched(_ *lane.Conn, _ *lane.Reply, fd int, early []byte) {
	h, tunnel, back, who := o.h, o.tunnel, o.back, o.place.keep()
	backEarly := tunnel.Early
	tunnel.Early = nil
	o.place.release(func() {
		_ = h.engine.JoinDetached(fd, early, back, backEarly, h.settings, func() { // closed already: as the connection is
			_ = tunnel.Close()
			who.End()
		})
	})
	o.end()
}

// Sent implements [lane.RoundTrip]; no answer is Complete.
func (o *opening) Sent(*lane.Conn, *lane.Reply) {}

// Discard implements [lane.RoundTrip].
func (o *opening) Discard() {
	if o.tunnel != nil {
		o.back.Close()
		_ = o.tunnel.Close()
	} else {
		o.RoundTrip.Discard()
	}
	o.place.leave()
	o.end()
}

// Owner is for [lane.Take].
func (o *opening) Owner() *Handler { return o.h }

// goOn goes on with a handshake that a loop has begun.
func (h *Handler) goOn(w http.ResponseWriter, r *http.Request, o *opening) {
	defer o.place.leave()
	var q message.Request
	proxy.Head(&q, r)
	step := trace.Begin(r.Context(), trace.Upstream)
	res, tunnel, err := h.pool.ContinueUpgrade(r.Context(), o.out, &o.Exchange)
	h.connect(w, r, &q, &opened{res, tunnel, o.key, step}, err, o.place)
}
