package server

import (
	"crypto/rand"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"millrace/internal/access/admit"
	"millrace/internal/access/signin"
	"millrace/internal/bytesize"
	"millrace/internal/lane"
	"millrace/internal/observe/accesslog"
	"millrace/internal/observe/redact"
	"millrace/internal/observe/trace"
	"millrace/internal/ops/slow"
	"millrace/internal/route/headers"
	"millrace/internal/route/site"
	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
)

// visit is a request on its way through the server: its route, who asks, whether it is let
// in, its id and trace, what rules do to its answer, how it is counted and logged. An event
// loop makes it (Forward), or ServeHTTP does; ServeHTTP goes on with one that a loop has
// made.
type visit struct {
	lane.RoundTrip // what a loop has sent; nil: nothing
	ruled
	server  *Server
	now     *current
	table   *site.Table // entered, until leave
	began   time.Time
	through bool // net/http has no part in it

	// Of the request.
	method, proto, target string
	query, uri            string // for rules
	below                 string // the path that the job of a loop sees
	job                   lane.Passer
	signIn                *signin.Gate // before the job of a loop; nil: none
	found                 site.Found
	referer, agent        string     // for the log
	client                netip.Addr // who asks; the zero address on a UNIX socket
	remote                string     // the connection's other end, for the log
	trusted               bool       // which is a proxy that is believed

	// Its route, and what applies to the answer.
	site    *site.Site  // nil: none has a say
	siteID  uint64      // 0: the lane must not repeat the answer
	trap    *admit.Trap // at this path; nil: none
	gate    *admit.Gate // nil: every client may ask
	always  http.Header // fields of each answer
	ownPage bool        // the answer keeps its header
	answers bool        // it is one that has its fields of CORS: that to a preflight

	asked   bool // the gate was asked, or the request proves something to it
	proves  bool
	verdict admit.Verdict

	id     string     // for rules; "": none uses it
	mark   trace.Mark // what other servers get of its trace
	set    []field.Line
	trace  *trace.Request // nil: nobody follows it yet
	headed time.Duration  // from began to the header of the answer; 0: not known

	lines    field.Lines // of the answer that a loop sends
	variable func(name string) string
}

var visits = sync.Pool{New: func() any {
	v := new(visit)
	v.variable = v.value
	return v
}}

// begin begins a visit for a request that came at this time; remote is the connection's other end.
func (s *Server) begin(scope *lane.Scope, q *message.Request, remote string, came time.Time) *visit {
	v := visits.Get().(*visit)
	v.server, v.now, v.table, v.began = s, s.current.Load(), enter(scope), came
	v.method, v.proto, v.host, v.target, v.secure, v.remote = q.Method, q.Proto(), q.Host, q.Target, q.Secure, remote
	clients := v.now.clients
	v.client, v.trusted = q.Client(clients), clients.Trusts(q.Peer)
	if always := scope.Always.Load(); always != nil {
		v.always = *always
	}
	return v
}

// enter returns a scope's table and keeps it from retiring until Leave.
func enter(scope *lane.Scope) *site.Table {
	for {
		if t := scope.Sites.Load(); t.Enter() {
			return t
		}
	}
}

// find finds the route of a request for an event loop, and the path that its job sees. It
// reports false where ServeHTTP has to look closer.
func (v *visit) find(q *message.Request) bool {
	st := v.table.Site(q.Host)
	var u url.URL
	if st == nil || !q.URL(&u) || strings.HasPrefix(u.Path, challengePath) {
		return false
	}
	if _, at := st.Trap.Asked(&u); at {
		return false
	}
	f := st.Find(q)
	if f.Clean != "" || f.Ambiguous || f.Route == nil {
		return false
	}
	v.setRoute(st, &f)
	v.gate = f.Route.Gate.At(u.Path, u.RawPath)
	if v.below = q.Path; f.Moved {
		v.below = (&url.URL{Path: f.Path}).EscapedPath()
	}
	return true
}

// setRoute notes the route.
func (v *visit) setRoute(st *site.Site, f *site.Found) {
	v.site, v.route, v.found = st, f.Route, *f
	if !f.Private && !f.Route.Private && v.trap == nil { // the lane does not look for traps
		v.siteID = st.ID
	}
}

// setRefusal has h answer in place of a route.
func (v *visit) setRefusal(st *site.Site, h http.Handler) {
	route := &site.Route{Handler: h, Job: v.server.noJob}
	if st != nil {
		route.Pages, route.Gate, route.Headers, route.CORS = st.Pages, st.Gate, st.Headers, st.CORS
	}
	v.site, v.route = st, route
}

// bodyLimit is how long the request's body may be.
func (v *visit) bodyLimit() int64 {
	if v.route.BodyBytes > 0 {
		return v.route.BodyBytes
	}
	return int64(v.now.limits.BodyBytes)
}

// limits are the server's, with the route's own for bodies.
func (v *visit) limits() *Options {
	if v.route.BodyBytes == 0 {
		return &v.now.limits
	}
	own := v.now.limits
	own.BodyBytes = bytesize.Size(v.route.BodyBytes)
	return &own
}

// prepare finds out what the route's rules, other servers and the log need of the request.
func (v *visit) prepare(q *message.Request) {
	if t := v.now.tracing.Tracer; t.Marks() {
		v.mark = t.Mark(&q.Fields, v.trusted)
		v.id = v.mark.ID
	}
	route := v.route
	if v.id == "" && route.Headers.NeedsID() {
		v.id = rand.Text()
	}
	if route.Headers != nil || route.CORS != nil {
		v.path, v.query, v.uri, v.origin = q.Path, q.Query, q.URI(), headers.OriginOf(&q.Fields)
		if route.Headers.Private() || route.CORS != nil && !route.CORS.Allows(v.origin) { // the lane cannot keep an answer for each of any number of origins
			v.siteID = 0
		}
	}
	if !route.NoLog && (v.now.log != nil || v.now.tracing.Slow != nil) {
		v.referer, v.agent = q.Value("Referer"), q.Value("User-Agent")
	}
}

// admit asks the gate, once, and reports whether the request is let in. waits: that may
// take a moment; otherwise the gate may have to be asked again (asked is false).
func (v *visit) admit(q *message.Request, waits bool) bool {
	switch {
	case v.gate == nil:
		return true
	case v.asked:
	case v.gate.TakesProof(q.Method, q.Query):
		v.proves = true
	default:
		about := v.gate.About(q, v.client, v.began)
		about.Waits = waits
		if v.verdict = v.gate.Ask(&about); v.verdict.Later {
			return false
		}
	}
	v.asked = true
	return !v.proves && v.verdict.Passes()
}

// refuse answers a request that is not let in, and one that brings a proof.
func (v *visit) refuse(w http.ResponseWriter, r *http.Request) {
	verdict, now := v.verdict, time.Now()
	if v.proves {
		verdict = v.gate.TakeProof(w, r, v.client, now)
	} else {
		v.gate.Answer(w, r, v.client, now, verdict)
	}
	refused := &v.server.meters.Refused
	switch {
	case verdict.Caught:
		refused.Caught.Add(0, 1)
	case verdict.Denied:
		refused.Address.Add(0, 1)
	case verdict.Proof != "":
		refused.Proof.Add(0, 1)
	case verdict.Limit != nil:
		refused.Rate.Add(0, 1)
	}
}

// changes reports whether addFields would change anything.
func (v *visit) changes() bool {
	return v.mark.ID != "" || v.route.Headers != nil || v.route.CORS != nil || len(v.always) > 0
}

// addFields makes the header of an answer what it is to be by all that the site says.
// contentType is that of its content, or of the content that a 304 is about.
func (v *visit) addFields(h field.Fields, status int, contentType string) {
	if v.mark.ID != "" {
		h.Set(v.now.tracing.Tracer.Header(), v.mark.ID)
	}
	if !v.ownPage && status != http.StatusSwitchingProtocols {
		v.applyRules(h, status, contentType)
	}
	for name, values := range v.always {
		h.Put(name, values)
	}
}

// applyRules applies the operator's rules to the header of an answer.
func (v *visit) applyRules(h field.Fields, status int, contentType string) {
	if v.method == http.MethodConnect { // a tunnel begins
		return
	}
	if !v.answers {
		v.route.CORS.ApplyTo(h, v.origin)
	}
	v.applyHeaders(h, status, contentType, v.variable)
}

// value returns the value of a variable in a rule.
func (v *visit) value(variable string) string {
	switch variable {
	case "client_ip":
		return v.sender()
	case "method":
		return v.method
	case "query":
		return v.query
	case "uri":
		return v.uri
	case "request_id":
		return v.id
	}
	return v.ruled.value(variable)
}

// sender is the client's address as it is logged.
func (v *visit) sender() string {
	if v.now.clients != nil && v.client.IsValid() {
		return v.client.String()
	}
	return v.remote
}

// remoteHost is the connection's other end as it is logged.
func remoteHost(r *http.Request) string {
	remote, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return "-" // a UNIX socket
	}
	return remote
}

// done counts, traces and logs the request. status and sent, the bytes of the body, are
// those of the answer, which was there at now.
func (v *visit) done(status int, sent int64, shard uint32, now time.Time) {
	took, job := now.Sub(v.began), v.route.Job
	if v.through {
		job.Through.Observe(shard, status, sent, took)
	} else {
		job.Slow.Observe(shard, status, sent, took)
	}
	v.endTrace(status, sent, took)
	if v.route.NoLog || !v.now.log.Wants(v.began, status, took) {
		return
	}
	v.now.log.Write(&accesslog.Record{
		Time: v.began, Remote: v.sender(), Host: v.host, Method: v.method, Target: v.target, Proto: v.proto,
		Referer: v.referer, UserAgent: v.agent, Status: status, Bytes: sent, Duration: took,
		Through: v.through, Secure: v.secure, ID: v.mark.ID, Shard: shard,
	})
}

// endTrace ends the trace, and hands it on where it is sampled or the request was slow.
func (v *visit) endTrace(status int, sent int64, took time.Duration) {
	t := &v.now.tracing
	sampled := t.Spans != nil && v.trace.Sampled()
	kept := !v.route.NoLog && slow.Slow(v.route.Job, took) && t.Slow.Wants(v.began)
	switch {
	case t.Tracer == nil:
		return
	case !sampled && !kept:
		v.trace.Forget()
		return
	case !v.trace.On(): // a loop only passes bytes on: all the time was the upstream's, or the client's
		v.trace = new(trace.Request)
		t.Tracer.Begin(v.trace, v.began, &v.mark)
		v.trace.Add(trace.Step{Kind: trace.Upstream, Note: "passed on by the event loop", Took: took, Parent: -1})
	}
	ended := v.trace.End(v.summary(status, sent, took))
	if sampled {
		t.Spans(ended)
	}
	if kept {
		t.Slow.Add(v.route.Job, ended)
	}
}

// summary describes a request that has ended.
func (v *visit) summary(status int, sent int64, took time.Duration) trace.Summary {
	job, way := v.route.Job, "slow"
	if v.through {
		way = "through"
	}
	return trace.Summary{
		Method: cut(v.method, maxHost), Scheme: v.scheme(), Host: cut(v.host, maxHost), Target: redact.Target(cut(v.target, maxTarget)), Proto: v.proto,
		Client: cut(v.sender(), maxHost), Agent: cut(v.agent, maxAgent), Site: job.Site, Route: job.Route, Job: job.Name, Lane: way,
		Status: status, Bytes: sent, Took: took, Headed: v.headed,
	}
}

// leave ends the visit of a request that no handler has had.
func (v *visit) leave() {
	v.table.Leave()
	clear(v.lines) // they point into an upstream's answer
	clear(v.set)
	lines, set, variable := v.lines[:0], v.set[:0], v.variable
	*v = visit{}
	v.lines, v.set, v.variable = lines, set, variable
	visits.Put(v)
}

// Owner is for [lane.Take].
func (v *visit) Owner() *Server { return v.server }

// Inner is for [lane.Take].
func (v *visit) Inner() lane.RoundTrip { return v.RoundTrip }

// Forward implements [lane.Forwarder]. It begins the visit of a request that an event loop
// may pass on, and sends it if its route, its gate and its job allow that at once.
func (s *Server) Forward(q *lane.ForwardRequest) (started lane.RoundTrip, sent bool) {
	h := q.Head
	v := s.begin(q.Scope, h, q.Remote, q.Received)
	if !v.find(h) || !v.findJob() {
		v.leave()
		return nil, false
	}
	v.prepare(h)
	if h.Length > v.bodyLimit() || !v.admit(h, false) || v.mark.Exported() { // its steps are noted
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
	v.done(r.Status, int64(len(r.Body)), c.Shard(), r.Received)
	v.RoundTrip.Sent(c, r)
	v.leave()
}

// Switched implements [lane.Switching].
func (v *visit) Switched(c *lane.Conn, r *lane.Reply, fd int, early []byte) {
	v.done(r.Status, 0, c.Shard(), r.Received)
	if s, ok := v.RoundTrip.(lane.Switching); ok { // it has said so
		s.Switched(c, r, fd, early)
	}
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
