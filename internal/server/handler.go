package server

import (
	"crypto/rand"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"millrace/internal/lane"
	"millrace/internal/observe/trace"
	"millrace/internal/route/headers"
	"millrace/internal/route/site"
	"millrace/internal/wire/h2"
	"millrace/internal/wire/lean"
	"millrace/internal/wire/message"
	"millrace/internal/wire/pages"
	"millrace/internal/wire/stall"
)

// ServeHTTP serves a request that the lane has no finished answer for: it finds the site
// by host, the route by path, calls the job, and then counts and logs the request.
func (s *Server) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w := &writer{rw: rw, lane: s.lane, h1: r.ProtoMajor == 1, copiers: &s.copiers}
	if r.ProtoMajor == 3 || r.ProtoMajor == 2 && !s.lane.On() {
		w.waits = stall.Of(r.Context())
	}
	no := h2.RefusalOf(r)
	r, shard := lane.Begin(r)
	came := r // with the target and protocol that the log names
	q := requests.Get().(*message.Request)
	defer reuse(q)
	v := s.visitOf(r, q)
	defer v.table.Leave()
	_, v.through = rw.(*lean.Response)
	_, w.warmUp = rw.(*discardWriter)
	w.visit, w.r = v, came
	if r.ProtoMajor == 3 {
		w.deadline, _ = rw.(writeDeadline)
		w.writeTimeout = v.now.limits.WriteTimeout
	}
	if v.route == nil {
		r = v.findRoute(r, q)
		v.prepare(q)
	} else {
		r = v.found.Request(r)
	}
	w.pages, w.appPages = v.route.Pages, v.route.Intercepted
	lane.SetJob(r, v.siteID, v.route.Job)
	if t := v.now.tracing.Tracer; t != nil {
		v.trace = new(trace.Request)
		t.Begin(v.trace, v.began, &v.mark)
		r = lane.SetTrace(r, v.trace)
	}
	if v.route.Headers.NeedsID() {
		r = r.WithContext(headers.WithID(r.Context(), v.id))
	}
	if v.gate != nil {
		lane.SetGate(r, v.gate)
	}
	if v.hasPolicy() {
		lane.SetPolicy(r, v.policy())
	}
	defer func() {
		if cause := recover(); cause != nil {
			s.panicked(w, r, cause)
		}
		s.finish(r, w, shard)
	}()
	if refuseEarly(w, came, no) {
		return
	}
	limits := v.limits()
	if r.ContentLength > int64(limits.BodyBytes) {
		if w.h1 {
			rw.Header().Set("Connection", "close")
		}
		if r.Header["Expect"] != nil {
			lane.EndInput(r) // the client sends no body after a refusal
		}
		pages.Error(w, r, http.StatusRequestEntityTooLarge, "")
		return
	}
	if r.ContentLength != 0 && r.Method != http.MethodConnect { // a CONNECT has a tunnel, no body
		var done func()
		r, done = upload(w, r, limits)
		defer done()
	}
	w.serve(s.handler(v, came, q, w.warmUp), r)
	if v.trap != nil && v.trap.Answered(came, v.client, w.code()) {
		s.meters.Trapped.Add(0, 1)
	}
}

var requests = sync.Pool{New: func() any { return new(message.Request) }}

func reuse(q *message.Request) {
	clear(q.Fields)
	requests.Put(q)
}

// visitOf returns the visit of a request, whose table is entered. If no loop has begun it, q
// becomes the request's head.
func (s *Server) visitOf(r *http.Request, q *message.Request) *visit {
	if v, ok := lane.Take[*visit](r, s); ok {
		v.RoundTrip = nil // is for the job
		return v
	}
	q.Of(r)
	scope := &s.plain
	if r.TLS != nil || cleartext(r) {
		scope = &s.secure
	}
	return s.begin(scope, q, remoteHost(r), time.Now())
}

// handler returns who answers: the job, or what has its say before it.
func (s *Server) handler(v *visit, came *http.Request, q *message.Request, warmUp bool) http.Handler {
	h := v.route.Handler
	if v.route.CORS != nil && headers.IsPreflight(came) {
		h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			v.answers = true
			v.route.CORS.Preflight(w, r)
		})
	}
	if v.gate != nil && !warmUp { // else the request is the server's own
		job := h
		h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if v.admit(q, true) {
				job.ServeHTTP(w, r)
			} else {
				v.refuse(w, r)
			}
		})
	}
	if strings.HasPrefix(came.URL.Path, challengePath) {
		h = s.withChallenges(h)
	}
	return h
}

// refuseEarly answers a request that no site may answer, such as a malformed one, and
// reports whether it was one. no is what the check of its header block has found.
func refuseEarly(w *writer, r *http.Request, no h2.Refusal) bool {
	status, why := refusal(r, w.visit.trusted)
	switch {
	case no.Status != 0:
		pages.Error(w, r, no.Status, no.Text)
	case status != 0:
		pages.Error(w, r, status, why)
	case badExpectation(r): // the same answer as net/http's
		w.Header()["Content-Length"] = noLength
		w.WriteHeader(http.StatusExpectationFailed)
	default:
		return false
	}
	return true
}

// refusal returns why no site may answer a request; 0: a site may.
func refusal(r *http.Request, trusted bool) (status int, why string) {
	if why := lane.Fault(r); why != "" {
		lane.EndInput(r)
		return http.StatusBadRequest, why
	}
	if why := misdirected(r, trusted); why != "" {
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

// finish counts and logs a request whose job has returned, or panicked.
func (s *Server) finish(r *http.Request, w *writer, shard uint32) {
	lane.DiscardStarted(r)
	if w.status == 0 {
		w.addFields() // net/http sends the header of a job that has written nothing
	}
	v := w.visit
	if v.hasPolicy() {
		lane.SetPolicy(r, lane.Policy{}) // an idle connection must not keep the request in memory
	}
	if w.warmUp {
		return
	}
	if !w.h1 {
		s.meters.Sent.Copied.Add(shard, uint64(w.bytes))
	}
	v.done(w.code(), w.bytes, shard, time.Now())
	if v.trace.On() {
		lane.SetTrace(r, nil) // likewise
	}
	if w.abort {
		panic(http.ErrAbortHandler) // tells net/http to cut the connection
	}
}

// serve calls a handler, and sends the page that takes the place of its answer.
func (w *writer) serve(h http.Handler, r *http.Request) {
	if w.visit.route.Foreign {
		watched, observer := lane.Observe(r)
		h.ServeHTTP(w, watched)
		observer.Settle(r, w.status, w.headerWithoutID(), w.bytes)
	} else {
		h.ServeHTTP(w, r)
	}
	w.page(r)
}

// findRoute finds the route of a request, and returns the request as rules have rewritten it.
func (v *visit) findRoute(r *http.Request, q *message.Request) *http.Request {
	found := v.lookFor(r, q)
	v.gate = v.route.Gate.At(r.URL.Path, r.URL.RawPath)
	return found
}

func (v *visit) lookFor(r *http.Request, q *message.Request) *http.Request {
	if malformed(r) {
		v.setRefusal(nil, refuse(h2.NoRequest, http.StatusBadRequest))
		return r
	}
	if r.Method == http.MethodConnect && r.Header.Get(":protocol") == "" { // with it, RFC 8441
		v.setRefusal(nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", "GET, HEAD") // RFC 9110, 15.5.6
			pages.Error(w, r, http.StatusMethodNotAllowed, "This server is not a forward proxy.")
		}))
		return r
	}
	st := v.table.Site(r.Host)
	if st == nil {
		v.setRefusal(nil, refuse(pages.NoSite, http.StatusNotFound))
		return r
	}
	if r.URL.Path == "*" {
		h := refuse("This is not a path.", http.StatusBadRequest)
		if r.Method == http.MethodOptions { // of the server (RFC 9110, 9.3.7): net/http answers over HTTP/1.1
			h = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header()["Content-Length"] = noLength })
		}
		v.route = &site.Route{Handler: h, Job: v.server.noJob, Gate: st.Gate}
		return r
	}
	if r.URL.Path == "" { // of an address without a path (RFC 9110, 4.2.3)
		r = site.WithPath(r, "/", r.URL.RawQuery)
	}
	own, at := st.Trap.Asked(r.URL)
	if at {
		v.trap = st.Trap
	}
	if own {
		v.setRefusal(st, refuse("", http.StatusNotFound))
		return r
	}
	f := st.Find(q)
	switch {
	case f.Clean != "":
		v.setRefusal(st, redirectTo(f.Clean))
	case f.Ambiguous:
		v.setRefusal(st, refuse("This path can be read in more than one way.", http.StatusBadRequest))
	case f.Route == nil:
		v.setRefusal(st, refuse("", http.StatusNotFound))
	default:
		v.setRoute(st, &f)
		return f.Request(r)
	}
	return r
}

func refuse(text string, status int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { pages.Error(w, r, status, text) })
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
	id := w.visit.mark.ID
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
	pages.ErrorOf(w, r, http.StatusInternalServerError, "", id)
}
