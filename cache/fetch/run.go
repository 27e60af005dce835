package fetch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"millrace/cache/object"
	"millrace/cache/purge"
	"millrace/cache/rfc9111"
	"millrace/cache/tier"
	"millrace/internal/observe/trace"
	"millrace/internal/upstream"
	"millrace/internal/wire/field"
	"millrace/proxy"
)

// run is the fetch. It ends when the answer is stored, handed to the leader, or
// has failed.
func (t *Fetch) run() {
	defer close(t.over)
	// net/http would contain a mistake in one request; this goroutine is ours.
	defer func() {
		if cause := recover(); cause != nil {
			t.c.ErrorLog.Error("a fetch from the upstream failed", "url", t.URL(), "cause", cause, "stack", string(debug.Stack()))
			t.fill.Finish()
		}
	}()
	ctx, cancel := context.WithCancel(t.fill.Context(Linger, limit))
	defer cancel()
	defer context.AfterFunc(t.c.Context, cancel)()
	t.c.Meters.Fills.Add(1)
	defer t.c.Meters.Fills.Add(-1)
	handed := false
	defer func() {
		if !handed {
			t.fill.Finish()
		}
	}()
	ctx = trace.With(ctx, t.Trace)
	if !t.pass && t.started == nil {
		if t.fromTiers(ctx) || t.c.Leases != nil && t.shareable() && t.elsewhere(ctx) {
			return
		}
		defer t.release(noteNone) // unless that was done with another note
	}
	handed = t.ask(ctx, true)
}

// find looks for a stored answer in the slower tiers, where memory has none or a stale one.
func (t *Fetch) find(ctx context.Context) (o *object.Object, where string) {
	old := t.fallback()
	if old != nil && !t.c.Tiers.HasShared() {
		return nil, ""
	}
	step := trace.Begin(ctx, trace.Lookup)
	if old == nil {
		o, where = t.c.Tiers.Find(ctx, t.Head.Fields, t.Key)
	} else if o = t.c.Tiers.Newer(ctx, t.Head.Fields, t.Key, old); o != nil {
		where = tier.Shared
	}
	step.End(where, nil)
	return o, where
}

// ask asks the upstream, unless an event loop has. handed means that the leader has got
// the answer for itself.
func (t *Fetch) ask(ctx context.Context, validate bool) (handed bool) {
	step := t.Trace.Begin(trace.Upstream)
	if t.started == nil {
		t.out, t.sent = t.request(validate, nil), time.Time{}
	}
	if t.sent.IsZero() { // or a loop has sent it
		t.sent = time.Now()
	}
	a, err := t.send(ctx, t.out)
	received := time.Now()
	step.End("", err)
	if err == nil {
		if err = proxy.CheckHeader(a.Fields); err != nil {
			a.Body.Close()
		}
	}
	t.c.Meters.Upstream.Observe(0, received.Sub(t.sent))
	if err != nil {
		t.fill.Settle(Outcome{Err: err, Object: t.fallback()})
		return false
	}
	v := t.arrived(a, received)
	switch v.step {
	case keep:
		t.grow(ctx, a, v)
	case handOver:
		return t.deliver(ctx, a, v.reason)
	case confirm:
		a.Body.Close()
		switch {
		case t.validated(v.header, received):
		case validate:
			return t.ask(ctx, false) // it speaks of something that is not stored, or is one client's own
		default:
			t.fill.Settle(Outcome{Err: errors.New("304 to a request without conditions")})
		}
	case hide:
		a.Body.Close()
		t.fill.Settle(Outcome{Err: fmt.Errorf("the upstream answered %d", a.Status), Object: t.fallback()})
	}
	return false
}

// step is what a fetch does next with an answer.
type step int

// The steps.
const (
	keep     step = iota // it is for all who wait: it is read, and stored if there is no reason against
	handOver             // it is for the leader alone
	confirm              // it is a 304
	hide                 // it is a failure, and something stored may be served instead
)

// verdict is what an answer is to a fetch.
type verdict struct {
	step   step
	header http.Header
	object *object.Object // to keep; it has no body yet
	reason string         // why it will not be stored; "" when it will
}

// arrived decides about an answer whose header has come, and makes its fields those that
// clients may get. It does not wait.
func (t *Fetch) arrived(a *upstream.Answer, received time.Time) verdict {
	t.c.Proxy.Restore(a.Fields, t.Scheme, t.Host)
	proxy.AppendVia(&a.Fields, a.Major, a.Minor)
	v := verdict{header: a.Fields.Header()}
	switch {
	case !t.pass && a.Status == http.StatusNotModified:
		v.step = confirm
	case t.failing(a.Status):
		v.step = hide
	default:
		if v.object, v.reason = t.judge(a, v.header, received); v.reason != "" && (v.reason != rfc9111.NoLifetime || t.pass || t.Personal) {
			v.step = handOver
		}
	}
	if t.pass && t.Head.Method == http.MethodHead {
		t.headUpdate(a.Status, v.header, received)
	}
	return v
}

// fallback is a stored answer that may be served, stale, where the upstream fails.
func (t *Fetch) fallback() *object.Object {
	for _, o := range t.stored {
		if o.Selects(t.Head.Fields, t.c.Languages) {
			return o
		}
	}
	return nil
}

// failing reports whether an answer is a failure that a stored one hides (RFC
// 5861, 4).
func (t *Fetch) failing(status int) bool {
	switch status {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return t.hides()
	}
	return false
}

// hides reports whether there is a stored answer that may be served instead of
// a failure.
func (t *Fetch) hides() bool {
	o := t.fallback()
	return o != nil && o.State(t.c.Purges.Index()) != purge.Gone && o.Facts.OnError(t.Head.Fields, time.Now(), false)
}

// deliver hands an answer that is not to be shared to the leader; everyone else asks
// for themselves.
func (t *Fetch) deliver(ctx context.Context, a *upstream.Answer, reason string) (handed bool) {
	t.makePrivate(reason)
	select {
	case t.answer <- a:
	case <-t.Gone:
		a.Body.Close()
		return false
	case <-ctx.Done(): // by Close, while the leader waits for its client to take an interim answer
		a.Body.Close()
		return false
	}
	// The body is read under this fetch's context, which ends with Finish:
	// the leader calls that. Should its client leave, nobody wants the rest.
	select {
	case <-ctx.Done():
	case <-t.Gone:
	}
	return true
}

// makePrivate has all who wait, but for the leader, ask for themselves.
func (t *Fetch) makePrivate(reason string) Outcome {
	t.release(noteNone)
	if !t.pass && t.lasting(reason) {
		t.fetcher.passes.add(passKey(t.Key, t.Personal))
	}
	out := Outcome{Private: true, Reason: reason}
	t.fill.Detach()
	t.fill.Settle(out)
	return out
}

// lasting reports whether the next answer for this key will not be shared
// either, so that nobody should wait for it.
func (t *Fetch) lasting(reason string) bool {
	return reason != "method" && reason != "range" && reason != "request-no-store"
}

// withheld are the fields of an answer that are for the one who asked, and not
// kept: those that its no-cache or private names (RFC 9111, 5.2.2.4 and 5.2.2.7).
func (t *Fetch) withheld(fields field.Lines, o *object.Object) field.Lines {
	var mine field.Lines
	for _, l := range fields {
		if o.All(l.Name) != nil || l.Name == "Age" || slices.Contains(t.c.Hidden, l.Name) || t.c.CORS && strings.HasPrefix(l.Name, "Access-Control-") {
			continue
		}
		mine = append(mine, l) // Connection as well, for what it names
	}
	proxy.Strip(&mine)
	return mine
}

// judge makes an object of an answer's header, or says why it will not be one.
func (t *Fetch) judge(a *upstream.Answer, header http.Header, received time.Time) (*object.Object, string) {
	policy, rule := t.c.Rules.ForAnswer(t.Settings, t.Head, t.Proof, a.Status, object.First(header["Content-Type"]))
	if t.c.CORS {
		header = withoutOrigin(header)
	}
	facts, reason := policy.Judge(t.Head, a.Status, header, t.sent, received)
	switch {
	case reason != "" && reason != rfc9111.NoLifetime:
		return nil, reason
	case byClient(header):
		return nil, "vary"
	case t.Demand.NoStore:
		return nil, "request-no-store"
	case t.pass && (t.Head.Method == http.MethodHead || a.Status == http.StatusPartialContent):
		return nil, "method"
	case a.Length > t.c.Tiers.Largest():
		return nil, "too-large"
	case a.Length > t.c.Tiers.InMemory() && !t.c.Tiers.Overflows():
		return nil, "too-large"
	case len(a.Trailer) > 0:
		return nil, "trailer"
	case strings.HasPrefix(strings.ToLower(object.First(header["Content-Type"])), "text/event-stream"):
		return nil, "stream"
	}
	kept := policy.Storable(header, received)
	for _, mark := range t.marks() {
		delete(kept, mark.Name) // some servers send the request's id back: the next one's is another
	}
	strip(kept)
	t.offerDictionary(a.Status, kept, a.Length)
	o := t.object(a.Status, kept, facts)
	o.Rule = rule
	return o, reason
}

// strip removes the fields that are not for clients from a header without Connection.
func strip(header http.Header) {
	for name := range header {
		if proxy.EndsHere(name) {
			delete(header, name)
		}
	}
}
