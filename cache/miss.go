package cache

import (
	"slices"
	"sync"

	"millrace/cache/fetch"
	"millrace/cache/fill"
	"millrace/internal/lane"
	"millrace/internal/route/site"
	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
	"millrace/proxy"
)

// missing is a request for what is not stored that an event loop fetches. It leads the
// fetch for its key, or asks for itself, as a handler does, but without a goroutine.
type missing struct {
	proxy.RoundTrip
	exchange
	fetch *fetch.Fetch
	fill  *fill.Fill[fetch.Outcome]
	pages site.Pages // of the route
	lines field.Lines

	copied message.Request // of the client, which its loop uses again
	room   proxy.Room      // for what is sent
}

var missingPool = sync.Pool{New: func() any { return new(missing) }}

// selective are the fields of a request that ask for a part of an answer, or for
// none if it has not changed.
var selective = []string{"Range", "If-Range", "If-None-Match", "If-Modified-Since"}

// passMiss is Pass for what is not stored. A handler does what has to look into other tiers
// than memory, what wants a part of an answer, and what waits for another's fetch.
func (h *Handler) passMiss(q *lane.ForwardRequest, x *exchange) lane.RoundTrip {
	if slices.ContainsFunc(selective, x.head.Fields.Has) {
		return nil
	}
	x.judge()
	if o, _ := h.lookup(x); o != nil || x.demand.OnlyIfCached || h.tiers.Slow() && !x.alone(x.request()) || !h.proxy.Tries(q.Head) {
		return nil
	}
	m := missingPool.Get().(*missing)
	m.exchange, m.pages = *x, q.Pages
	if !m.lead(q) {
		m.release()
		return nil
	}
	return m
}

// lead becomes the leader of the key's fetch and sends the request. It reports false
// where a goroutine has to do that. The server is chosen last, never for a request
// that is not sent.
func (m *missing) lead(q *lane.ForwardRequest) bool {
	m.head.Copy(&m.copied)
	m.head = &m.copied
	switch m.fill, m.fetch = m.claim(m.request(), nil); {
	case m.fill == nil:
		return false
	case m.fetch == nil: // another leads it
		m.fill.Leave()
		return false
	}
	if m.h.proxy.Begin(&m.RoundTrip, q, m.fetch.Lead(&m.room)) && (m.Waits() || m.send(q)) {
		return true
	}
	m.fetch.GiveUp()
	m.fill.Leave()
	return false
}

func (m *missing) send(q *lane.ForwardRequest) bool {
	m.fetch.Sent()
	return m.RoundTrip.Ask(m.fetch.Out(), q.Out)
}

// Start implements [lane.RoundTrip].
func (m *missing) Start(q *lane.ForwardRequest) bool { return m.Enter() && m.send(q) }

// Take implements [lane.RoundTrip].
func (m *missing) Take(buf []byte, r *lane.Reply) lane.Progress {
	a, content, t := m.Answer(buf)
	if t != lane.Complete {
		return t
	}
	if m.pages.For(a.Status) != "" {
		m.Hold() // a writer knows that page
		return lane.NeedsHandler
	}
	out, ok := m.fetch.Arrived(a, content)
	if !ok {
		m.Hold()
		return lane.NeedsHandler
	}
	m.End()
	r.Status, r.Body = a.Status, content
	if out.Private {
		r.Lines = m.own(m.fetch, a, nil, out.Reason)
	} else {
		m.settled(&out, false)
		m.lines = m.fields(m.lines[:0], &out, m.why(nil), false)
		r.Lines = m.lines
	}
	field.SortLines(r.Lines)
	return lane.Complete
}

// Sent implements [lane.RoundTrip].
func (m *missing) Sent(c *lane.Conn, _ *lane.Reply) {
	m.Release()
	m.h.record(&m.exchange, c.Shard())
	m.fill.Leave()
	m.release()
}

// Discard implements [lane.RoundTrip].
func (m *missing) Discard() {
	m.RoundTrip.Discard()
	m.fetch.GiveUp()
	m.fill.Leave()
	m.release()
}

func (m *missing) release() {
	clear(m.lines)
	m.copied, m.room = message.Request{}, proxy.Room{}
	m.exchange, m.fetch, m.fill, m.pages, m.lines = exchange{}, nil, nil, nil, m.lines[:0]
	missingPool.Put(m)
}

// Owner is for [lane.Take].
func (m *missing) Owner() *Handler { return m.h }

// resume continues a fetch that an event loop has begun, as join does with a new one.
func (x *exchange) resume(m *missing) bool {
	defer m.fill.Leave()
	m.fetch.GoOn(x.r.Context(), &m.RoundTrip)
	return x.lead(m.fetch, nil)
}
