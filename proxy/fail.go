package proxy

import (
	"crypto/rand"
	"net/http"

	"millrace/internal/observe/trace"
	"millrace/internal/upstream"
	"millrace/internal/wire/message"
	"millrace/internal/wire/pages"
)

const (
	// statusGone is the status that the log and the metrics have for a client that went away.
	// It is never sent.
	statusGone = 499

	// retryAfter is how long a client is asked to wait after a 503, in seconds:
	// by then a queue is emptier, and a circuit breaker tries again.
	retryAfter = "5"

	idLength = 10 // of a failure's id: 50 bits

	maxTarget = 256 // bytes of a request's target in a log line
)

// Fail answers when the upstream did not: 502, 503 or 504 with an id. The error
// log has the same id and the cause. The client learns nothing about
// the upstream. If r's own client has gone away, nothing is logged.
//
// The response's header must not have been sent. Fields that are already set are kept, except
// those that describe a body.
func (h *Handler) Fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		w.WriteHeader(statusGone)
		return
	}
	status := upstream.Status(err)
	id := trace.From(r.Context()).ID()
	if id == "" {
		id = rand.Text()[:idLength]
	}
	h.errorLog.Error("a request to the upstream failed", "id", id, "status", status,
		"method", r.Method, "target", shortTarget(r), "cause", err)
	header := w.Header()
	clearBody(header)
	if status == http.StatusServiceUnavailable {
		header.Set("Retry-After", retryAfter)
	}
	header.Set("Cache-Control", "no-store")
	text := ""
	if status == http.StatusServiceUnavailable {
		text = "The server behind this site is overloaded or down."
	}
	pages.ErrorOf(w, r, status, text, id)
}

// Refuse answers requests that must not reach any upstream, and reports whether
// r, of which [Head] has made q, was one: 508 for a request that loops (RFC 9110, 7.6.3), 405
// for TRACE, whose answer would show a client what was added on the way, and requests that
// end here by Max-Forwards (RFC 9110, 7.6.2), and 404 for one that would lead out of the
// path of a rewrite or of the upstream's address. Serve calls it; callers of Outgoing
// must call it first.
func (h *Handler) Refuse(w http.ResponseWriter, r *http.Request, q *message.Request) bool {
	status := refusal(q)
	switch {
	case status == http.StatusNoContent:
		w.WriteHeader(status)
		return true
	case status == http.StatusMethodNotAllowed:
		w.Header().Set("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
	case status == http.StatusLoopDetected:
		h.errorLog.Warn("a request loops between proxies",
			"method", r.Method, "host", r.Host, "target", shortTarget(r))
	case !h.paths.stays(q.Path):
		status = http.StatusNotFound
	default:
		return false
	}
	refuse(w, r, status)
	return true
}

// refusal is the status of a request that must not be passed on, whatever its path; 0: it
// may.
func refusal(q *message.Request) int {
	switch {
	case q.Method == http.MethodTrace:
		return http.StatusMethodNotAllowed
	case looping(q.Fields.Join("Via")):
		return http.StatusLoopDetected
	case q.Method == http.MethodOptions && q.Fields.First("Max-Forwards") == "0":
		return http.StatusNoContent
	}
	return 0
}

// refuse answers a request that is not passed on.
func refuse(w http.ResponseWriter, r *http.Request, status int) {
	clearBody(w.Header())
	w.Header().Set("Cache-Control", "no-store")
	pages.Error(w, r, status, "")
}

// clearBody removes what describes a body that will not be sent, and its lifetime.
func clearBody(header http.Header) {
	for _, name := range []string{
		"Content-Encoding", "Content-Range", "Content-Language", "Content-Location", "Content-Disposition",
		"Accept-Ranges", "Etag", "Last-Modified", "Expires", "Age", "Trailer",
	} {
		delete(header, name)
	}
}

// shortTarget is the request's target, cut to a length that suits a log.
func shortTarget(r *http.Request) string {
	target := r.RequestURI
	if target == "" {
		target = r.URL.RequestURI()
	}
	if len(target) > maxTarget {
		target = target[:maxTarget] + "…"
	}
	return target
}
