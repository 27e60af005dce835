package server

import (
	"strings"

	"millrace/internal/lane"
	"millrace/internal/route/site"
	"millrace/internal/wire/field"
)

// Forward implements [lane.Forwarder]. It begins the visit of a request that an event loop
// may pass on, and sends it if its route, its gate and its job allow that at once.
func (s *Server) Forward(q *lane.ForwardRequest) (started lane.RoundTrip, sent bool) {
	h := q.Head
	if !h.Simple || strings.HasPrefix(h.Path, challengePath) {
		return nil, false
	}
	v := s.begin(q.Scope, h, q.Remote)
	var job lane.Passer
	var below string
	if v.plainRoute(h) {
		job, below = passer(v.route, h.Path)
	}
	if job == nil {
		v.leave()
		return nil, false
	}
	v.prepare(h)
	if h.Length > v.bodyLimit() || !v.admit(h) || v.mark.Exported() { // its steps are noted
		return v, false
	}
	v.through = true
	v.below, v.set = below, v.mark.Fields(v.set)
	v.fill(q)
	v.RoundTrip = job.Pass(q)
	return v, v.RoundTrip != nil
}

// passer returns the job of a route, if loops may pass requests on for it, and the path that
// the job sees.
func passer(route *site.Route, path string) (job lane.Passer, below string) {
	if !route.Passes || route.Foreign {
		return nil, ""
	}
	handler, below := route.Handler, path
	if m, ok := handler.(*site.Mounted); ok {
		var found bool
		if below, found = strings.CutPrefix(path, m.Prefix); !found || below == "" {
			return nil, ""
		}
		handler = m.Job
	}
	job, _ = handler.(lane.Passer) // not where a password is asked for first
	return job, below
}

// fill gives the job what it needs to know besides the request.
func (v *visit) fill(q *lane.ForwardRequest) {
	q.Pages = v.route.Intercepted
	q.Head.Path, q.Head.ID, q.Head.Marks = v.below, v.id, v.set
}

// Start implements [lane.RoundTrip].
func (v *visit) Start(q *lane.ForwardRequest) bool {
	v.fill(q)
	return v.RoundTrip.Start(q)
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
