package cache

import (
	"context"
	"maps"
	"net/http"
	"strconv"
	"time"

	"millrace/cache/fetch"
	"millrace/cache/object"
	"millrace/cache/purge"
	"millrace/cache/rfc9111"
	"millrace/internal/observe/trace"
	"millrace/internal/upstream"
	"millrace/internal/wire/condition"
	"millrace/internal/wire/send"
	"millrace/proxy"
)

// join joins or leads the fetch for a request, and answers from its outcome. It
// reports false, having written nothing, if the outcome is not for this request.
func (x *exchange) join(o *object.Object) bool {
	q := x.request()
	if x.h.fetches.Passes(q) || x.demand.NoStore || x.r.Method == http.MethodHead {
		return x.pass(o)
	}
	f, leader := x.h.fetches.Join(q)
	if !f.Enter() {
		return false
	}
	defer f.Leave()
	if leader {
		if o == nil {
			if stored, _ := x.h.lookup(x); stored != nil && f.Abandon() {
				return false // another fetch has just ended
			}
		}
		return x.lead(x.h.fetches.New(f, q, o), o)
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
		case resp := <-t.Answer(): //nolint:bodyclose // receive closes it
			<-settled
			x.interims(t)
			return x.receive(t, resp, o, out.Reason)
		case <-settled:
			x.interims(t)
			if err == nil && out.Private {
				select {
				case resp := <-t.Answer(): //nolint:bodyclose // receive closes it
					return x.receive(t, resp, o, out.Reason)
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
// is stored; nil: nothing. What was purged softly is stale, however young.
func (x *exchange) why(o *object.Object) string {
	switch {
	case o == nil:
		return "uri-miss"
	case o.Stale(x.began) || o.State(x.h.purges.Index()) != purge.Valid:
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
	if i.Status <= http.StatusSwitchingProtocols || i.Status > 199 || !x.r.ProtoAtLeast(1, 1) || proxy.CheckHeaderHTTP(i.Header) != nil {
		return
	}
	proxy.StripHTTP(i.Header)
	h := x.w.Header()
	kept := maps.Clone(h)
	clear(h)
	maps.Copy(h, i.Header)
	x.w.WriteHeader(i.Status)
	clear(h)
	maps.Copy(h, kept)
}

// pass fetches for this request alone: the answers for its key are known to differ by
// client (hit-for-miss), or it asks in a way that nobody shares.
func (x *exchange) pass(o *object.Object) bool {
	t, leave := x.h.fetches.NewPass(x.request())
	defer leave()
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
	x.outcome, x.reason, x.status = "miss", out.Reason, out.Object.Status
	switch {
	case joined:
		x.outcome = "coalesced"
	case out.How != "miss":
		x.outcome = out.How
	}
	if out.Body == nil { // whole already: from a slower tier, or validated
		return x.serve(out.Object, x.outcome)
	}
	head := x.w.Header()
	x.addStatus(head, out.Object.All("Cache-Status"), forward{
		why: x.why(o), status: out.Status, collapsed: joined, stored: out.Reason == "", detail: out.Reason,
	}.String())
	if !joined {
		maps.Copy(head, out.Withheld)
	}
	if out.Aged || joined { // RFC 9111, 5.1: it was not made for this request
		head["Age"] = []string{strconv.FormatInt(seconds(out.Object.Facts.CurrentAge(time.Now())), 10)}
	}
	if x.stream(out.Object, out.Body) {
		return true
	}
	delete(head, "Cache-Status")
	delete(head, "Age")
	for name := range out.Withheld {
		delete(head, name)
	}
	if x.far {
		if x.taken != nil {
			x.taken()
		}
		return x.pass(o)
	}
	return false
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
func (x *exchange) receive(t *fetch.Fetch, resp *http.Response, o *object.Object, reason string) bool {
	if reason == "too-large" && !t.Pass() && x.r.Header["Range"] != nil {
		resp.Body.Close()
		t.Finish()
		x.taken()
		return x.pass(o)
	}
	x.direct(t, resp, o, reason)
	return true
}

// direct sends an answer that is for this client alone.
func (x *exchange) direct(t *fetch.Fetch, resp *http.Response, o *object.Object, reason string) {
	defer t.Finish()
	defer resp.Body.Close()
	x.outcome, x.reason, x.status = "miss", reason, resp.StatusCode
	why := x.why(o)
	if t.Pass() {
		x.outcome = "pass"
		if x.demand.NoStore {
			why = "request"
		}
	}
	x.h.meters.Reasons.Add(reason)
	proxy.StripHTTP(resp.Header)
	proxy.AppendViaHTTP(resp.Header, resp.ProtoMajor, resp.ProtoMinor)
	for _, name := range x.h.hidden {
		delete(resp.Header, name)
	}
	x.h.cors.Apply(resp.Header, x.r)
	head := x.w.Header()
	maps.Copy(head, resp.Header)
	send.NoGuess(head)
	x.addStatus(head, resp.Header["Cache-Status"], forward{why: why, status: resp.StatusCode, detail: reason}.String())
	modified, _ := condition.ParseDate(resp.Header.Get("Last-Modified"), x.began)
	if !t.Pass() && resp.StatusCode == http.StatusOK &&
		condition.Check(x.r.Method, x.r.Header, resp.Header.Get("Etag"), modified) == condition.NotModified {
		delete(head, "Content-Length")
		x.w.WriteHeader(http.StatusNotModified)
		return
	}
	if resp.StatusCode == http.StatusNoContent {
		delete(head, "Content-Length") // RFC 9110, 8.6
	}
	send.PassOn(x.w)
	x.w.WriteHeader(resp.StatusCode)
	x.sendBody(resp)
}
