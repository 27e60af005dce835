package cache

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"sync"

	"millrace/cache/rfc9111"
	"millrace/internal/access/signin"
	"millrace/internal/lane"
	"millrace/internal/route/headers"
	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
)

// forward forwards a request that bypasses the cache: uploads, upgrades, requests with
// a user's own credentials.
func (x *exchange) forward() {
	h := x.h
	x.outcome, x.reason = "bypass", x.bypass
	h.meters.Reasons.Add(x.bypass)
	if p, started := lane.Take[*passing](x.r, h); started {
		p.release()
	}
	x.addStatus(x.w.Header(), nil, bypassed(x.bypass, 0)) // of an answer of our own, where there is none
	h.proxy.Serve(x.w, x.r, x.head, x)
	if x.status == 0 {
		x.outcome, x.reason = "error", "upstream"
	}
}

// Edit implements [proxy.Editor], for a request that bypasses the cache.
func (x *exchange) Edit(status int, lines []field.Line) []field.Line {
	h := x.h
	x.status = status
	if rfc9111.Unsafe(x.head.Method) {
		ctx := h.life.ctx
		if x.r != nil {
			ctx = context.WithoutCancel(x.r.Context())
		}
		target := url.URL{Scheme: x.scheme, Host: x.host}
		if x.head.URL(&target) {
			h.invalidate(ctx, x.head.Method, target, status, lines)
		}
	}
	return x.public(lines, bypassed(x.bypass, status))
}

// bypassed is the member of Cache-Status for a request that bypassed the cache for
// a reason, and the status of its answer, 0 for none.
func bypassed(reason string, status int) string {
	why := "bypass"
	if reason == "method" {
		why = reason
	}
	return forward{why: why, status: status, detail: reason}.String()
}

// public makes the fields of an answer that is not stored those that its client gets, in
// place: without those that are for this cache alone, and with a member of Cache-Status.
func (x *exchange) public(lines field.Lines, member string) field.Lines {
	lines = slices.DeleteFunc(lines, func(l field.Line) bool { return slices.Contains(x.h.hidden, l.Name) })
	return append(x.allow(lines), field.Line{Name: cacheStatus, Value: member})
}

// allow adds what CORS says to the fields of an answer.
func (x *exchange) allow(lines field.Lines) field.Lines {
	if x.h.cors == nil {
		return lines
	}
	all := lines // which escapes
	origin := headers.OriginOf(&x.head.Fields)
	origin.Text = strings.Clone(origin.Text) // the lane may keep it, and it is a part of the head
	x.h.cors.ApplyTo(&all, origin)
	return all
}

// passing is a request that bypasses the cache and that an event loop forwards.
type passing struct {
	lane.RoundTrip
	exchange
	request message.Request // the loop's own is for the next
}

var passingPool = sync.Pool{New: func() any { return new(passing) }}

// Pass implements [lane.Passer], for requests that bypass the cache, and for what
// is not stored. The answer to an unsafe one can lead to a purge, and with a disk or other
// machines that would have to be waited for: a handler does it.
func (h *Handler) Pass(q *lane.ForwardRequest) lane.RoundTrip {
	if h.tells && rfc9111.Unsafe(q.Head.Method) {
		return nil
	}
	x := h.newExchange(q.Head, signin.Proof{})
	if x.bypass == "" {
		return h.passMiss(q, &x)
	}
	p := passingPool.Get().(*passing)
	q.Head.Copy(&p.request)
	p.exchange = x
	p.head, p.outcome, p.reason = &p.request, "bypass", x.bypass
	if p.RoundTrip = h.proxy.PassEdited(q, p); p.RoundTrip == nil {
		p.release()
		return nil
	}
	return p
}

// Sent implements [lane.RoundTrip].
func (p *passing) Sent(c *lane.Conn, r *lane.Reply) {
	p.h.meters.Reasons.Add(p.bypass)
	p.h.record(&p.exchange, c.Shard())
	p.RoundTrip.Sent(c, r)
	p.release()
}

// Discard implements [lane.RoundTrip].
func (p *passing) Discard() {
	p.RoundTrip.Discard()
	p.release()
}

func (p *passing) release() {
	p.RoundTrip, p.exchange = nil, exchange{}
	passingPool.Put(p)
}

// Owner is for [lane.Take].
func (p *passing) Owner() *Handler { return p.h }

// Inner is for [lane.Take], by which the proxy takes its own part.
func (p *passing) Inner() lane.RoundTrip { return p.RoundTrip }
