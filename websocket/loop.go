package websocket

import (
	"net/http"

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
	o := &opening{h: h, place: place, client: head.Value("Sec-Websocket-Key")}
	if o.out = h.proxy.OutgoingNow(head); o.out != nil {
		o.key = handshakeOf(o.out)
		if h.proxy.BeginUpgrade(&o.RoundTrip, q, o.out) && (o.Waits() || o.Ask(o.out, q.Out)) {
			return o
		}
	}
	place.leave()
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
	h, tunnel, who := o.h, o.tunnel, o.place.keep()
	backEarly := tunnel.Early
	tunnel.Early = nil
	o.place.release(func() {
		_ = h.engine.JoinDetached(fd, early, o.back, backEarly, h.settings, func() { // closed already: as the connection is
			_ = tunnel.Close()
			who.End()
		})
	})
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
