package cache

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"millrace/cache/purge"
	"millrace/cache/rfc9111"
	"millrace/internal/condition"
	"millrace/internal/proxy"
	"millrace/internal/upstream"
)

// errClosed is the cause where Close came before an answer.
var errClosed = errors.New("the cache is being closed")

// fetch joins or starts the journey for a request. It reports false when that
// led to what is not this request's, having written nothing.
func (x *exchange) fetch(o *object) bool {
	if x.h.passes.has(x.passKey(false)) || x.personal && x.h.passes.has(x.passKey(true)) ||
		x.demand.NoStore || x.r.Method == http.MethodHead {
		return x.pass(o)
	}
	f, leader := x.h.fills.Join(x.fillKey())
	if !f.Enter() {
		return false
	}
	defer f.Leave()
	if leader {
		return x.lead(x.h.journey(f, x, o), o)
	}
	out, err := f.Wait(x.r.Context())
	if err == nil && out.object != nil && out.err == nil && x.tooLate(out) {
		f.Detach()
		return false
	}
	return x.arrive(o, out, err, true)
}

// tooLate reports whether what a journey led to is not for one that came while
// it was under way: purged since it began, perhaps before this request did; or
// of so slow a body that its lifetime is over (RFC 9111, 4); or without a
// lifetime, so that nothing says that it is right for a request with credentials.
func (x *exchange) tooLate(out outcome) bool {
	o := out.object
	return x.h.state(o) != purge.Valid ||
		out.reason == "" && x.began.After(o.facts.Received) && o.stale(x.began) ||
		out.reason == noLifetime && x.personal
}

// passKey is what is remembered when an answer was not to be shared. Requests
// with credentials have one of their own: answers to them are often private
// where those to others are not.
func (x *exchange) passKey(personal bool) string {
	if personal {
		return x.key + "\x00personal"
	}
	return x.key
}

// fillKey is the cache key, and the values of what its answers are known to
// vary by: those who will not get the same answer should not wait for it.
func (x *exchange) fillKey() string {
	s := x.h.memory.look(x.key)
	if s == nil || len(s.objects[0].vary) == 0 {
		return x.key
	}
	var b strings.Builder
	b.WriteString(x.key)
	for _, name := range s.objects[0].vary {
		b.WriteByte(0)
		b.WriteString(strconv.Quote(rfc9111.Normal(name, x.r.Header, x.h.languages)))
	}
	return b.String()
}

// lead runs the journey beside the leader's request, and answers that.
func (x *exchange) lead(j *journey, o *object) bool {
	x.taken = sync.OnceFunc(func() { close(j.taken) })
	defer x.taken()
	j.h.running.Go(j.run)
	settled := make(chan struct{})
	var out outcome
	var err error
	go func() { defer close(settled); out, err = j.fill.Wait(x.r.Context()) }() // ends with the outcome or the request
	for {
		select {
		case hint := <-j.hints:
			x.interim(hint)
		case resp := <-j.own:
			<-settled
			x.direct(j, resp, out.reason)
			return true
		case <-settled:
			if err == nil && out.own {
				select {
				case resp := <-j.own:
					x.direct(j, resp, out.reason)
				case <-j.over: // Close has ended it
					x.fail(errClosed)
				case <-x.r.Context().Done():
					x.fail(context.Cause(x.r.Context()))
				}
				return true
			}
			return x.arrive(o, out, err, false)
		}
	}
}

// interim passes a 1xx on, but 100 and 101, which are between neighbours, and
// none to HTTP/1.0, which has none (RFC 9110, 15.2).
func (x *exchange) interim(i hint) {
	if i.status <= http.StatusSwitchingProtocols || i.status > 199 || !x.r.ProtoAtLeast(1, 1) || proxy.CheckHeader(i.header) != nil {
		return
	}
	proxy.Strip(i.header)
	h := x.w.Header()
	kept := maps.Clone(h)
	clear(h)
	maps.Copy(h, i.header)
	x.w.WriteHeader(i.status)
	clear(h)
	maps.Copy(h, kept)
}

// pass goes alone: what comes back is known to be for one client each, or is
// asked for in a way that nobody shares.
func (x *exchange) pass(o *object) bool {
	f, _ := x.h.fills.Join(x.key + "\x00alone " + strconv.FormatUint(x.h.passes.serial.Add(1), 10))
	f.Enter()
	defer f.Leave()
	x.alone = true
	j := x.h.journey(f, x, nil)
	j.pass = true
	return x.lead(j, o)
}

// arrive answers from an outcome. It reports false when that is not for this
// request.
func (x *exchange) arrive(o *object, out outcome, err error, joined bool) bool {
	switch {
	case err != nil && x.r.Context().Err() != nil:
		x.outcome, x.reason = "error", "client gone"
		panic(http.ErrAbortHandler)
	case err != nil: // the journey broke off before its answer's header
		x.fail(err)
		return true
	case out.own:
		return false
	case out.err != nil:
		if o == nil {
			o = out.object
		}
		if o != nil && o.selects(x.r, x.h.languages) && x.h.state(o) != purge.Gone && o.facts.OnError(x.r.Header, x.began) && x.serve(o, "stale-if-error") {
			x.outcome = "stale"
			return true
		}
		x.fail(out.err)
		return true
	case !out.object.selects(x.r, x.h.languages):
		return false
	}
	x.outcome, x.reason, x.status = "miss", out.reason, out.object.status
	switch {
	case joined:
		x.outcome = "coalesced"
	case out.how != "miss":
		x.outcome = out.how
	}
	if out.body == nil { // whole already: from a slower tier, or validated
		return x.serve(out.object, x.outcome)
	}
	why := "uri-miss"
	if o != nil {
		why = "stale"
		if !o.stale(x.began) {
			why = "request"
		}
	}
	head := x.w.Header()
	x.addStatus(head, out.object.all("Cache-Status"), forward{
		why: why, status: out.status, collapsed: joined, stored: out.reason == "", detail: out.reason,
	}.String())
	if !joined {
		maps.Copy(head, out.withheld)
	}
	if out.aged || joined { // RFC 9111, 5.1: it was not made for this request
		head["Age"] = []string{strconv.FormatInt(seconds(out.object.facts.CurrentAge(time.Now())), 10)}
	}
	if x.stream(out.object, out.body) {
		return true
	}
	delete(head, "Cache-Status")
	delete(head, "Age")
	for name := range out.withheld {
		delete(head, name)
	}
	return false
}

// fail answers for an upstream that did not.
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

// direct sends the leader the answer that is for nobody else.
func (x *exchange) direct(j *journey, resp *http.Response, reason string) {
	defer j.fill.Finish()
	defer resp.Body.Close()
	x.outcome, x.reason, x.status = "miss", reason, resp.StatusCode
	why := "uri-miss"
	if j.pass {
		x.outcome = "pass"
		if x.demand.NoStore {
			why = "request"
		}
	}
	x.h.meters.Reasons.Add(reason)
	proxy.Strip(resp.Header)
	proxy.AppendVia(resp.Header, resp.ProtoMajor, resp.ProtoMinor)
	for _, name := range x.h.hidden {
		delete(resp.Header, name)
	}
	x.h.cors.Apply(resp.Header, x.r)
	head := x.w.Header()
	for name, values := range resp.Header {
		head[name] = values
	}
	x.addStatus(head, resp.Header["Cache-Status"], forward{why: why, status: resp.StatusCode, detail: reason}.String())
	modified, _ := condition.ParseDate(resp.Header.Get("Last-Modified"), x.began)
	if !j.pass && resp.StatusCode == http.StatusOK &&
		condition.Check(x.r.Method, x.r.Header, resp.Header.Get("Etag"), modified) == condition.NotModified {
		delete(head, "Content-Length")
		x.w.WriteHeader(http.StatusNotModified)
		return
	}
	if resp.StatusCode == http.StatusNoContent {
		delete(head, "Content-Length") // RFC 9110, 8.6
	}
	x.w.WriteHeader(resp.StatusCode)
	x.copyBody(resp)
}
