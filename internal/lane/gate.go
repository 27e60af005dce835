package lane

import (
	"net"
	"time"

	"millrace/internal/admit"
)

// gate is an answer's gate with the headers that it counts by.
type gate struct {
	*admit.Gate
	headers [admit.MaxRates]headerID // hdrRefuse: none that the lane must look at
	agent   bool                     // it looks at the User-Agent
}

// newGate returns nil for the gate of answers that are for everybody. ok is false
// when the lane could not tell what the gate asks for.
func newGate(g *admit.Gate) (_ *gate, ok bool) {
	if g == nil {
		return nil, true
	}
	known := &gate{Gate: g, agent: g.LooksAtAgent()}
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

// admits asks the gate of an answer about a request, and counts it. Ask it last:
// what it has let pass is to be answered here. What it refuses net/http answers.
func (r *response) admits(remote net.Addr, q *request, b []byte, now time.Time, s *Settings) bool {
	g := r.gate
	if g == nil {
		return true
	}
	client, ok := s.client(remote, q, b)
	if !ok {
		return false
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
	return g.Ask(&about).Passes()
}
