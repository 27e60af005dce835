package server

import (
	"strings"
	"sync"
	"time"

	"millrace/internal/accesslog"
	"millrace/internal/lane"
	"millrace/internal/meter"
	"millrace/internal/redact"
	"millrace/internal/site"
	"millrace/internal/slow"
	"millrace/internal/trace"
)

// carried is a request that a loop passes on, with the accounting that ServeHTTP does
// for others.
type carried struct {
	lane.Passage
	table *site.Table
	job   *meter.Job
	log   *accesslog.Log // nil: no line
	began time.Time
	line  accesslog.Record
	slow  *slow.Store // nil: nobody wants to know of slow ones
}

var carriedPool = sync.Pool{New: func() any { return new(carried) }}

// Carry implements [lane.Carrier]: for routes around whose job there is nothing.
// What ServeHTTP would ask, find out or add that is not here keeps a request from
// being carried.
func (s *Server) Carry(q *lane.Question) lane.Passage {
	now, h := s.current.Load(), q.Head
	if q.Scope.Secure || now.clients != nil || now.follow.Tracer.Marks() || !h.Simple || strings.HasPrefix(h.Path, challengePath) || h.Length > int64(now.limits.BodyBytes) {
		return nil
	}
	table := enter(q.Scope)
	p, route := carry(table, q)
	if p == nil {
		table.Leave()
		return nil
	}
	x := carriedPool.Get().(*carried)
	*x = carried{Passage: p, table: table, job: route.Job, began: time.Now()}
	if now.log != nil && !route.NoLog {
		x.log, x.slow = now.log, now.follow.Slow
		x.line = accesslog.Record{
			Time: x.began, Host: h.Host, Method: h.Method, Target: h.Target, Proto: "HTTP/1.1",
			Referer: h.Value("Referer"), UserAgent: h.Value("User-Agent"), Through: true,
		}
	}
	return x
}

func carry(table *site.Table, q *lane.Question) (lane.Passage, *site.Route) {
	st := table.Site(q.Head.Host)
	if st == nil {
		return nil, nil
	}
	route := st.Plain(q.Head.Path)
	if route == nil || !route.Passes || !route.Bare() || route.BodyBytes > 0 && q.Head.Length > route.BodyBytes {
		return nil, nil
	}
	h := route.Handler
	if m, ok := h.(*site.Mounted); ok {
		below, found := strings.CutPrefix(q.Head.Path, m.Prefix)
		if !found || below == "" {
			return nil, nil
		}
		h, q.Head.Path = m.Job, below
	}
	job, ok := h.(lane.Passer) // not where a password is asked for first
	if !ok {
		return nil, nil
	}
	return job.Pass(q), route
}

// Sent implements [lane.Passage].
func (x *carried) Sent(c *lane.Conn, r *lane.Reply) {
	took, sent := time.Since(x.began), int64(len(r.Body))
	x.job.Through.Observe(c.Shard(), r.Status, sent, took)
	if x.log != nil {
		x.line.Remote, x.line.Status, x.line.Bytes, x.line.Duration, x.line.Shard = c.LoggedAs(), r.Status, sent, took, c.Shard()
		x.log.Write(&x.line)
		if slow.Slow(x.job, took) && x.slow.Wants(x.began) {
			x.slow.Add(x.job, x.trace())
		}
	}
	x.Passage.Sent(c, r)
	x.table.Leave()
	x.release()
}

// trace is what there is to say of a request that was slow: the loop only passes bytes
// on, so all of it was the upstream's answer and its way to the client.
func (x *carried) trace() *trace.Trace {
	l := &x.line
	return &trace.Trace{
		Summary: trace.Summary{
			Method: cut(l.Method, maxHost), Scheme: "http", Host: cut(l.Host, maxHost), Target: redact.Target(cut(l.Target, maxTarget)), Proto: l.Proto,
			Client: cut(l.Remote, maxHost), Agent: cut(l.UserAgent, maxAgent), Site: x.job.Site, Route: x.job.Route, Job: x.job.Name, Lane: "through",
			Status: l.Status, Bytes: l.Bytes, Took: l.Duration,
		},
		Began: x.began,
		Steps: []trace.Step{{Kind: trace.Upstream, Note: "passed on by the event loop", Took: l.Duration, Parent: -1}},
	}
}

// Discard implements [lane.Passage].
func (x *carried) Discard() {
	x.Passage.Discard()
	x.table.Leave()
	x.release()
}

func (x *carried) release() {
	*x = carried{}
	carriedPool.Put(x)
}

// goOn takes over the accounting of a passage that a handler goes on with.
func goOn(p *lane.Passage) *site.Table {
	x := (*p).(*carried)
	table := x.table
	*p = x.Passage
	x.release()
	return table
}

// Carried is how many requests the loops have passed on.
func (s *Server) Carried() uint64 { return s.lane.Carried() }
