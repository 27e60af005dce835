package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"millrace/cache/fill"
	"millrace/cache/purge"
	"millrace/cache/rfc9111"
	"millrace/internal/proxy"
	"millrace/internal/upstream"
)

const (
	// grace is how long a journey goes on that nobody waits for any more: most
	// who leave come back for the same thing.
	grace = 30 * time.Second
	// journeyLimit ends what would never end.
	journeyLimit = time.Hour
	// maxRefreshes bounds the refreshes in the background; beyond it stale
	// answers are served without one, and a later request tries again.
	maxRefreshes = 256
	// maxHints bounds the interim answers of one request that wait to be
	// passed on (RFC 8297).
	maxHints = 8
	// smallAnswer is the length up to which an answer is read whole before it is
	// passed on: about what comes in one round trip of a connection in use.
	smallAnswer = 32 << 10
	// windowSize is how far the upstream may be ahead of the slowest client
	// when an answer is too large to be kept anywhere.
	windowSize = 512 << 10
)

// outcome is what a journey has led to, once that is known.
type outcome struct {
	object   *object     // what to answer with; its body is in it, or
	body     *fill.Body  // still growing
	how      string      // miss, validated, disk, shared
	status   int         // of the upstream's answer
	aged     bool        // that came from another cache, and says so
	withheld http.Header // fields that must not be kept, for the leader alone
	reason   string      // why it will not be stored; "" when it will
	err      error       // the upstream's failure
	own      bool        // for the one who asked alone: everyone else asks anew
}

// journey is one trip on behalf of all who wait for a key.
type journey struct {
	h        *Handler
	fill     *fill.Fill[outcome]
	r        *http.Request // the leader's; it outlives its client
	set      *settings
	demand   rfc9111.Demand
	key      string
	pass     bool // alone, and as the client sent it
	personal bool // see exchange
	passKey  string
	stored   []*object // what may be validated
	at       purge.Time
	began    time.Time

	gone  <-chan struct{}     // the leader's client has left
	over  chan struct{}       // closed when the trip has ended
	taken chan struct{}       // closed when the leader reads the answer, or will not
	own   chan *http.Response // to the leader, unbuffered
	hints chan hint           // to the leader
}

// hint is an interim answer (RFC 9110, 15.2).
type hint struct {
	status int
	header http.Header
}

// journey prepares a trip on behalf of x.
func (h *Handler) journey(f *fill.Fill[outcome], x *exchange, o *object) *journey {
	j := &journey{
		h: h, fill: f, r: x.r, set: x.set, demand: x.demand, key: x.key, personal: x.personal, passKey: x.passKey(x.personal), at: h.book.Now(), began: time.Now(),
		gone: x.r.Context().Done(), over: make(chan struct{}), taken: make(chan struct{}), own: make(chan *http.Response), hints: make(chan hint, maxHints),
	}
	if !x.alone {
		j.stored = h.memory.look(x.key).alive(h, o)
	}
	return j
}

// alive lists the objects that are not purged, o first.
func (s *resource) alive(h *Handler, o *object) []*object {
	var list []*object
	if o != nil {
		list = append(list, o)
	}
	if s != nil {
		for _, x := range s.objects {
			if x != o && h.state(x) != purge.Gone {
				list = append(list, x)
			}
		}
	}
	return list
}

// run is the trip. It ends when the answer is stored, handed to the leader, or
// has failed.
func (j *journey) run() {
	defer close(j.over)
	// net/http would contain a mistake in one request; this goroutine is ours.
	defer func() {
		if cause := recover(); cause != nil {
			j.h.errorLog.Error("a journey to the upstream failed", "url", urlOf(j.r), "cause", cause, "stack", string(debug.Stack()))
			j.fill.Finish()
		}
	}()
	ctx, cancel := context.WithCancel(j.fill.Context(grace, journeyLimit))
	defer cancel()
	defer context.AfterFunc(j.h.base, cancel)()
	j.h.meters.Fills.Add(1)
	defer j.h.meters.Fills.Add(-1)
	handed := false
	defer func() {
		if !handed {
			j.fill.Finish()
		}
	}()
	if !j.pass && j.spare() == nil {
		if o, tier := j.h.slow.find(ctx, j); o != nil {
			if o.facts.Use(j.demand, time.Now(), j.h.state(o) == purge.Stale) == rfc9111.Serve {
				j.fill.Settle(outcome{object: o, how: tier})
				return
			}
			j.stored = append([]*object{o}, j.stored...)
		}
	}
	handed = j.ask(ctx, true)
}

// ask asks the upstream; handed means that the leader has the answer.
func (j *journey) ask(ctx context.Context, validate bool) (handed bool) {
	out := j.request(upstream.WithHashKey(ctx, j.key), validate)
	sent := time.Now()
	resp, err := j.h.transport.RoundTrip(out)
	received := time.Now()
	j.h.meters.Upstream.Observe(0, received.Sub(sent))
	if err == nil {
		if err = proxy.CheckHeader(resp.Header); err != nil {
			resp.Body.Close()
		}
	}
	if err != nil {
		j.fill.Settle(outcome{err: err, object: j.spare()})
		return false
	}
	if !j.pass && resp.StatusCode == http.StatusNotModified {
		resp.Body.Close()
		switch {
		case j.validated(resp.Header, sent, received):
		case validate:
			return j.ask(ctx, false) // it speaks of something that is not stored, or is one client's own
		default:
			j.fill.Settle(outcome{err: errors.New("304 to a request without conditions")})
		}
		return false
	}
	if j.failing(resp.StatusCode) {
		resp.Body.Close()
		j.fill.Settle(outcome{err: fmt.Errorf("the upstream answered %d", resp.StatusCode), object: j.spare()})
		return false
	}
	if j.pass && j.r.Method == http.MethodHead {
		j.h.headUpdate(j, resp, sent, received)
	}
	o, reason := j.judge(resp, sent, received)
	if reason != "" && (reason != noLifetime || j.pass || j.personal) {
		return j.hand(ctx, resp, reason)
	}
	j.grow(ctx, resp, o, reason)
	return false
}

// noLifetime is the reason of rfc9111.Policy.Judge for answers that may be
// joined by those who wait for them already, but say nothing about later.
const noLifetime = "no-lifetime"

// spare is a stored answer that may do where the upstream fails.
func (j *journey) spare() *object {
	for _, o := range j.stored {
		if o.selects(j.r, j.h.languages) {
			return o
		}
	}
	return nil
}

// failing reports whether an answer is a failure that a stored one hides (RFC
// 5861, 4).
func (j *journey) failing(status int) bool {
	switch status {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		o := j.spare()
		return o != nil && j.h.state(o) != purge.Gone && o.facts.OnError(j.r.Header, time.Now())
	}
	return false
}

// hand gives an answer to the leader alone, and sends everyone else on.
func (j *journey) hand(ctx context.Context, resp *http.Response, reason string) (handed bool) {
	if !j.pass && j.lasting(reason) {
		j.h.passes.add(j.passKey)
	}
	j.fill.Detach()
	j.fill.Settle(outcome{own: true, reason: reason})
	select {
	case j.own <- resp:
	case <-j.gone:
		resp.Body.Close()
		return false
	case <-ctx.Done(): // by Close, while the leader waits for its client to take an interim answer
		resp.Body.Close()
		return false
	}
	// The body is read under this journey's context, which ends with Finish:
	// the leader calls that. Should its client leave, nobody wants the rest.
	select {
	case <-ctx.Done():
	case <-j.gone:
	}
	return true
}

// lasting reports whether the next answer for this key will not be shared
// either, so that nobody should wait for it.
func (j *journey) lasting(reason string) bool {
	return reason != "method" && reason != "range" && reason != "request-no-store"
}

// grow streams an answer into a body that everyone who waits reads, and stores
// it when it is whole.
func (j *journey) grow(ctx context.Context, resp *http.Response, o *object, reason string) {
	defer resp.Body.Close()
	if reason != "" || o.stale(time.Now()) {
		j.fill.Detach() // who comes now has to ask again (RFC 9111, 4)
	}
	body := fill.NewBody(fill.BodyOptions{
		Expected: resp.ContentLength,
		Memory:   j.h.inMemory,
		Spill:    j.h.slow.spill(j.h.storeKey(j.key, o), o, resp.ContentLength, j.h.largest),
		Window:   windowSize,
		Context:  ctx,
	})
	out := outcome{
		object: o, body: body, how: "miss", status: resp.StatusCode, reason: reason,
		aged: resp.Header["Age"] != nil, withheld: j.withheld(resp.Header, o),
	}
	// What is small and says so is stored before anyone gets it: who has it may
	// count on it, and what breaks off is a failure that a stale answer hides.
	small := 0 <= resp.ContentLength && resp.ContentLength <= smallAnswer
	if !small {
		j.fill.Settle(out)
	}
	buf := copyBuffers.Get().(*[copySize]byte)
	defer copyBuffers.Put(buf)
	n, err := io.CopyBuffer(onlyWriter{body}, onlyReader{resp.Body}, buf[:])
	if err != nil {
		j.fill.Detach() // who comes from now on is not to be cut off with the others
	}
	body.Close(err)
	j.h.meters.FromUpstream.Add(0, uint64(n))
	if body.Spilt() != nil { // what was written may be withdrawn: not before the leader holds it
		select {
		case <-j.taken:
		case <-j.gone:
		case <-ctx.Done():
		}
	}
	if err != nil {
		j.h.errorLog.Warn("an answer broke off and was not stored", "url", o.owner.URL, "err", err)
		retire(body)
		out = outcome{err: err, object: j.spare()}
	} else {
		j.h.commit(j.key, o, body, reason == "")
	}
	if small {
		j.fill.Settle(out)
	}
}

// withheld are the fields of an answer that are for the one who asked, and not
// kept: those that its no-cache or private names (RFC 9111, 5.2.2.4 and 5.2.2.7).
func (j *journey) withheld(header http.Header, o *object) http.Header {
	var mine http.Header
	for name, values := range header {
		if o.all(name) != nil || name == "Age" || slices.Contains(j.h.hidden, name) || j.h.cors != nil && strings.HasPrefix(name, "Access-Control-") {
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
		proxy.Strip(mine)
	}
	return mine
}

// onlyReader hides that a body may have a WriteTo.
type onlyReader struct{ io.Reader }

// onlyWriter hides that a body may have a ReadFrom.
type onlyWriter struct{ io.Writer }

// judge makes an object of an answer's header, or says why it will not be one.
func (j *journey) judge(resp *http.Response, sent, received time.Time) (*object, string) {
	h := j.h
	set := h.rules.forAnswer(j.r.URL.Path, resp.StatusCode, resp.Header.Get("Content-Type"))
	policy := j.set.policy // what was decided for the request stays
	if set.name != "" {
		policy.Force = set.policy.Force
		policy.StaleIfError, policy.StaleWhileRevalidate = set.policy.StaleIfError, set.policy.StaleWhileRevalidate
		policy.AnyStatus = set.policy.AnyStatus
	}
	header := resp.Header
	if h.cors != nil {
		header = withoutOrigin(header)
	}
	facts, reason := policy.Judge(j.r, resp.StatusCode, header, sent, received)
	switch {
	case reason != "" && reason != noLifetime:
		return nil, reason
	case byClient(header):
		return nil, "vary"
	case j.demand.NoStore:
		return nil, "request-no-store"
	case j.pass && (j.r.Method == http.MethodHead || resp.StatusCode == http.StatusPartialContent):
		return nil, "method"
	case resp.ContentLength > h.largest:
		return nil, "too-large"
	case resp.ContentLength > h.inMemory && !h.slow.spills():
		return nil, "too-large"
	case len(resp.Trailer) > 0:
		return nil, "trailer"
	case strings.HasPrefix(strings.ToLower(header.Get("Content-Type")), "text/event-stream"):
		return nil, "stream"
	}
	kept := policy.Storable(header, received)
	proxy.Strip(kept)
	proxy.AppendVia(kept, resp.ProtoMajor, resp.ProtoMinor)
	o := h.object(j, resp.StatusCode, kept, facts)
	o.rule = set.name
	return o, reason
}
