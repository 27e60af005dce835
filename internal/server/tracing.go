package server

import (
	"maps"
	"net/http"
	"strings"
	"time"

	"millrace/internal/lane"
	"millrace/internal/observe/meter"
	"millrace/internal/observe/redact"
	"millrace/internal/observe/trace"
	"millrace/internal/ops/slow"
	"millrace/internal/wire/netset"
)

// Tracing says where traces of requests go. Requests that the fast lane answers are not
// traced: to trace one would cost more than to answer it.
type Tracing struct {
	Tracer *trace.Tracer      // nil: no request is traced
	Spans  func(*trace.Trace) // gets the traces whose spans are sampled; nil: none are. It does not block
	Slow   *slow.Store        // gets the requests that took long; nil: none are kept
}

// beginTrace begins the trace of a request. Where a loop has forwarded the request before,
// mark is what the upstream has got of its trace, and this one continues that.
func (w *writer) beginTrace(now *current, r *http.Request, began time.Time, mark *trace.Mark) {
	t := now.tracing.Tracer
	if t == nil {
		return
	}
	w.began, w.idField = began, t.Header()
	proxy := t.Marks() && now.clients != nil && now.clients.Trusts(netset.Peer(r.RemoteAddr))
	t.Begin(&w.trace, r, began, proxy)
	w.trace.Continue(mark)
}

// endTrace ends the trace, and hands it on where it is sampled or the request was slow.
func (w *writer) endTrace(now *current, r *http.Request, job *meter.Job, took time.Duration) {
	sampled := now.tracing.Spans != nil && w.trace.Sampled()
	kept := !w.noLog && slow.Slow(job, took) && now.tracing.Slow.Wants(w.began)
	if sampled || kept {
		t := w.trace.End(w.summary(now, r, job, took))
		if sampled {
			now.tracing.Spans(t)
		}
		if kept {
			now.tracing.Slow.Add(job, t)
		}
	} else {
		w.trace.Forget()
	}
	lane.SetTrace(r, nil) // an idle connection must not keep the request in memory
}

// summary describes a request that has ended.
func (w *writer) summary(now *current, r *http.Request, job *meter.Job, took time.Duration) trace.Summary {
	s := trace.Summary{
		Method: r.Method, Scheme: "http", Host: cut(r.Host, maxHost), Target: redact.Target(cut(r.RequestURI, maxTarget)), Proto: r.Proto,
		Client: now.sender(r), Agent: cut(r.UserAgent(), maxAgent), Site: job.Site, Route: job.Route, Job: job.Name, Lane: "slow",
		Status: w.code(), Bytes: w.bytes, Took: took, Headed: w.headerSentAt,
	}
	if r.TLS != nil {
		s.Scheme = "https"
	}
	if w.through {
		s.Lane = "through"
	}
	return s
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
	h := w.Header()
	if w.idField == "" {
		return h
	}
	h = maps.Clone(h)
	delete(h, w.idField)
	return h
}
