package server

import (
	"crypto/rand"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"millrace/internal/access/admit"
	"millrace/internal/lane"
	"millrace/internal/observe/accesslog"
	"millrace/internal/observe/redact"
	"millrace/internal/observe/trace"
	"millrace/internal/ops/slow"
	"millrace/internal/route/headers"
	"millrace/internal/route/site"
	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
	"millrace/internal/wire/send"
)

// forwarded is a request that a loop passes on, with what ServeHTTP does for others:
// header rules, metrics and the log.
type forwarded struct {
	lane.RoundTrip // nil: it was not sent
	prepared
	server *Server
	table  *site.Table
	route  *site.Route
	began  time.Time
	log    *accesslog.Log // nil: no line
	line   accesslog.Record
	slow   *slow.Store // nil: slow requests are not kept

	idField string // of its answer; "" for none
	fields  []field.Line
	client  netip.Addr // whom a trusted proxy names, or the connection's other end
	remote  string     // the client as it is logged; "": the connection's other end
	request requestParts
	lines   field.Lines // of the answer
	always  http.Header // fields that each answer has
	// value is valueOf, made once.
	value func(variable string) string
}

// prepared is what a loop has done for a request before it went to a handler.
type prepared struct {
	mark     trace.Mark // what the upstream gets of its trace
	id       string     // the request's id for rules; "": none uses it
	admitted bool       // its gate has admitted it
}

// requestParts are the parts of the request that header rules may use.
type requestParts struct {
	method, scheme, host, path, query, target, origin string
	from                                              net.Addr
}

var forwardedPool = sync.Pool{New: func() any {
	x := new(forwarded)
	x.value = x.valueOf
	return x
}}

// Forward implements [lane.Forwarder]. What ServeHTTP would ask, find out or add that is
// not here keeps a request from being forwarded.
func (s *Server) Forward(q *lane.ForwardRequest) (started lane.RoundTrip, sent bool) {
	now, h := s.current.Load(), q.Head
	if !h.Simple || strings.HasPrefix(h.Path, challengePath) || h.Length > int64(now.limits.BodyBytes) {
		return nil, false
	}
	table := enter(q.Scope)
	route, job, below := forwardable(table, h)
	if job == nil {
		table.Leave()
		return nil, false
	}
	x := forwardedPool.Get().(*forwarded)
	x.server, x.table, x.route, x.began = s, table, route, time.Now()
	if always := q.Scope.Always.Load(); always != nil {
		x.always = *always
	}
	x.client = q.Head.Peer
	trusted := now.clients.Trusts(x.client)
	if trusted {
		x.client = now.clients.Named(x.client, h.Value(now.clients.Header()))
	}
	if now.clients != nil && x.client.IsValid() {
		x.remote = x.client.String()
	}
	if !x.admits(q) {
		x.leave()
		return nil, false
	}
	x.prepare(q, now, trusted)
	h.Path = below
	if !x.mark.Exported() { // or a goroutine notes its steps
		x.RoundTrip = job.Pass(q)
	}
	if x.RoundTrip == nil {
		return x, false
	}
	if now.log != nil && !route.NoLog {
		x.log, x.slow = now.log, now.tracing.Slow
		x.line = accesslog.Record{
			Time: x.began, Remote: x.remote, Host: h.Host, Method: h.Method, Target: h.Target, Proto: "HTTP/1.1",
			Referer: h.Value("Referer"), UserAgent: h.Value("User-Agent"), Through: true, ID: x.mark.ID, Secure: q.Head.Secure,
		}
		if q.Head.Major == 2 {
			x.line.Proto = "HTTP/2.0"
		}
	}
	return x, true
}

// forwardable is the route of a request whose answers loops may pass on, its job, and
// the path that it sees.
func forwardable(table *site.Table, h *message.Request) (route *site.Route, job lane.Passer, below string) {
	st := table.Site(h.Host)
	if st == nil || st.Trap.At(h.Path) {
		return nil, nil, ""
	}
	route = st.Plain(h.Path)
	if route == nil || !route.Passes || route.Foreign || route.BodyBytes > 0 && h.Length > route.BodyBytes {
		return nil, nil, ""
	}
	handler, below := route.Handler, h.Path
	if m, ok := handler.(*site.Mounted); ok {
		var found bool
		if below, found = strings.CutPrefix(h.Path, m.Prefix); !found || below == "" {
			return nil, nil, ""
		}
		handler = m.Job
	}
	job, _ = handler.(lane.Passer) // not where a password is asked for first
	return route, job, below
}

// admits asks the gate of the route. A request that it refuses goes to the handler, which
// answers it.
func (x *forwarded) admits(q *lane.ForwardRequest) bool {
	h := q.Head
	gate := x.route.Gate.At(h.Path, "")
	if gate == nil {
		return true
	}
	if gate.TakesProof(h.Method, h.Query) {
		return false
	}
	about := admit.Request{Client: x.client, Now: x.began}
	for i := range about.Values {
		if name := gate.Header(i); name != "" {
			value, one := onlyValue(h.Fields, name)
			if !one {
				return false // the handler counts each
			}
			about.Values[i] = []byte(value)
		}
	}
	if gate.LooksAtAgent() {
		about.Agent = []byte(h.Value("User-Agent"))
	}
	x.admitted = gate.Ask(&about).Passes()
	return x.admitted
}

// onlyValue is the value of a field, "" for none. one is false where there are several,
// or where it is spelled in a way that only some programs take for it.
func onlyValue(lines []field.Line, name string) (value string, one bool) {
	for i := range lines {
		switch l := &lines[i]; {
		case l.Name == name && value == "":
			value = l.Value
		case len(l.Name) == len(name) && field.Fold(l.Name) == field.Fold(name):
			return "", false
		}
	}
	return value, true
}

// prepare sets the fields that the job adds to the request, and keeps what header rules
// need for the answer.
func (x *forwarded) prepare(q *lane.ForwardRequest, now *current, trusted bool) {
	h, route := q.Head, x.route
	if t := now.tracing.Tracer; t.Marks() {
		x.idField = t.Header()
		x.mark = t.Mark(h.Value, trusted)
		x.fields = x.mark.Fields(x.fields)
		x.id = x.mark.ID
	}
	if x.id == "" && route.Headers.NeedsID() {
		x.id = rand.Text()
	}
	if route.Headers != nil || route.CORS != nil {
		x.request = requestParts{
			method: h.Method, scheme: q.Head.Scheme(), host: h.Host, path: h.Path, query: h.Query, target: h.Target, origin: h.Value("Origin"), from: q.Client,
		}
	}
	q.Pages = route.Intercepted
	x.setFields(q)
}

func (x *forwarded) setFields(q *lane.ForwardRequest) { q.Head.ID, q.Head.Set = x.id, x.fields }

// Start implements [lane.RoundTrip].
func (x *forwarded) Start(q *lane.ForwardRequest) bool {
	x.setFields(q)
	return x.RoundTrip.Start(q)
}

// Take implements [lane.RoundTrip].
func (x *forwarded) Take(buf []byte, r *lane.Reply) lane.Progress {
	t := x.RoundTrip.Take(buf, r)
	if t == lane.Complete && (x.idField != "" || x.route.Headers != nil || x.route.CORS != nil || len(x.always) > 0) {
		x.applyRules(r)
	}
	return t
}

// applyRules does for the header of an answer what writer.addFields does.
func (x *forwarded) applyRules(r *lane.Reply) {
	x.lines = append(x.lines[:0], r.Lines...)
	if x.idField != "" {
		x.lines.Set(x.idField, x.mark.ID)
	}
	x.route.CORS.ApplyTo(&x.lines, x.request.origin)
	if rules := x.route.Headers; rules != nil {
		m := headers.Moment{Status: r.Status, Type: x.lines.First("Content-Type"), Secure: x.request.scheme == "https", Value: x.value}
		if r.Status == http.StatusNotModified {
			m.Kept = send.KeptIn304
		}
		rules.ApplyTo(&x.lines, &m)
	}
	for name, values := range x.always {
		x.lines.Set(name, values[0])
		for _, more := range values[1:] {
			x.lines.Add(name, more)
		}
	}
	field.SortLines(x.lines)
	r.Lines = x.lines
}

// valueOf returns the value of a variable, as headerRules.value does.
func (x *forwarded) valueOf(variable string) string {
	switch c := &x.request; variable {
	case "client_ip":
		if x.remote != "" {
			return x.remote
		}
		return lane.RemoteHost(c.from)
	case "host":
		return c.host
	case "scheme":
		return c.scheme
	case "method":
		return c.method
	case "path":
		return c.path
	case "query":
		return c.query
	case "uri":
		return c.target
	}
	return x.id
}

// Sent implements [lane.RoundTrip].
func (x *forwarded) Sent(c *lane.Conn, r *lane.Reply) {
	took, sent := time.Since(x.began), int64(len(r.Body))
	job := x.route.Job
	job.Through.Observe(c.Shard(), r.Status, sent, took)
	if x.log != nil {
		if x.line.Remote == "" {
			x.line.Remote = c.LoggedAs()
		}
		x.line.Status, x.line.Bytes, x.line.Duration, x.line.Shard = r.Status, sent, took, c.Shard()
		x.log.Write(&x.line)
		if slow.Slow(job, took) && x.slow.Wants(x.began) {
			x.slow.Add(job, x.trace())
		}
	}
	x.RoundTrip.Sent(c, r)
	x.leave()
}

// trace describes a slow request. It has one step: the loop only passes bytes on, so all
// the time was the upstream's, or the client's.
func (x *forwarded) trace() *trace.Trace {
	l, job, scheme := &x.line, x.route.Job, "http"
	if l.Secure {
		scheme = "https"
	}
	return &trace.Trace{
		Summary: trace.Summary{
			Method: cut(l.Method, maxHost), Scheme: scheme, Host: cut(l.Host, maxHost), Target: redact.Target(cut(l.Target, maxTarget)), Proto: l.Proto,
			Client: cut(l.Remote, maxHost), Agent: cut(l.UserAgent, maxAgent), Site: job.Site, Route: job.Route, Job: job.Name, Lane: "through",
			Status: l.Status, Bytes: l.Bytes, Took: l.Duration,
		},
		ID:    x.mark.ID,
		Began: x.began,
		Steps: []trace.Step{{Kind: trace.Upstream, Note: "passed on by the event loop", Took: l.Duration, Parent: -1}},
	}
}

// Discard implements [lane.RoundTrip].
func (x *forwarded) Discard() {
	if x.RoundTrip != nil {
		x.RoundTrip.Discard()
	}
	x.leave()
}

// Owner is for [lane.Take].
func (x *forwarded) Owner() *Server { return x.server }

// Inner is for [lane.Take].
func (x *forwarded) Inner() lane.RoundTrip { return x.RoundTrip }

// leave ends the request's time in its table.
func (x *forwarded) leave() {
	x.table.Leave()
	x.release()
}

func (x *forwarded) release() {
	clear(x.lines) // they point into an upstream's answer
	clear(x.fields)
	*x = forwarded{lines: x.lines[:0], fields: x.fields[:0], value: x.value}
	forwardedPool.Put(x)
}

// Forwarded returns how many requests the loops have forwarded.
func (s *Server) Forwarded() uint64 { return s.lane.Forwarded() }
