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

// Tracing says who wants to know of requests, those of the fast lane's excepted:
// they cost less than to follow them would.
type Tracing struct {
	Tracer *trace.Tracer      // nil: nobody
	Spans  func(*trace.Trace) // gets those whose spans are wanted; nil: nobody does. It does not wait
	Slow   *slow.Store        // gets those that took long; nil: nobody does
}

// beginTrace begins to follow a request, of which others may have been told.
func (w *writer) beginTrace(now *current, r *http.Request, began time.Time, told *trace.Mark) {
	t := now.tracing.Tracer
	if t == nil {
		return
	}
	w.began, w.idField = began, t.Header()
	proxy := t.Marks() && now.clients != nil && now.clients.Trusts(netset.Peer(r.RemoteAddr))
	t.Begin(&w.trace, r, began, proxy)
	w.trace.Continue(told)
}

// endTrace ends that, and hands the request to those who want it.
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
	lane.SetTrace(r, nil) // an idle connection shall not keep the request
}

// summary is what is known of a request that has ended.
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

// What is kept of the texts of a request's summary, in bytes.
const (
	maxHost   = 256
	maxTarget = 2048
	maxAgent  = 256
)

// cut is the beginning of a text, as a copy that keeps nothing else alive.
func cut(s string, most int) string {
	return strings.ToValidUTF8(strings.Clone(s[:min(len(s), most)]), "\ufffd")
}

// headerWithoutID is the header of the answer without the request's id: the next one's is
// another.
func (w *writer) headerWithoutID() http.Header {
	h := w.Header()
	if w.idField == "" {
		return h
	}
	h = maps.Clone(h)
	delete(h, w.idField)
	return h
}
