package cache

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"millrace/cache/fetch"
	"millrace/cache/fill"
	"millrace/cache/rules"
	"millrace/internal/lane"
	"millrace/internal/route/site"
	"millrace/internal/wire/field"
	"millrace/proxy"
)

// missing is a request for what is not stored that an event loop fetches. It leads the
// fetch for its key, as join and lead do for a handler, but without a goroutine.
type missing struct {
	proxy.Trip
	h     *Handler
	x     exchange
	fetch *fetch.Fetch
	fill  *fill.Fill[fetch.Outcome]
	pages site.Pages // of the route
	lines []field.Line
}

var missingPool = sync.Pool{New: func() any { return new(missing) }}

// selective are the fields of a request that ask for a part of an answer, or for
// none if it has not changed.
var selective = []string{"Range", "If-Range", "If-None-Match", "If-Modified-Since"}

// misses reports whether event loops may fetch: that needs no tier but memory, and
// nothing else that a loop would wait for.
func (h *Handler) misses() bool {
	return !h.tiers.Slow()
}

// passMiss is Pass for what is not stored.
func (h *Handler) passMiss(q *lane.ForwardRequest, set *rules.Settings) lane.RoundTrip {
	head := q.Head
	if !h.misses() || head.Method != http.MethodGet || len(set.Made) > 0 {
		return nil
	}
	for _, name := range selective {
		if head.Value(name) != "" {
			return nil
		}
	}
	scheme := q.Head.Scheme()
	host := field.NormalAuthority(scheme, head.Host)
	m := missingPool.Get().(*missing)
	m.h, m.pages = h, q.Pages
	m.x = exchange{h: h, began: time.Now(), set: set, scheme: scheme, host: host, head: head, purges: h.purges.Generation().Now()}
	m.x.judge()
	if h.tiers.Look(m.x.key) != nil || !h.proxy.Tries(q) || !m.lead(q) {
		m.release()
		return nil
	}
	return m
}

// lead becomes the leader of the key's fetch and sends the request. It reports false
// where a goroutine has to do that. The server is chosen last, never for a request
// that is not sent.
func (m *missing) lead(q *lane.ForwardRequest) bool {
	h, x := m.h, &m.x
	x.r = q.Head.HTTP(h.life.ctx, q.Client.String())
	if x.r == nil {
		return false
	}
	x.head = x.head.Clone()
	f := x.request()
	if x.demand.OnlyIfCached || x.demand.NoStore || h.fetches.Passes(f) {
		return false
	}
	var leader bool
	if m.fill, leader = h.fetches.Join(f); !leader || !m.fill.Enter() {
		return false
	}
	if h.tiers.Look(x.key) != nil && m.fill.Abandon() { // another fetch has just ended
		m.fill.Leave()
		return false
	}
	m.fetch = h.fetches.New(m.fill, f, nil)
	m.fetch.Lead()
	if h.proxy.BeginHTTP(&m.Trip, q, x.key) && (m.Waits() || m.send(q)) {
		return true
	}
	m.fetch.GiveUp()
	m.fill.Leave()
	return false
}

func (m *missing) send(q *lane.ForwardRequest) bool {
	out, onSuspect := m.fetch.Ask()
	return m.Trip.AskHTTP(out, q.Out, onSuspect)
}

// Start implements [lane.RoundTrip].
func (m *missing) Start(q *lane.ForwardRequest) bool { return m.Enter() && m.send(q) }

// Take implements [lane.RoundTrip].
func (m *missing) Take(buf []byte, r *lane.Reply) lane.Progress {
	resp, content, t := m.AnswerHTTP(buf) //nolint:bodyclose // it has none
	if t != lane.Complete {
		return t
	}
	if m.pages.For(resp.StatusCode) != "" {
		m.Hold() // a writer knows that page
		return lane.NeedsHandler
	}
	out, ok := m.fetch.Arrived(resp, content)
	if !ok {
		m.Hold()
		return lane.NeedsHandler
	}
	m.End()
	x := &m.x
	x.outcome, x.reason, x.status = out.How, out.Reason, out.Status
	m.lines = m.appendLines(m.lines[:0], &out)
	field.SortLines(m.lines)
	r.Status, r.Lines, r.Body = out.Status, m.lines, out.Body.Bytes()
	return lane.Complete
}

// appendLines appends what arrive and stream send of a whole answer.
func (m *missing) appendLines(lines []field.Line, out *fetch.Outcome) []field.Line {
	o := out.Object
	for _, f := range o.Fields {
		if slices.Contains(m.h.hidden, f.Name) || f.Name == "Accept-Ranges" && out.Status == http.StatusOK {
			continue
		}
		for _, v := range f.Values {
			lines = append(lines, field.Line{Name: f.Name, Value: v})
		}
	}
	for name, values := range out.Withheld {
		for _, v := range values {
			lines = append(lines, field.Line{Name: name, Value: v})
		}
	}
	if out.Aged {
		age := seconds(o.Facts.CurrentAge(time.Now()))
		lines = append(lines, field.Line{Name: "Age", Value: strconv.FormatInt(age, 10)})
	}
	if out.Status == http.StatusOK {
		lines = append(lines, field.Line{Name: "Accept-Ranges", Value: "bytes"})
	}
	status := forward{why: "uri-miss", status: out.Status, stored: out.Reason == "", detail: out.Reason}
	return append(lines, field.Line{Name: "Cache-Status", Value: status.String()})
}

// Sent implements [lane.RoundTrip].
func (m *missing) Sent(*lane.Conn, *lane.Reply) {
	m.Release()
	m.h.record(&m.x)
	m.fill.Leave()
	m.release()
}

// Discard implements [lane.RoundTrip].
func (m *missing) Discard() {
	m.Trip.Discard()
	m.fetch.GiveUp()
	m.fill.Leave()
	m.release()
}

func (m *missing) release() {
	lines := m.lines
	clear(lines)
	m.h, m.x, m.fetch, m.fill, m.pages, m.lines = nil, exchange{}, nil, nil, nil, lines[:0]
	missingPool.Put(m)
}

// Owner is for [lane.Take].
func (m *missing) Owner() *Handler { return m.h }

// resume continues a fetch that an event loop has begun, as join does with a new one.
func (x *exchange) resume(m *missing) bool {
	defer m.fill.Leave()
	m.fetch.GoOn(x.r, m.Late())
	return x.lead(m.fetch, nil)
}
