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
	"millrace/internal/observe/trace"
	"millrace/internal/upstream"
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
	if !t.pass && t.sentEarlier == nil && t.fallback() == nil {
		step := trace.Begin(ctx, trace.Lookup)
		o, tier := t.c.Tiers.Find(ctx, t.Head.Fields, t.Key)
		step.End(tier, nil)
		if o != nil {
			if o.Facts.Use(t.Demand, time.Now(), o.State(t.c.Purges.Index()) == purge.Stale) == rfc9111.Serve {
				t.fill.Settle(Outcome{Object: o, How: tier})
				return
			}
			t.stored = append([]*object.Object{o}, t.stored...)
		}
	}
	handed = t.ask(ctx, true)
}

// ask asks the upstream. handed means that the leader has got the answer for itself.
func (t *Fetch) ask(ctx context.Context, validate bool) (handed bool) {
	ctx = upstream.OnSuspect(upstream.WithHashKey(ctx, t.Key), t.c.Purges.OnSuspect(t.URL()))
	out := t.request(ctx, validate)
	step := t.Trace.Begin(trace.Upstream)
	t.Trace.Inject(out.Header)
	sent := time.Now()
	resp, err := t.send(out)
	received := time.Now()
	step.End("", err)
	t.c.Meters.Upstream.Observe(0, received.Sub(sent))
	if err == nil {
		if err = proxy.CheckHeaderHTTP(resp.Header); err != nil {
			resp.Body.Close()
		}
	}
	if err != nil {
		t.fill.Settle(Outcome{Err: err, Object: t.fallback()})
		return false
	}
	t.c.Proxy.RestoreHTTP(resp.Header, t.R)
	if !t.pass && resp.StatusCode == http.StatusNotModified {
		resp.Body.Close()
		switch {
		case t.validated(resp.Header, sent, received):
		case validate:
			return t.ask(ctx, false) // it speaks of something that is not stored, or is one client's own
		default:
			t.fill.Settle(Outcome{Err: errors.New("304 to a request without conditions")})
		}
		return false
	}
	if t.failing(resp.StatusCode) {
		resp.Body.Close()
		t.fill.Settle(Outcome{Err: fmt.Errorf("the upstream answered %d", resp.StatusCode), Object: t.fallback()})
		return false
	}
	if t.pass && t.Head.Method == http.MethodHead {
		t.headUpdate(resp, sent, received)
	}
	o, reason := t.judge(resp, sent, received)
	if reason != "" && (reason != rfc9111.NoLifetime || t.pass || t.Personal) {
		return t.handOff(ctx, resp, reason)
	}
	t.grow(ctx, resp, o, reason)
	return false
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

// handOff hands an answer that is not to be shared to the leader; everyone else asks
// for themselves.
func (t *Fetch) handOff(ctx context.Context, resp *http.Response, reason string) (handed bool) {
	if !t.pass && t.lasting(reason) {
		t.fetcher.passes.add(passKey(t.Key, t.Personal))
	}
	t.fill.Detach()
	t.fill.Settle(Outcome{Private: true, Reason: reason})
	select {
	case t.answer <- resp:
	case <-t.gone:
		resp.Body.Close()
		return false
	case <-ctx.Done(): // by Close, while the leader waits for its client to take an interim answer
		resp.Body.Close()
		return false
	}
	// The body is read under this fetch's context, which ends with Finish:
	// the leader calls that. Should its client leave, nobody wants the rest.
	select {
	case <-ctx.Done():
	case <-t.gone:
	}
	return true
}

// lasting reports whether the next answer for this key will not be shared
// either, so that nobody should wait for it.
func (t *Fetch) lasting(reason string) bool {
	return reason != "method" && reason != "range" && reason != "request-no-store"
}

// withheld are the fields of an answer that are for the one who asked, and not
// kept: those that its no-cache or private names (RFC 9111, 5.2.2.4 and 5.2.2.7).
func (t *Fetch) withheld(header http.Header, o *object.Object) http.Header {
	var mine http.Header
	for name, values := range header {
		if o.All(name) != nil || name == "Age" || slices.Contains(t.c.Hidden, name) || t.c.CORS && strings.HasPrefix(name, "Access-Control-") {
			continue
		}
		if mine == nil {
			mine = http.Header{}
		}
		mine[name] = slices.Clone(values)
	}
	if mine != nil {
		if lines := header["Connection"]; lines != nil {
			mine["Connection"] = lines // for what it names
		}
		proxy.StripHTTP(mine)
	}
	return mine
}

// judge makes an object of an answer's header, or says why it will not be one.
func (t *Fetch) judge(resp *http.Response, sent, received time.Time) (*object.Object, string) {
	policy, rule := t.c.Rules.ForAnswer(t.Settings, t.Head, t.Proof, resp.StatusCode, resp.Header.Get("Content-Type"))
	header := resp.Header
	if t.c.CORS {
		header = withoutOrigin(header)
	}
	facts, reason := policy.Judge(t.Head, resp.StatusCode, header, sent, received)
	switch {
	case reason != "" && reason != rfc9111.NoLifetime:
		return nil, reason
	case byClient(header):
		return nil, "vary"
	case t.Demand.NoStore:
		return nil, "request-no-store"
	case t.pass && (t.Head.Method == http.MethodHead || resp.StatusCode == http.StatusPartialContent):
		return nil, "method"
	case resp.ContentLength > t.c.Tiers.Largest():
		return nil, "too-large"
	case resp.ContentLength > t.c.Tiers.InMemory() && !t.c.Tiers.Spills():
		return nil, "too-large"
	case len(resp.Trailer) > 0:
		return nil, "trailer"
	case strings.HasPrefix(strings.ToLower(header.Get("Content-Type")), "text/event-stream"):
		return nil, "stream"
	}
	kept := policy.Storable(header, received)
	if t.Trace != nil {
		delete(kept, t.Trace.Header()) // some servers send the request's id back: the next one's is another
	}
	proxy.StripHTTP(kept)
	proxy.AppendViaHTTP(kept, resp.ProtoMajor, resp.ProtoMinor)
	t.offerDictionary(resp.StatusCode, kept, resp.ContentLength)
	o := t.object(resp.StatusCode, kept, facts)
	o.Rule = rule
	return o, reason
}
