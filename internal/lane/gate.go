package lane

import (
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"millrace/internal/admit"
	"millrace/internal/send"
)

// gate is an answer's gate with the headers that it counts by.
type gate struct {
	*admit.Gate
	headers [admit.MaxRates]headerID // hdrRefuse: none that the lane must look at
	agent   bool                     // it looks at the User-Agent
	// plain: what it refuses gets nothing but the refusal, which the lane can send.
	plain  bool
	always http.Header
	last   atomic.Pointer[refusal]
}

// refusal is the answer to who may not pass, made once for all who get the same.
type refusal struct {
	limit    *admit.Limit // nil: the address may not ask
	seconds  int64        // until it may ask again
	response *response
}

// newGate returns nil for the gate of answers that are for everybody. ok is false
// when the lane could not tell what the gate asks for.
func newGate(t *requestInfo, always http.Header) (_ *gate, ok bool) {
	g := t.gate
	if g == nil {
		return nil, true
	}
	known := &gate{Gate: g, agent: g.LooksAtAgent(), plain: !t.SuccessOnly && t.ApplyHeaders == nil, always: always}
	for i := range known.headers {
		known.headers[i] = hdrRefuse
		name := g.Header(i)
		if name == "" {
			continue
		}
		// A request with a header that the lane does not know is not its own.
		if known.headers[i] = lookupHeader([]byte(name)); known.headers[i] >= numKept && known.headers[i] != hdrRefuse {
			return nil, false
		}
	}
	return known, true
}

// applyGate is what is sent for an answer with a gate: r itself, the gate's refusal, or
// nil, where the handler must answer. A client that asks again and again should cost
// no more than one that is let in.
func (c *Conn) applyGate(r *response, q *request, b []byte, now time.Time, s *Settings) *response {
	v, known := r.ask(c.RemoteAddr(), q, b, now, s)
	switch {
	case !known:
		return nil
	case v.Passes():
		return r
	case !r.gate.plain || v.Proof != "" || v.Caught || s.Tracer != nil:
		return nil
	case v.Denied:
		c.lane.meters.Refused.Address.Add(c.shard, 1)
	default:
		c.lane.meters.Refused.Rate.Add(c.shard, 1)
	}
	return r.refusalFor(v)
}

// refusalFor is the answer that a verdict leads to.
func (r *response) refusalFor(v admit.Verdict) *response {
	seconds := v.Seconds()
	if last := r.gate.last.Load(); last != nil && last.limit == v.Limit && last.seconds == seconds {
		return last.response
	}
	w := recorder{header: http.Header{}}
	v.Refuse(&w)
	a := &send.Answer{Status: w.status, Header: w.header, Body: w.body, Size: int64(len(w.body))}
	made := newResponse(a, Rule{always: r.gate.always}, r.job)
	made.noLog = r.noLog
	r.gate.last.Store(&refusal{v.Limit, seconds, made})
	return made
}

// recorder is an answer that is kept.
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

// admits reports whether the gate of an answer lets a request pass. What it refuses
// net/http answers.
func (r *response) admits(remote net.Addr, q *request, b []byte, now time.Time, s *Settings) bool {
	if r.gate == nil {
		return true
	}
	v, known := r.ask(remote, q, b, now, s)
	return known && v.Passes()
}

// ask asks the gate of an answer about a request, and counts it. Ask it last: what
// it has let pass is to be answered here. known is false where only net/http can
// tell who asks.
func (r *response) ask(remote net.Addr, q *request, b []byte, now time.Time, s *Settings) (v admit.Verdict, known bool) {
	g := r.gate
	client, ok := s.gateClient(remote, q, b)
	if !ok {
		return v, false
	}
	about := admit.Request{Client: client, Now: now}
	for i, id := range g.headers {
		if id != hdrRefuse {
			about.Values[i] = q.value(b, id)
		}
	}
	if g.agent {
		about.Agent = q.value(b, hdrUserAgent)
	}
	return g.Ask(&about), true
}
