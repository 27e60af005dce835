package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"millrace/cache/fill"
	"millrace/cache/purge"
	"millrace/cache/rfc9111"
	"millrace/internal/condition"
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
	// windowSize is how far the upstream may be ahead of the slowest client
	// when an answer is too large to be kept anywhere.
	windowSize = 512 << 10
)

// outcome is what a journey has led to, once that is known.
type outcome struct {
	object *object    // what to answer with; its body is in it, or
	body   *fill.Body // still growing
	how    string     // miss, validated, disk, shared
	status int        // of the upstream's answer
	aged   bool       // that came from another cache, and says so
	reason string     // why it will not be stored; "" when it will
	err    error      // the upstream's failure
	own    bool       // for the one who asked alone: everyone else asks anew
}

// journey is one trip on behalf of all who wait for a key.
type journey struct {
	h      *Handler
	fill   *fill.Fill[outcome]
	r      *http.Request // the leader's; it outlives its client
	set    *settings
	demand rfc9111.Demand
	key    string
	pass   bool      // alone, and as the client sent it
	stored []*object // what may be validated
	at     purge.Time
	began  time.Time

	gone  <-chan struct{}     // the leader's client has left
	own   chan *http.Response // to the leader, unbuffered
	hints chan hint           // to the leader
}

// hint is an interim answer (RFC 9110, 15.2).
type hint struct {
	status int
	header http.Header
}

// fetch joins or starts the journey for a request. It reports false when that
// led to what is not this request's, having written nothing.
func (x *exchange) fetch(o *object) bool {
	if x.h.passes.has(x.key) || x.demand.NoStore || x.r.Method == http.MethodHead {
		return x.pass()
	}
	f, leader := x.h.fills.Join(x.fillKey())
	if !f.Enter() {
		return false
	}
	defer f.Leave()
	if !leader {
		out, err := f.Wait(x.r.Context())
		if err == nil && out.object != nil && out.err == nil && x.h.state(out.object) != purge.Valid {
			// Purged since the journey began, perhaps before this request did:
			// nobody who comes now may have it.
			f.Detach()
			return false
		}
		return x.arrive(o, out, err, true)
	}
	return x.lead(x.h.journey(f, x, o), o)
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

// journey prepares a trip on behalf of x.
func (h *Handler) journey(f *fill.Fill[outcome], x *exchange, o *object) *journey {
	j := &journey{
		h: h, fill: f, r: x.r, set: x.set, demand: x.demand, key: x.key, at: h.book.Now(), began: time.Now(),
		gone: x.r.Context().Done(), own: make(chan *http.Response), hints: make(chan hint, maxHints),
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

// lead runs the journey beside the leader's request, and answers that.
func (x *exchange) lead(j *journey, o *object) bool {
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
				case <-x.r.Context().Done():
					x.outcome, x.reason = "error", "client gone"
				}
				return true
			}
			return x.arrive(o, out, err, false)
		}
	}
}

// interim passes a 1xx on, but 100 and 101, which are between neighbours.
func (x *exchange) interim(i hint) {
	if i.status == http.StatusContinue || i.status == http.StatusSwitchingProtocols {
		return
	}
	h := x.w.Header()
	for name, values := range i.header {
		h[name] = values
	}
	x.w.WriteHeader(i.status)
	for name := range i.header {
		delete(h, name)
	}
}

// pass goes alone: what comes back is known to be for one client each, or is
// asked for in a way that nobody shares.
func (x *exchange) pass() bool {
	f, _ := x.h.fills.Join(x.key + "\x00alone " + strconv.FormatUint(x.h.passes.serial.Add(1), 10))
	f.Enter()
	defer f.Leave()
	x.alone = true
	j := x.h.journey(f, x, nil)
	j.pass = true
	return x.lead(j, nil)
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
	}
	head := x.w.Header()
	x.addStatus(head, out.object.all("Cache-Status"), forward{
		why: why, status: out.status, collapsed: joined, stored: out.reason == "", detail: out.reason,
	}.String())
	if out.aged {
		head["Age"] = []string{strconv.FormatInt(seconds(out.object.facts.CurrentAge(time.Now())), 10)}
	}
	if x.stream(out.object, out.body) {
		return true
	}
	delete(head, "Cache-Status")
	delete(head, "Age")
	return false
}

// fail answers for an upstream that did not.
func (x *exchange) fail(err error) {
	x.outcome, x.reason = "error", "upstream"
	x.status = http.StatusBadGateway
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
		x.outcome, why = "pass", "request"
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
	x.w.WriteHeader(resp.StatusCode)
	x.copyBody(resp)
}

// run is the trip. It ends when the answer is stored, handed to the leader, or
// has failed.
func (j *journey) run() {
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
			return j.ask(ctx, false) // it speaks of something that is not stored
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
	if reason != "" && (reason != noLifetime || j.pass) {
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

// request is what goes to the upstream.
func (j *journey) request(ctx context.Context, validate bool) *http.Request {
	out := j.h.proxy.Outgoing(j.r.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			select {
			case j.hints <- hint{code, http.Header(h).Clone()}:
			default: // nobody must wait for interim answers
			}
			return nil
		},
	})))
	out.Body = nil
	h := out.Header
	j.set.scrub(h)
	if j.h.cors != nil {
		delete(h, "Origin")
	}
	h["Surrogate-Capability"] = append(h["Surrogate-Capability"], statusName+`="Surrogate/1.0"`)
	if j.pass {
		return out
	}
	out.Method = http.MethodGet
	if len(j.h.languages) > 0 {
		// What is compared is what is asked for, or the first client's wishes
		// would decide for all who count as the same.
		delete(h, "Accept-Language")
		if l := rfc9111.Normal("Accept-Language", j.r.Header, j.h.languages); l != "" {
			h["Accept-Language"] = []string{l}
		}
	}
	for _, name := range []string{"Range", "If-Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"} {
		delete(h, name) // decided here, from the whole answer
	}
	if validate {
		headers := make([]http.Header, len(j.stored))
		for i, o := range j.stored {
			headers[i] = o.header()
		}
		rfc9111.Conditional(h, headers)
	}
	return out
}

// overrides are request headers by which some frameworks answer for another
// URL, host or method than the one in the key: poison for a cache.
var overrides = []string{
	"X-Original-Url", "X-Rewrite-Url", "X-Original-Host", "X-Host", "X-Forwarded-Server", "X-Forwarded-Scheme",
	"X-Forwarded-Prefix", "X-Http-Method-Override", "X-Http-Method", "X-Method-Override", "X-Original-Method",
}

// scrub takes out of a request's header what the key does not know, so that it
// cannot have a say in an answer that others get.
func (s *settings) scrub(h http.Header) {
	for _, name := range overrides {
		delete(h, name)
	}
	if s.auth == dropped {
		delete(h, "Authorization")
	}
	switch {
	case s.cookies == dropped:
		delete(h, "Cookie")
	case s.cookies == keyed && len(s.listed) > 0:
		keepCookies(h, s.listed)
	}
}

// keepCookies leaves only the cookies of these names.
func keepCookies(h http.Header, names []string) {
	var kept []string
	for _, line := range h["Cookie"] {
		for pair := range strings.SplitSeq(line, ";") {
			pair = strings.TrimSpace(pair)
			name, _, _ := strings.Cut(pair, "=")
			for _, n := range names {
				if n == name {
					kept = append(kept, pair)
					break
				}
			}
		}
	}
	delete(h, "Cookie")
	if len(kept) > 0 {
		h["Cookie"] = []string{strings.Join(kept, "; ")}
	}
}

// hand gives an answer to the leader alone, and sends everyone else on.
func (j *journey) hand(ctx context.Context, resp *http.Response, reason string) (handed bool) {
	if !j.pass && j.lasting(reason) {
		j.h.passes.add(j.key)
	}
	j.fill.Detach()
	j.fill.Settle(outcome{own: true, reason: reason})
	select {
	case j.own <- resp:
	case <-j.gone:
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
	return reason != "method" && reason != "range"
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
		Spill:    j.h.slow.spill(j.h.storeKey(j.key, o), o, resp.ContentLength),
		Window:   windowSize,
		Context:  ctx,
	})
	j.fill.Settle(outcome{object: o, body: body, how: "miss", status: resp.StatusCode, aged: resp.Header["Age"] != nil, reason: reason})
	buf := copyBuffers.Get().(*[copySize]byte)
	defer copyBuffers.Put(buf)
	n, err := io.CopyBuffer(onlyWriter{body}, io.LimitReader(resp.Body, j.h.largest+1), buf[:])
	if err == nil && n > j.h.largest {
		err = fmt.Errorf("the answer is larger than the %d bytes that are kept", j.h.largest)
	}
	body.Close(err)
	j.h.meters.FromUpstream.Add(0, uint64(n))
	if err != nil {
		j.h.errorLog.Warn("an answer broke off and was not stored", "url", o.owner.URL, "err", err)
		retire(body)
		return
	}
	j.h.commit(j.key, o, body, reason == "")
}

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
	case strings.HasPrefix(header.Get("Content-Type"), "text/event-stream"):
		return nil, "stream"
	}
	kept := policy.Storable(header, received)
	proxy.AppendVia(kept, resp.ProtoMajor, resp.ProtoMinor)
	o := h.object(j, resp.StatusCode, kept, facts)
	o.rule = set.name
	return o, reason
}
