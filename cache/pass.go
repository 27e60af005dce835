package cache

import (
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"millrace/cache/rfc9111"
	"millrace/internal/access/signin"
	"millrace/internal/lane"
	"millrace/internal/wire/field"
)

// passing is a request that bypasses the cache and that an event loop forwards, in the
// way that exchange.forward does in a handler.
type passing struct {
	lane.RoundTrip
	h      *Handler
	began  time.Time
	method string
	url    url.URL
	why    string // it bypasses the cache
}

var passingPool = sync.Pool{New: func() any { return new(passing) }}

// passes reports whether event loops may forward requests with a method. The answer to
// an unsafe one can lead to a purge, and with a disk or other machines that would have
// to be waited for. Behind trusted proxies, whose fields are part of the URL, handlers
// do it.
func (h *Handler) passes(method string) bool {
	return h.cors == nil && !h.trusting && (!h.tells || !rfc9111.Unsafe(method))
}

// Pass implements [lane.Passer], for requests that bypass the cache, and for what
// is not stored.
func (h *Handler) Pass(q *lane.ForwardRequest) lane.RoundTrip {
	head := q.Head
	if !h.passes(head.Method) {
		return nil
	}
	target := url.URL{
		Scheme: q.Head.Scheme(), Host: field.NormalAuthority(q.Head.Scheme(), head.Host), // as Asked has them: see proxy.Handler.Pass
		Path: head.Path, RawQuery: head.Query, ForceQuery: head.HasQuery && head.Query == "",
	}
	set := h.rules.ForRequest(head.Path)
	why := bypass(h.rules, set, head, signin.Proof{})
	if why == "" {
		return h.passMiss(q, set)
	}
	p := passingPool.Get().(*passing)
	*p = passing{h: h, began: time.Now(), method: head.Method, url: target, why: why}
	if p.RoundTrip = h.proxy.PassEdited(q, p); p.RoundTrip == nil {
		p.release()
		return nil
	}
	return p
}

// Edit implements [proxy.Editor].
func (p *passing) Edit(status int, lines []field.Line) []field.Line {
	h := p.h
	if rfc9111.Unsafe(p.method) {
		h.invalidate(h.life.ctx, p.method, p.url, status, invalidating(lines))
	}
	lines = h.public(lines)
	return append(lines, field.Line{Name: "Cache-Status", Value: bypassed(p.why, status)})
}

// invalidating returns the fields of an answer that name what else it invalidates.
func invalidating(lines []field.Line) http.Header {
	var header http.Header
	for i := range lines {
		switch l := &lines[i]; l.Name {
		case "Location", "Content-Location":
			if header == nil {
				header = http.Header{}
			}
			header[l.Name] = append(header[l.Name], l.Value)
		}
	}
	return header
}

// public removes, in place, the fields that are for this cache alone.
func (h *Handler) public(lines []field.Line) []field.Line {
	kept := lines[:0]
	for _, l := range lines {
		if !slices.Contains(h.hidden, l.Name) {
			kept = append(kept, l)
		}
	}
	return kept
}

// Sent implements [lane.RoundTrip].
func (p *passing) Sent(c *lane.Conn, r *lane.Reply) {
	h := p.h
	h.meters.Reasons.Add(p.why)
	h.meters.Bypass.Add(c.Shard(), 1)
	h.recent.add(Decision{
		Time: p.began, Method: p.method, URL: loggedURL(p.url.String()), Status: r.Status,
		Outcome: "bypass", Reason: p.why, Took: time.Since(p.began),
	})
	p.RoundTrip.Sent(c, r)
	p.release()
}

// Discard implements [lane.RoundTrip].
func (p *passing) Discard() {
	p.RoundTrip.Discard()
	p.release()
}

func (p *passing) release() {
	*p = passing{}
	passingPool.Put(p)
}

// Owner is for [lane.Take].
func (p *passing) Owner() *Handler { return p.h }

// Inner is for [lane.Take], by which the proxy takes its own part.
func (p *passing) Inner() lane.RoundTrip { return p.RoundTrip }
