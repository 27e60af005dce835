package server

import (
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"millrace/internal/access/admit"
	"millrace/internal/bytesize"
	"millrace/internal/lane"
	"millrace/internal/observe/accesslog"
	"millrace/internal/observe/meter"
	"millrace/internal/route/headers"
	"millrace/internal/route/site"
	"millrace/internal/wire/h2"
	"millrace/internal/wire/lean"
	"millrace/internal/wire/stall"
)

// ServeHTTP serves a request that the lane has no finished answer for: it finds the site
// by host, the route by path, calls the job, and then counts and logs the request.
func (s *Server) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	began := time.Now()
	now := s.current.Load()
	w := &writer{rw: rw, r: r, lane: s.lane, h1: r.ProtoMajor == 1, copiers: &s.copiers}
	_, w.through = rw.(*lean.Response)
	if r.ProtoMajor == 3 || r.ProtoMajor == 2 && !s.lane.On() {
		w.waits = stall.Of(r.Context())
	}
	no := h2.RefusalOf(r)
	r, shard := lane.Begin(r)
	w.r = r
	table, before := s.enter(r)
	defer table.Leave()
	_, w.warmUp = rw.(*discardWriter)
	if r.TLS != nil {
		w.secure(s, now)
	}
	w.beginTrace(now, r, began, &before.mark)
	found := s.route(table, r)
	found.id = before.id
	came := r // with the target and protocol that the log names
	w.rules = found.prepareRules(now, came, &w.trace)
	found.handler = w.rules.withPreflight(found.handler)
	if gate := found.gate.At(r.URL.Path, r.URL.RawPath); gate != nil {
		found.handler = s.withGate(gate, now, w.warmUp || before.admitted, found.handler)
	}
	if strings.HasPrefix(r.URL.Path, challengePath) {
		found.handler = s.withChallenges(found.handler)
	}
	r = found.request
	lane.SetJob(r, found.siteID, found.job)
	if w.trace.On() {
		r = lane.SetTrace(r, &w.trace)
	}
	w.r, w.site = came, found.site
	w.pages, w.appPages, w.noLog = found.pages, found.appPages, found.noLog
	if w.rules != nil || len(found.vary) > 0 || len(found.pages) > 0 || found.noLog {
		lane.SetPolicy(r, w.rules.policy(&found))
	}
	defer func() {
		if cause := recover(); cause != nil {
			s.panicked(w, r, cause)
		}
		s.finish(now, r, w, found.job, shard, began)
	}()
	if refuseEarly(w, came, no, now) {
		return
	}
	limits := &now.limits
	if found.bodyBytes > 0 {
		own := now.limits
		own.BodyBytes = bytesize.Size(found.bodyBytes)
		limits = &own
	}
	if r.ContentLength > int64(limits.BodyBytes) {
		if w.h1 {
			rw.Header().Set("Connection", "close")
		}
		if r.Header["Expect"] != nil {
			lane.EndInput(r) // the client sends no body after a refusal
		}
		http.Error(w, site.Refusal(http.StatusRequestEntityTooLarge), http.StatusRequestEntityTooLarge)
		return
	}
	if r.ContentLength != 0 && r.Method != http.MethodConnect { // a CONNECT has a tunnel, no body
		var done func()
		r, done = upload(w, r, limits)
		defer done()
	}
	found.serve(w, r)
	s.catchTrapped(&found, came, now, w)
}

// refuseEarly answers a request that no site may answer, such as a malformed one, and
// reports whether it was one. no is what the check of its header block has found.
func refuseEarly(w *writer, r *http.Request, no h2.Refusal, now *current) bool {
	status, why := refusal(r, now)
	switch {
	case no.Status != 0:
		no.Answer(w)
	case status != 0:
		http.Error(w, why, status)
	case badExpectation(r): // the same answer as net/http's
		w.Header()["Content-Length"] = noLength
		w.WriteHeader(http.StatusExpectationFailed)
	default:
		return false
	}
	return true
}

// refusal returns why no site may answer a request; 0: a site may.
func refusal(r *http.Request, now *current) (status int, why string) {
	if why := lane.Fault(r); why != "" {
		lane.EndInput(r)
		return http.StatusBadRequest, why
	}
	if why := misdirected(r, now.clients); why != "" {
		return http.StatusMisdirectedRequest, why
	}
	return 0, ""
}

// cleartext reports whether a request of HTTP/2 has the scheme http: net/http then leaves
// its TLS empty although the connection has TLS. PRI is the preface of HTTP/2, which
// net/http gives to handlers as a request.
func cleartext(r *http.Request) bool {
	return r.ProtoMajor == 2 && r.TLS == nil && r.Method != "PRI"
}

// catchTrapped notes a client whose request was for a trap.
func (s *Server) catchTrapped(found *routed, r *http.Request, now *current, w *writer) {
	if found.trap != nil && found.trap.Answered(r, now.clients.Of(r), w.code()) {
		s.meters.Trapped.Add(0, 1)
	}
}

// finish counts and logs a request whose job has returned, or panicked.
func (s *Server) finish(now *current, r *http.Request, w *writer, job *meter.Job, shard uint32, began time.Time) {
	lane.DiscardStarted(r)
	if w.status == 0 {
		w.addFields() // net/http sends the header of a job that has written nothing
	}
	if w.rules != nil {
		lane.SetPolicy(r, lane.Policy{}) // an idle connection must not keep the request in memory
	}
	if w.warmUp {
		return
	}
	if !w.h1 {
		s.meters.Sent.Copied.Add(shard, uint64(w.bytes))
	}
	took := time.Since(began)
	if w.through {
		job.Through.Observe(shard, w.code(), w.bytes, took)
	} else {
		job.Slow.Observe(shard, w.code(), w.bytes, took)
	}
	if w.trace.On() {
		w.endTrace(now, r, job, took)
	}
	if !w.noLog {
		logRequest(now, r, w, shard, began, took)
	}
	if w.abort {
		panic(http.ErrAbortHandler) // tells net/http to cut the connection
	}
}

// enter returns the routing table for r and keeps it from retiring until Leave. A request
// that a loop has forwarded before stays in the table that it was forwarded by.
func (s *Server) enter(r *http.Request) (*site.Table, prepared) {
	if x, ok := lane.Take[*forwarded](r, s); ok {
		table, b := x.table, x.prepared
		x.release()
		return table, b
	}
	if r.TLS != nil || cleartext(r) {
		return enter(&s.secure), prepared{}
	}
	return enter(&s.plain), prepared{}
}

func enter(scope *lane.Scope) *site.Table {
	for {
		if t := scope.Sites.Load(); t.Enter() {
			return t
		}
	}
}

// routed is a request with its route: who answers, and what applies to the answer.
type routed struct {
	handler http.Handler
	job     *meter.Job
	siteID  uint64 // 0: the lane must not repeat the answer
	request *http.Request
	site    *site.Site

	vary      []string
	bodyBytes int64
	pages     site.Pages
	appPages  site.Pages
	noLog     bool
	gate      *admit.Gate // nil: every client may ask
	trap      *admit.Trap // at this path; nil: none
	foreign   bool
	headers   *headers.AnswerRules
	cors      *headers.CORS
	id        string // the request's id, where it was forwarded before and has one; "": none
}

// serve calls the handler.
func (a *routed) serve(w *writer, r *http.Request) {
	if a.foreign {
		watched, observer := lane.Observe(r)
		a.handler.ServeHTTP(w, watched)
		observer.Settle(r, w.status, w.headerWithoutID(), w.bytes)
	} else {
		a.handler.ServeHTTP(w, r)
	}
	w.page(r)
}

func (s *Server) route(table *site.Table, r *http.Request) routed {
	none := routed{job: s.noJob, request: r}
	if malformed(r) {
		none.handler = refuse(h2.NoRequest, http.StatusBadRequest)
		return none
	}
	if r.Method == http.MethodConnect && r.Header.Get(":protocol") == "" { // with it, RFC 8441
		none.handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", "GET, HEAD") // RFC 9110, 15.5.6
			http.Error(w, "This server is not a forward proxy.", http.StatusMethodNotAllowed)
		})
		return none
	}
	st := table.Site(r.Host)
	if st == nil {
		none.handler = refuse("No site is served under this host name.", http.StatusNotFound)
		return none
	}
	if r.URL.Path == "*" {
		none.handler, none.gate = refuse("This is not a path.", http.StatusBadRequest), st.Gate
		if r.Method == http.MethodOptions { // of the server (RFC 9110, 9.3.7): net/http answers over HTTP/1.1
			none.handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header()["Content-Length"] = noLength })
		}
		return none
	}
	if r.URL.Path == "" { // of an address without a path (RFC 9110, 4.2.3)
		r = site.WithPath(r, "/", r.URL.RawQuery)
		none.request = r
	}
	own, at := st.Trap.Asked(r.URL)
	if at {
		none.trap = st.Trap
	}
	if own {
		none.handler = refuse("Nothing is here.", http.StatusNotFound)
		none.site, none.pages, none.gate = st, st.Pages, st.Gate
		return none
	}
	f := st.Find(r)
	switch {
	case f.Clean != "":
		none.handler, none.gate = redirectTo(f.Clean), st.Gate
		none.headers, none.cors = st.Headers, st.CORS
		return none
	case f.Ambiguous:
		none.handler = refuse("This path can be read in more than one way.", http.StatusBadRequest)
		none.site, none.pages, none.gate = st, st.Pages, st.Gate
		none.headers, none.cors = st.Headers, st.CORS
		return none
	case f.Route == nil:
		none.handler = refuse("Nothing is here.", http.StatusNotFound)
		none.site, none.pages, none.gate = st, st.Pages, st.Gate
		none.headers, none.cors = st.Headers, st.CORS
		return none
	}
	route := f.Route
	found := routed{
		handler: route.Handler, job: route.Job, siteID: st.ID, request: f.Request, site: st,
		vary: f.Vary, bodyBytes: route.BodyBytes, pages: route.Pages, appPages: route.Intercepted, noLog: route.NoLog,
		gate: route.Gate, trap: none.trap, foreign: route.Foreign,
		headers: route.Headers, cors: route.CORS,
	}
	if f.Private || route.Private || found.trap != nil { // the lane does not look for traps
		found.siteID = 0
	}
	return found
}

// withGate asks the gate before it calls the handler. The lane asks the same gate when it
// repeats the answer. admitted: the request is in already, because it is the server's own
// (WarmUp) or because a loop has asked the gate.
func (s *Server) withGate(g *admit.Gate, now *current, admitted bool, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lane.SetGate(r, g)
		if admitted {
			h.ServeHTTP(w, r)
			return
		}
		v, answered := g.Admit(w, r, now.clients.Of(r))
		if !answered {
			h.ServeHTTP(w, r)
			return
		}
		refused := &s.meters.Refused
		switch {
		case v.Caught:
			refused.Caught.Add(0, 1)
		case v.Denied:
			refused.Address.Add(0, 1)
		case v.Proof != "":
			refused.Proof.Add(0, 1)
		case v.Limit != nil:
			refused.Rate.Add(0, 1)
		}
	})
}

func refuse(text string, status int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, status) })
}

// redirectTo sends the client to the clean form of its path.
func redirectTo(path string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusMovedPermanently
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			status = http.StatusPermanentRedirect
		}
		to := url.URL{Path: path, RawQuery: r.URL.RawQuery}
		w.Header().Set("Location", to.EscapedPath())
		if to.RawQuery != "" {
			w.Header().Set("Location", to.EscapedPath()+"?"+to.RawQuery)
		}
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(status)
	})
}

// panicked answers for a job that has panicked, with the id of the log line that has the
// cause. If a part of the job's answer was sent already, the connection is cut, so that
// the client does not take the answer for complete.
func (s *Server) panicked(w *writer, r *http.Request, cause any) {
	if cause == http.ErrAbortHandler { //nolint:errorlint // a sentinel that is never wrapped
		w.abort = true
		return
	}
	id := w.trace.ID()
	if id == "" {
		id = rand.Text()[:10]
	}
	s.errors.Error("a request failed", "id", id, "method", r.Method, "target", r.RequestURI, "cause", cause, "stack", string(debug.Stack()))
	if w.status != 0 && w.replaced == "" {
		w.abort = true
		return
	}
	w.status, w.replaced, w.pages, w.appPages, w.forced = 0, "", nil, nil, 0 // no error page: it could panic, too
	clear(w.Header())
	http.Error(w, fmt.Sprintf("Something went wrong here; the log has the cause under %s.", id), http.StatusInternalServerError)
}

func logRequest(now *current, r *http.Request, w *writer, shard uint32, began time.Time, took time.Duration) {
	if !now.log.Wants(began, w.code(), took) {
		return
	}
	now.log.Write(&accesslog.Record{
		Time:      began,
		Remote:    now.sender(r),
		Host:      r.Host,
		Method:    r.Method,
		Target:    r.RequestURI,
		Proto:     r.Proto,
		Referer:   r.Referer(),
		UserAgent: r.UserAgent(),
		Status:    w.code(),
		Bytes:     w.bytes,
		Duration:  took,
		Through:   w.through,
		Secure:    r.TLS != nil,
		ID:        w.trace.ID(),
		Shard:     shard,
	})
}

// sender is the client's address as it is logged.
func (c *current) sender(r *http.Request) string {
	if c.clients != nil {
		if client := c.clients.Of(r); client.IsValid() {
			return client.String()
		}
	}
	remote, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return "-" // a UNIX socket
	}
	return remote
}
