package lane

import (
	"net/http"
	"slices"

	"golang.org/x/net/http2/hpack"

	"millrace/internal/h2"
	"millrace/internal/lean"
)

// A request over HTTP/2 is passed on as one over HTTP/1.1 is, but its connection
// goes on meanwhile, with many flights at a time. What the crew does there, net/http
// does here: it gets all of the connection's flights at once, and the connection
// leaves its loop.

// Carry implements [h2.Host].
func (h *h2Host) Carry(id uint32, fields []hpack.HeaderField) (taken, marked bool) {
	if !h.wire.onLoop() {
		return false, false
	}
	lp := h.home()
	if !lp.carries(h.Conn) || !parseFields(&lp.carriage().request, fields) {
		return false, false
	}
	f := lp.carrying.take()
	f.c, f.stream, f.fields = h.Conn, id, append(f.fields[:0], fields...)
	if !lp.ask(f, nil) {
		before := lp.carrying.question.Before
		if before != nil {
			h.left.put(id, &leftover{before: before})
		}
		return false, before != nil
	}
	h.flights = append(h.flights, f)
	if !f.waits && !lp.expect(f) {
		lp.giveUp(f) // a GET may be sent again
		return false, false
	}
	return true, false
}

// parseFields makes a head of the fields of a request.
func parseFields(head *lean.Head, fields []hpack.HeaderField) bool {
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

// landed forgets a flight.
func (h *h2Host) landed(f *flight) {
	if i := slices.Index(h.flights, f); i >= 0 {
		h.flights = slices.Delete(h.flights, i, i+1)
	}
}

// Drop implements [h2.Host].
func (h *h2Host) Drop(id uint32) {
	for _, f := range h.flights {
		if f.stream == id {
			h.home().giveUp(f)
			return
		}
	}
}

// Surrender implements [h2.Host].
func (h *h2Host) Surrender(pass func(id uint32, fields []hpack.HeaderField)) {
	lp := h.home()
	for len(h.flights) > 0 {
		f := h.flights[0]
		pass(f.stream, f.fields)
		id := f.stream
		h.left.put(id, &leftover{passage: lp.handOver(f)})
	}
}

// surrender has net/http go on with all flights of a connection.
func (lp *loop) surrender(c *Conn) {
	defer lp.guard(c)
	if c.front.Load().Yield() != nil {
		_ = c.Close()
		return
	}
	if len(c.wire.rest) > 0 && c.reading.pending == nil {
		c.reading.pending = new(pendingWrite)
	}
	lp.lookHTTP2(c)
}

// replyStream answers a flight with what is in carrying. It is written at the end of
// the round, together with the connection's others.
func (lp *loop) replyStream(f *flight) {
	k, c, p, id := lp.carrying, f.c, f.passage, f.stream
	body := k.reply.Body
	if f.method == http.MethodHead {
		body = nil
	}
	k.remove(f)
	k.head = lp.lane.through.AppendHead(k.head[:0], k.reply.Status, k.reply.Lines)
	k.block = appendBlock(k.block[:0], k.head)
	err := c.front.Load().Reply(id, k.block, body)
	lp.lane.meters.Sent.Copied.Add(c.shard, uint64(len(k.block)+len(body)))
	p.Sent(c, &k.reply)
	if err != nil {
		_ = c.Close()
		return
	}
	if !c.host.unsent {
		c.host.unsent = true
		lp.unsent = append(lp.unsent, c)
	}
}

// sendReplies writes what the flights of a round have brought over HTTP/2.
func (lp *loop) sendReplies() {
	for i, c := range lp.unsent {
		lp.unsent[i] = nil
		lp.sendStreams(c)
	}
	lp.unsent = lp.unsent[:0]
}

func (lp *loop) sendStreams(c *Conn) {
	defer lp.guard(c)
	if !c.host.unsent {
		return // it has left the loop meanwhile
	}
	c.host.unsent = false
	if c.closed.Load() || c.host.waiting != nil || c.host.leaves || c.reading.pending != nil {
		return
	}
	err := c.front.Load().Flush()
	switch {
	case len(c.wire.rest) > 0:
		c.reading.pending = &pendingWrite{closing: err != nil}
		lp.lookHTTP2(c)
	case err != nil:
		_ = c.Close()
	}
}
