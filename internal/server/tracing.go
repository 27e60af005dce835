package server

import (
	"maps"
	"net/http"
	"strings"

	"millrace/internal/observe/trace"
	"millrace/internal/ops/slow"
)

// Tracing says where traces of requests go. Requests that the fast lane answers are not
// traced: to trace one would cost more than to answer it.
type Tracing struct {
	Tracer *trace.Tracer      // nil: no request is traced
	Spans  func(*trace.Trace) // gets the traces whose spans are sampled; nil: none are. It does not block
	Slow   *slow.Store        // gets the requests that took long; nil: none are kept
}

// The longest texts in a request's summary, in bytes.
const (
	maxHost   = 256
	maxTarget = 2048
	maxAgent  = 256
)

// cut returns the beginning of a text, as a copy that does not keep the request alive.
func cut(s string, most int) string {
	return strings.ToValidUTF8(strings.Clone(s[:min(len(s), most)]), "\ufffd")
}

// headerWithoutID returns the header of the answer without the request's id, which the
// lane must not repeat for other requests.
func (w *writer) headerWithoutID() http.Header {
	h, v := w.Header(), w.visit
	if v.mark.ID == "" {
		return h
	}
	h = maps.Clone(h)
	delete(h, v.now.tracing.Tracer.Header())
	return h
}
