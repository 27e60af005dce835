package lane

import (
	"net/http"
	"slices"
	"time"

	"golang.org/x/net/http2/hpack"

	"millrace/internal/wire/message"
)

// A request over HTTP/2 is forwarded as one over HTTP/1.1 is, but its connection goes on
// meanwhile, with many calls at a time. What is not forwarded, or no longer, a worker serves
// (through_http2.go).

// Forward implements [h2.Host].
func (h *h2Host) Forward(id uint32, fields []hpack.HeaderField) (taken bool) {
	if !h.looped || h.lane.through == nil {
		return false
	}
	lp := h.ownerLoop()
	head := &lp.ensureForwarding().request
	if !parseFields(head, fields) {
		return false
	}
	var started RoundTrip
	if lp.canForward(h.Conn) {
		f := lp.fwd.take()
		f.c, f.stream, f.fields = h.Conn, id, append(f.fields[:0], fields...)
		var sent bool
		if started, sent = lp.forwardCall(f, nil, time.Now()); sent {
			h.calls = append(h.calls, f)
			if !f.waits && !lp.watchUpstream(f) {
				lp.toWorker(f)
			}
			return true
		}
		parseFields(head, fields) // the forwarder may have changed it
	}
	if lp.serveStream(h, id, head, started) {
		return true
	}
	discard(&started)
	return false
}

// parseFields makes a head of the fields of a request.
func parseFields(head *message.Request, fields []hpack.HeaderField) bool {
	p, rest, ok := splitPseudo(fields)
	if !ok || p.scheme != "https" || !head.Assemble(p.method, p.path, p.authority) {
		return false
	}
	for i := range rest {
		if !head.Add(rest[i].Name, rest[i].Value) {
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
}

// streamToWorker has a worker go on with a call.
func (lp *loop) streamToWorker(f *call) {
	h, id := f.c.h2host, f.stream
	parsed := parseFields(&lp.fwd.request, f.fields)
	started := lp.endCall(f)
	if !parsed || !lp.serveStream(h, id, &lp.fwd.request, started) { // it was parsed before
		discard(&started)
		_ = h.Conn.Close()
	}
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
	c.h2host.needsFlush = false
	if c.state.load().ended() || c.reading.pending != nil {
		return
	}
	err := c.h2conn.Load().Flush()
	switch {
	case c.wire.full():
		c.reading.pending = &pendingWrite{closing: err != nil}
		lp.serveHTTP2(c)
	case err != nil:
		_ = c.Close()
	}
}
