package cache

import (
	"context"
	"maps"
	"net/http"

	"millrace/cache/fetch"
	"millrace/cache/fill"
	"millrace/cache/object"
	"millrace/cache/purge"
	"millrace/cache/rfc9111"
	"millrace/internal/observe/trace"
	"millrace/internal/upstream"
	"millrace/internal/wire/condition"
	"millrace/internal/wire/field"
	"millrace/proxy"
)

// join joins or leads the fetch for a request, and answers from its outcome. It
// reports false, having written nothing, if the outcome is not for this request.
func (x *exchange) join(o *object.Object) bool {
	f, t := x.claim(x.request(), o)
	if f == nil {
		return false
	}
	defer f.Leave()
	if t != nil {
		return x.lead(t, o)
	}
	step := trace.Begin(x.r.Context(), trace.Fetch)
	out, err := f.Wait(x.r.Context())
	step.End("another request's", err)
	if err == nil && out.Object != nil && out.Err == nil && x.tooLate(out) {
		f.Detach()
		return false
	}
	return x.arrive(o, out, err, true)
}

// alone reports whether a request asks for itself alone: the answers for its key are known
// to differ by client (hit-for-miss), or it asks in a way that nobody shares.
func (x *exchange) alone(q *fetch.Request) bool {
	return x.demand.NoStore || x.head.Method == http.MethodHead || x.h.fetches.Passes(q)
}

// claim joins the fetch for a request. t is not nil where the request has to lead it. f is
// nil where another fetch has just ended; otherwise the caller owes it a Leave. o is what
// is stored.
func (x *exchange) claim(q *fetch.Request, o *object.Object) (f *fill.Fill[fetch.Outcome], t *fetch.Fetch) {
	if x.alone(q) {
		return x.h.fetches.NewPass(q)
	}
	f, leader := x.h.fetches.Join(q)
	switch {
	case !f.Enter():
		return nil, nil
	case !leader:
		return f, nil
	case o == nil:
		if stored, _ := x.h.lookup(x); stored != nil && f.Abandon() {
			f.Leave()
			return nil, nil
		}
	}
	return f, x.h.fetches.New(f, q, o)
}

// tooLate reports whether the outcome of a fetch is not for a request that joined it
// under way: it was purged since the fetch began, perhaps before this request came; or
// its body was so slow that its lifetime is over (RFC 9111, 4); or it has no lifetime
// and this request has credentials.
func (x *exchange) tooLate(out fetch.Outcome) bool {
	o := out.Object
	return o.State(x.h.purges.Index()) != purge.Valid ||
		out.Reason == "" && x.began.After(o.Facts.Received) && o.Stale(x.began) ||
		out.Reason == rfc9111.NoLifetime && x.personal
}

// lead runs the fetch as its leader, and answers the request from it.
func (x *exchange) lead(t *fetch.Fetch, o *object.Object) bool {
	x.taken = t.Take
	defer t.Take()
	t.Start()
	settled := make(chan struct{})
	var out fetch.Outcome
	var err error
	go func() { defer close(settled); out, err = t.Wait(x.r.Context()) }() // ends with the outcome or the request
	for {
		select {
		case hint := <-t.Hints():
			x.interim(hint)
		case a := <-t.Answer():
			<-settled
			x.interims(t)
			return x.receive(t, a, o, out.Reason)
		case <-settled:
			x.interims(t)
			if err == nil && out.Private {
				select {
				case a := <-t.Answer():
					return x.receive(t, a, o, out.Reason)
				case <-t.Over(): // Close has ended it
					x.fail(fetch.ErrClosed)
				case <-x.r.Context().Done():
					x.fail(context.Cause(x.r.Context()))
				}
				return true
			}
			return x.arrive(o, out, err, false)
		}
	}
}

// why is the reason for a fetch, as Cache-Status names it (RFC 9211, 2.2). o is what
// is stored; nil: nothing. What was purged softly is stale, however young, and also where
// it was only not trusted for a moment: after a restart of Redis, for example.
func (x *exchange) why(o *object.Object) string {
	switch {
	case o == nil:
		return "uri-miss"
	case o.Stale(x.began) || x.distrusted || o.State(x.h.purges.Index()) != purge.Valid:
		return "stale"
	}
	return "request"
}

// interims forwards the interim answers that came right before the answer.
func (x *exchange) interims(t *fetch.Fetch) {
	for {
		select {
		case hint := <-t.Hints():
			x.interim(hint)
		default:
			return
		}
	}
}

// interim forwards a 1xx, except 100 and 101, which are between neighbours. HTTP/1.0
// has none (RFC 9110, 15.2).
func (x *exchange) interim(i fetch.Hint) {
	if i.Status <= http.StatusSwitchingProtocols || i.Status > 199 || !x.r.ProtoAtLeast(1, 1) || proxy.CheckHeader(i.Fields) != nil {
		return
	}
	proxy.Strip(&i.Fields)
	h := x.w.Header()
	kept := maps.Clone(h)
	clear(h)
	maps.Copy(h, i.Fields.Header())
	x.w.WriteHeader(i.Status)
	clear(h)
	maps.Copy(h, kept)
}

// pass fetches for this request alone.
func (x *exchange) pass(o *object.Object) bool {
	f, t := x.h.fetches.NewPass(x.request())
	defer f.Leave()
	return x.lead(t, o)
}

// arrive answers from an outcome. It reports false, having written nothing, if the
// outcome is not for this request.
func (x *exchange) arrive(o *object.Object, out fetch.Outcome, err error, joined bool) bool {
	switch {
	case err != nil && x.r.Context().Err() != nil:
		x.outcome, x.reason = "error", "client gone"
		panic(http.ErrAbortHandler)
	case err != nil: // the fetch broke off before its answer's header
		x.fail(err)
		return true
	case out.Private:
		return false
	case out.Err != nil:
		if o == nil {
			o = out.Object
		}
		down := x.set.Policy.Disconnected && upstream.Unreachable(out.Err)
		if o != nil && o.Selects(x.head.Fields, x.h.languages) && o.State(x.h.purges.Index()) != purge.Gone && o.Facts.OnError(x.head.Fields, x.began, down) && x.serve(o, "stale-if-error") {
			x.outcome = "stale"
			return true
		}
		x.fail(out.Err)
		return true
	case !out.Object.Selects(x.head.Fields, x.h.languages):
		return false
	}
	x.settled(&out, joined)
	switch {
	case out.Body == nil: // whole already: from a slower tier, or validated
		return x.serve(out.Object, x.outcome)
	case x.stream(&out, x.why(o), joined):
		return true
	case x.far:
		if x.taken != nil {
			x.taken()
		}
		return x.pass(o)
	}
	return false
}

// settled notes what the log says of an outcome.
func (x *exchange) settled(out *fetch.Outcome, joined bool) {
	x.outcome, x.reason, x.status = out.How, out.Reason, out.Object.Status
	if joined {
		x.outcome = "coalesced"
	}
}

// fail answers when the upstream failed.
func (x *exchange) fail(err error) {
	if x.r.Context().Err() != nil { // one that has closed one way only must not take nothing for an answer
		x.outcome, x.reason = "error", "client gone"
		panic(http.ErrAbortHandler)
	}
	x.outcome, x.reason = "error", "upstream"
	x.status = upstream.Status(err)
	h := x.w.Header()
	x.addStatus(h, nil, forward{why: "miss", detail: "upstream-failed"}.String())
	x.h.cors.Apply(h, x.r)
	x.h.proxy.Fail(x.w, x.r, err)
}

// receive takes over an answer that is for this client alone. If the client wants a
// range of an answer that is too large to be stored, the upstream is asked again for
// that range.
func (x *exchange) receive(t *fetch.Fetch, a *upstream.Answer, o *object.Object, reason string) bool {
	if reason == "too-large" && !t.Pass() && x.head.Fields.Has("Range") {
		a.Body.Close()
		t.Finish()
		x.taken()
		return x.pass(o)
	}
	x.direct(t, a, o, reason)
	return true
}

// direct sends an answer that is for this client alone.
func (x *exchange) direct(t *fetch.Fetch, a *upstream.Answer, o *object.Object, reason string) {
	defer t.Finish()
	defer a.Body.Close()
	lines := x.own(t, a, o, reason)
	h := http.Header(lines.Header())
	unchanged := false
	if !t.Pass() && a.Status == http.StatusOK {
		modified, _ := condition.ParseDate(object.First(h["Last-Modified"]), x.began)
		unchanged = condition.Check(x.head.Method, x.r.Header, object.First(h["Etag"]), modified) == condition.NotModified
	}
	if x.begin(a.Status, h, unchanged); !unchanged {
		x.sendBody(a)
	}
}

// own makes the fields of an answer that is for this client alone, in place, and notes what
// the log says of it.
func (x *exchange) own(t *fetch.Fetch, a *upstream.Answer, o *object.Object, reason string) field.Lines {
	x.outcome, x.reason, x.status = "miss", reason, a.Status
	why := x.why(o)
	if t.Pass() {
		x.outcome = "pass"
		if x.demand.NoStore {
			why = "request"
		}
	}
	x.h.meters.Reasons.Add(reason)
	proxy.Strip(&a.Fields)
	if a.Status == http.StatusNoContent {
		a.Fields.Delete("Content-Length") // RFC 9110, 8.6
	}
	return x.public(a.Fields, forward{why: why, status: a.Status, detail: reason}.String())
}
