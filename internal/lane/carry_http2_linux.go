package lane

import (
	"net/http"
	"slices"

	"golang.org/x/net/http2/hpack"

	"millrace/internal/wire/h2"
	"millrace/internal/wire/message"
)

// A request over HTTP/2 is forwarded as one over HTTP/1.1 is, but its connection
// goes on meanwhile, with many calls at a time. What a worker does there, net/http
// does here: it gets all of the connection's calls at once, and the connection
// leaves its loop.

// Forward implements [h2.Host].
func (h *h2Host) Forward(id uint32, fields []hpack.HeaderField) (taken, marked bool) {
	if !h.wire.onLoop() {
		return false, false
	}
	lp := h.ownerLoop()
	if !lp.canForward(h.Conn) || !parseFields(&lp.ensureForwarding().request, fields) {
		return false, false
	}
	f := lp.fwd.take()
	f.c, f.stream, f.fields = h.Conn, id, append(f.fields[:0], fields...)
	if started, sent := lp.forwardCall(f, nil); !sent {
		if started != nil {
			h.handoffs.put(id, started)
		}
		return false, started != nil
	}
	h.calls = append(h.calls, f)
	if !f.waits && !lp.watchUpstream(f) {
		lp.discardCall(f) // a GET may be sent again
		return false, false
	}
	return true, false
}

// parseFields makes a head of the fields of a request.
func parseFields(head *message.Request, fields []hpack.HeaderField) bool {
	p, rest, ok := splitPseudo(fields)
	if !ok || p.scheme != "https" || !head.Assemble(p.method, p.path, p.authority) {
		return false
	}
	for i := range rest {
		if rest[i].Name == h2.Mark || !head.Add(rest[i].Name, rest[i].Value) {
			return false
		}
	}
	return true
}

// forgetCall forgets a call.
func (h *h2Host) forgetCall(f *call) {
	if i := slices.Index(h.calls, f); i >= 0 {
		h.calls = slices.Delete(h.calls, i, i+1)
	}
}

// Cancel implements [h2.Host].
func (h *h2Host) Cancel(id uint32) {
	for _, f := range h.calls {
		if f.stream == id {
			h.ownerLoop().discardCall(f)
			return
		}
	}
	if x := h.handoffs.take(id); x != nil {
		x.Discard()
	}
}

// Handoff implements [h2.Host].
func (h *h2Host) Handoff(pass func(id uint32, fields []hpack.HeaderField)) {
	lp := h.ownerLoop()
	for len(h.calls) > 0 {
		f := h.calls[0]
		pass(f.stream, f.fields)
		id := f.stream
		h.handoffs.put(id, lp.endCall(f))
	}
}

// releaseStreams has net/http go on with all calls of a connection.
func (lp *loop) releaseStreams(c *Conn) {
	defer lp.recoverPanic(c)
	if c.h2conn.Load().Handoff() != nil {
		_ = c.Close()
		return
	}
	if len(c.wire.unsent) > 0 && c.reading.pending == nil {
		c.reading.pending = new(pendingWrite)
	}
	lp.serveHTTP2(c)
}

// replyStream answers a call with what is in fwd. It is written at the end of
// the round, together with the connection's others.
func (lp *loop) replyStream(f *call) {
	k, c, p, id := lp.fwd, f.c, f.roundTrip, f.stream
	body := k.reply.Body
	if f.method == http.MethodHead {
		body = nil
	}
	k.remove(f)
	k.head = lp.lane.through.AppendHead(k.head[:0], k.reply.Status, k.reply.Lines)
	k.block = appendBlock(k.block[:0], k.head)
	err := c.h2conn.Load().Reply(id, k.block, body)
	lp.lane.meters.Sent.Copied.Add(c.shard, uint64(len(k.block)+len(body)))
	p.Sent(c, &k.reply)
	if err != nil {
		_ = c.Close()
		return
	}
	if !c.h2host.needsFlush {
		c.h2host.needsFlush = true
		lp.toFlush = append(lp.toFlush, c)
	}
}

// sendReplies writes what the calls of a round have brought over HTTP/2.
func (lp *loop) sendReplies() {
	for i, c := range lp.toFlush {
		lp.toFlush[i] = nil
		lp.sendStreams(c)
	}
	lp.toFlush = lp.toFlush[:0]
}

func (lp *loop) sendStreams(c *Conn) {
	defer lp.recoverPanic(c)
	if !c.h2host.needsFlush {
		return // it has left the loop meanwhile
	}
	c.h2host.needsFlush = false
	if c.state.load().ended() || c.h2host.pendingInner != nil || c.h2host.mustLeave || c.reading.pending != nil {
		return
	}
	err := c.h2conn.Load().Flush()
	switch {
	case len(c.wire.unsent) > 0:
		c.reading.pending = &pendingWrite{closing: err != nil}
		lp.serveHTTP2(c)
	case err != nil:
		_ = c.Close()
	}
}
