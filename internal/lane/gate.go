package lane

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"millrace/internal/access/admit"
	"millrace/internal/wire/pages"
	"millrace/internal/wire/send"
)

// gate is an answer's access gate, with the request headers that it looks at.
type gate struct {
	*admit.Gate
	headers [admit.MaxRates]headerID // hdrRefuse: no header, or one that must be absent (demands.addGate)
	agent   bool                     // it looks at the User-Agent
	// plain: the server changes nothing of a refusal, so the lane can send it.
	plain  bool
	always http.Header
	last   [pages.Forms]atomic.Pointer[refusal]
}

// refusal is the answer to a client that the gate refuses, in one form. It is kept for others
// that get the same.
type refusal struct {
	limit    *admit.Limit // nil: the address is denied
	seconds  int64        // of Retry-After
	response *response
}

// newGate returns nil where everybody may have the answers.
func newGate(t *requestInfo, always http.Header) *gate {
	g := t.gate
	if g == nil {
		return nil
	}
	known := &gate{Gate: g, agent: g.LooksAtAgent(), plain: !t.SuccessOnly && t.HeaderRules == nil, always: always}
	for i := range known.headers {
		known.headers[i] = hdrRefuse
		if id := lookupHeader([]byte(g.Header(i))); id < numKept {
			known.headers[i] = id
		}
	}
	return known
}

// applyGate returns what to send in place of an answer with a gate: as itself, a refusal, or
// nothing, where the handler must answer. A client that is refused again and again should cost
// no more than one that is let in.
func (c *Conn) applyGate(as choice, q *request, b []byte, now time.Time, s *Settings) choice {
	r := as.of
	if r.gate.repeated(q) {
		return choice{}
	}
	v := r.ask(c.RemoteAddr(), q, b, now, s)
	switch {
	case v.Passes():
		return as
	case v.Later || !r.gate.plain || v.Proof != "" || v.Caught || s.Tracer != nil || q.repeats(hdrAccept):
		return choice{}
	case v.Denied:
		c.lane.meters.Refused.Address.Add(c.shard, 1)
	default:
		c.lane.meters.Refused.Rate.Add(c.shard, 1)
	}
	return r.refusalFor(v, view(q.value(b, hdrAccept))).whole()
}

// refusalFor returns the answer for a verdict that refuses a client with this Accept.
func (r *response) refusalFor(v admit.Verdict, accept string) *response {
	seconds, lines := v.Seconds(), [...]string{accept}
	kept := &r.gate.last[pages.FormOf(lines[:])]
	if last := kept.Load(); last != nil && last.limit == v.Limit && last.seconds == seconds {
		return last.response
	}
	w := recorder{header: http.Header{}}
	v.Refuse(&w, &http.Request{Method: http.MethodGet, Header: http.Header{"Accept": {strings.Clone(accept)}}})
	a := &send.Answer{Status: w.status, Header: w.header, Body: w.body, Size: int64(len(w.body))}
	made := newResponse(a, Rule{answerRules: answerRules{always: r.gate.always}}, r.job)
	made.noLog = r.noLog
	kept.Store(&refusal{v.Limit, seconds, made})
	return made
}

// recorder is an [http.ResponseWriter] that keeps the answer.
type recorder struct {
	header http.Header
	status int
	body   []byte
}

// Header implements [http.ResponseWriter].
func (w *recorder) Header() http.Header { return w.header }

// WriteHeader implements [http.ResponseWriter].
func (w *recorder) WriteHeader(status int) { w.status = status }

// Write implements [http.ResponseWriter].
func (w *recorder) Write(p []byte) (int, error) {
	w.body = append(w.body, p...)
	return len(p), nil
}

// admits reports whether the gate lets a request have the answer. If not, net/http answers.
func (r *response) admits(remote net.Addr, q *request, b []byte, now time.Time, s *Settings) bool {
	if r.gate == nil {
		return true
	}
	return !r.gate.repeated(q) && r.ask(remote, q, b, now, s).Passes()
}

// repeated reports whether a header that the gate looks at came more than once: then net/http
// must ask the gate.
func (g *gate) repeated(q *request) bool {
	return g.agent && q.repeats(hdrUserAgent) || slices.ContainsFunc(g.headers[:], q.repeats)
}

// ask asks the gate about a request, which counts it against the client's limits. So call it
// last: what it lets pass must be answered here.
func (r *response) ask(remote net.Addr, q *request, b []byte, now time.Time, s *Settings) admit.Verdict {
	g := r.gate
	about := admit.Request{Client: s.gateClient(remote, q, b), Now: now}
	for i, id := range g.headers {
		if id != hdrRefuse {
			about.Values[i] = q.value(b, id)
		}
	}
	if g.agent {
		about.Agent = q.value(b, hdrUserAgent)
	}
	return g.Ask(&about)
}
