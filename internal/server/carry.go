package server

import (
	"strings"

	"millrace/internal/access/signin"
	"millrace/internal/lane"
	"millrace/internal/route/site"
	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
)

// Forward implements [lane.Forwarder]. It begins the visit of a request that an event loop
// may pass on, and sends it if its route, its gate and its job allow that at once.
func (s *Server) Forward(q *lane.ForwardRequest) (started lane.RoundTrip, sent bool) {
	h := q.Head
	v := s.begin(q.Scope, h, q.Remote)
	if !v.find(h) || !v.findJob() {
		v.leave()
		return nil, false
	}
	v.prepare(h)
	if h.Length > v.bodyLimit() || !v.admit(h) || v.mark.Exported() { // its steps are noted
		return v, false
	}
	v.through = true
	v.set = v.mark.Fields(v.set)
	if v.fill(q) {
		v.RoundTrip = v.job.Pass(q)
	}
	return v, v.RoundTrip != nil
}

// findJob finds the job of the route, the gate before it, and the path that it sees. It
// reports false where loops pass nothing on.
func (v *visit) findJob() bool {
	if !v.route.Passes || v.route.Foreign {
		return false
	}
	handler := v.route.Handler
	if g, ok := handler.(*signin.Gated); ok {
		v.signIn, handler = g.Gate, g.Handler
	}
	if m, ok := handler.(*site.Mounted); ok {
		var found bool
		if v.below, found = strings.CutPrefix(v.below, m.Prefix); !found || v.below == "" || !message.Simple(m.Prefix) {
			return false
		}
		handler = m.Job
	}
	v.job, _ = handler.(lane.Passer)
	return v.job != nil
}

// fill gives the job what it needs to know besides the request. It reports false where the
// client is not let in, or somebody must be asked about it.
func (v *visit) fill(q *lane.ForwardRequest) bool {
	q.Pages = v.route.Intercepted
	h := q.Head
	h.ID, h.Marks = v.id, v.set
	if v.below != h.Path || v.found.Moved {
		h.Path, h.Query, h.Simple = v.below, v.found.Query, message.Simple(v.below)
	}
	if v.found.Moved {
		h.HasQuery = h.Query != ""
	}
	return v.signIn == nil || v.signIn.AdmitNow(h)
}

// Start implements [lane.RoundTrip].
func (v *visit) Start(q *lane.ForwardRequest) bool {
	return v.fill(q) && v.RoundTrip.Start(q)
}

// Take implements [lane.RoundTrip].
func (v *visit) Take(buf []byte, r *lane.Reply) lane.Progress {
	t := v.RoundTrip.Take(buf, r)
	if t == lane.Complete && v.changes() {
		v.lines = append(v.lines[:0], r.Lines...)
		v.addFields(&v.lines, r.Status, v.lines.First("Content-Type"))
		field.SortLines(v.lines)
		r.Lines = v.lines
	}
	return t
}

// Sent implements [lane.RoundTrip].
func (v *visit) Sent(c *lane.Conn, r *lane.Reply) {
	v.done(r.Status, int64(len(r.Body)), c.Shard())
	v.RoundTrip.Sent(c, r)
	v.leave()
}

// Discard implements [lane.RoundTrip].
func (v *visit) Discard() {
	if v.RoundTrip != nil {
		v.RoundTrip.Discard()
	}
	v.leave()
}

// Forwarded returns how many requests the loops have forwarded.
func (s *Server) Forwarded() uint64 { return s.lane.Forwarded() }
