package lane

import (
	"bytes"
	"context"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"millrace/internal/access/admit"
	"millrace/internal/observe/meter"
	"millrace/internal/observe/trace"
	"millrace/internal/wire/field"
	"millrace/internal/wire/negotiate"
	"millrace/internal/wire/send"
)

// Generation counts the versions of something that answers are made of: a file's content,
// a purge tag. Invalidate ends at once every answer offered with an older version, also
// one whose offer is still to come. The zero value is ready.
type Generation struct{ n atomic.Uint64 }

// Version is a generation's state at one moment. Take it before you read what the answer
// is made of. The zero Version is always valid.
type Version struct {
	gen *Generation
	at  uint64
}

// Now returns the current version.
func (g *Generation) Now() Version { return Version{g, g.n.Load()} }

// Invalidate makes every version taken so far invalid.
func (g *Generation) Invalidate() { g.n.Add(1) }

// Valid reports whether the generation has not been invalidated since.
func (v Version) Valid() bool { return v.gen == nil || v.gen.n.Load() == v.at }

// Rule says for which requests an offered answer may be sent, and how long.
type Rule struct {
	// VaryOn names every request header that the choice of the answer depended on,
	// those of its Vary among them. The lane does not answer a request in which one
	// of them differs. An answer that varies on Authorization or Cookie is only sent to
	// requests without them. A header whose values the lane does not keep must have been
	// absent, and must be absent in those requests.
	VaryOn []string
	// Negotiated says that the answer depended on Accept-Encoding only through
	// [negotiate.Of]. Then that is compared, and not the field.
	Negotiated bool
	// Version must have been taken before the answer's content was read.
	Version Version
	// Also is a second version that must be valid: Version may stand for one
	// object, Also for a purge of many.
	Also Version
	// Lines appends the header lines that change from second to second (Age,
	// Cache-Status), each with its line end; now is in Unix seconds. It is called
	// about once a second, from several goroutines, and may depend only on the
	// Answer, the versions and Expires. The answer's Header must have a Date then,
	// which stays as it is (RFC 9111, 5.1). nil: the Date is this second's.
	Lines func(b []byte, now int64) []byte
	// Expires ends the answer's life; zero means only the versions do.
	Expires time.Time
	// WithQuery makes the query part of the key. Without it the answer is sent for
	// the path with any query.
	WithQuery bool
	// Used is set when the lane sends the answer. It tells a job with a bounded memory
	// what is still asked for. The lane clears it when it looks for something to evict,
	// and so may the job. nil: the job does not ask.
	Used *atomic.Bool

	strict bool // see demands
	answerRules
}

// answerRules are what changes the header of an answer.
type answerRules struct {
	always http.Header                                           // Scope.Always
	apply  func(h http.Header, status int, contentType []string) // of Policy.HeaderRules; nil: nothing
}

// without returns Lines without the fields for which drop returns true.
func without(lines func([]byte, int64) []byte, drop func(name string) bool) func([]byte, int64) []byte {
	return func(b []byte, now int64) []byte {
		var buf [changingLines]byte
		for line := range bytes.Lines(lines(buf[:0], now)) {
			if name, _, _ := bytes.Cut(line, []byte(":")); !drop(string(name)) {
				b = append(b, line...)
			}
		}
		return b
	}
}

// maxVaryOn bounds the headers that an answer may vary on: each is compared at every hit, in a
// nanosecond or two. A cache varies on Host, Authorization, Cookie, Cache-Control, Pragma,
// Origin and two or three that the answer's Vary names.
const maxVaryOn = 13

// Offer lets the lane answer the next such request by itself. It does nothing where there is
// no lane (in a test, in another program's server), or where the lane could not repeat the
// answer. The answer must be the one to r's method, target and headers, conditions and
// ranges aside. Offer must be called before the job's ServeHTTP returns.
//
// In a full table, an answer with a query in its key is stored only when it is offered for
// the second time: of very many addresses, most are never asked for again.
func Offer(r *http.Request, a *send.Answer, rule Rule) {
	if observeOffer(r, a, rule) {
		return
	}
	c := sourceOf(r)
	if c.lane == nil || c.info.site == 0 || !c.lane.on() || !rule.valid() {
		return
	}
	if (r.Method != http.MethodGet && r.Method != http.MethodHead) || !strings.HasPrefix(r.RequestURI, "/") {
		return
	}
	if c.info.SuccessOnly && a.Code() >= http.StatusBadRequest {
		return
	}
	if len(c.info.Vary) > 0 {
		rule.VaryOn = slices.Concat(rule.VaryOn, c.info.Vary)
		rule.Negotiated = rule.Negotiated && !slices.ContainsFunc(c.info.Vary, isAcceptEncoding)
	}
	d, v, ok := varyBy(r, &rule)
	if !ok || !d.addGate(c.info.gate) {
		return
	}
	d.strict = rule.strict
	k := key{site: c.info.site, withQuery: rule.WithQuery, target: r.RequestURI}
	if path, _, found := strings.Cut(r.RequestURI, "?"); found && !rule.WithQuery {
		k.target = path
	}
	if c.lane.table.has(k, &d, v, a, rule) {
		return
	}
	// No request for a path that does not match would find its answer.
	if !matchable(k.target) || !c.lane.table.admits(k) || !offerable(a, rule) {
		return
	}
	k.target = strings.Clone(k.target) // it is a part of the request's head, as the values are
	for i, value := range v.values {
		v.values[i] = strings.Clone(value)
	}
	rule.always = c.scope.always()
	if c.info.HeaderRules != nil {
		rule.apply = c.info.HeaderRules()
	}
	if c.info.DropLine != nil && rule.Lines != nil {
		rule.Lines = without(rule.Lines, c.info.DropLine)
	}
	v.response = newResponse(a, rule, c.info.job)
	v.response.noLog = c.info.NoLog
	v.response.gate = newGate(&c.info, rule.always)
	if c.lane.table.put(k, d, v) {
		c.lane.meters.LaneOffers.Add(c.shard, 1)
	}
}

func (r *Rule) valid() bool { return r.Version.Valid() && r.Also.Valid() }

// varyBy returns what a request must have in common with r to get the same answer. ok is
// false when the lane could not compare that.
func varyBy(r *http.Request, rule *Rule) (d demands, v variant, ok bool) {
	if n := min(len(rule.VaryOn), maxVaryOn); n > 0 {
		d.varyOn, v.values = make([]headerID, 0, n), make([]string, 0, n)
	}
	for _, name := range rule.VaryOn {
		id := lookupHeader([]byte(name))
		if id >= numKept {
			if !d.addAbsent(name, id) || len(r.Header[textproto.CanonicalMIMEHeaderKey(name)]) > 0 {
				return d, v, false
			}
			continue
		}
		if id == hdrAcceptEncoding && rule.Negotiated {
			v.negotiated, v.preference = true, negotiate.Of(r.Header[names[id]])
			continue
		}
		value, ok := varyValue(r, name, id)
		switch {
		case !ok:
			return d, v, false
		case slices.Contains(d.varyOn, id):
		case len(d.varyOn) == maxVaryOn:
			return d, v, false
		default:
			d.varyOn = append(d.varyOn, id)
			v.values = append(v.values, value)
		}
	}
	return d, v, true
}

func isAcceptEncoding(name string) bool { return strings.EqualFold(name, names[hdrAcceptEncoding]) }

// varyValue returns the value of a kept header in r, "" when it is absent. ok is false when
// the lane cannot tell requests apart by it.
func varyValue(r *http.Request, name string, id headerID) (value string, ok bool) {
	if id == hdrHost {
		return r.Host, true
	}
	values := r.Header[textproto.CanonicalMIMEHeaderKey(name)]
	if len(values) == 0 {
		return "", true
	}
	secret := id == hdrAuthorization || id == hdrCookie
	return values[0], len(values) == 1 && values[0] != "" && !secret
}

// addAbsent demands that a field does not come whose values the lane does not keep. It
// reports false where that cannot be demanded: fields of the connection may be missing in
// [http.Request.Header] although they came, and "*" stands for more than fields. Of X_Api_Key it
// demands that no X-Api-Key comes: a gate takes one for the other, and no request of the lane
// has the first.
func (d *demands) addAbsent(name string, id headerID) bool {
	if hdrConnection <= id && id <= hdrTE || name == "*" || !field.Token(name) {
		return false
	}
	name = textproto.CanonicalMIMEHeaderKey(field.Fold(name))
	if !slices.Contains(d.absent, name) {
		d.absent = append(d.absent, name)
	}
	return len(d.absent) <= maxVaryOn
}

// addGate is addAbsent for the fields that an access gate looks at; nil: there is none.
func (d *demands) addGate(g *admit.Gate) bool {
	if g == nil {
		return true
	}
	for i := range admit.MaxRates {
		name := g.Header(i)
		if id := lookupHeader([]byte(name)); name != "" && id >= numKept && !d.addAbsent(name, id) {
			return false
		}
	}
	return true
}

// requestInfo is what the server has told the lane about a request that a handler serves.
type requestInfo struct {
	site    uint64
	job     *meter.Job
	gate    *admit.Gate
	trace   *trace.Request // nil: it is not traced
	started RoundTrip      // by a loop, and no handler has taken it; nil: nothing
	Policy
}

// Policy is what the server does with every answer to a request besides the job that makes
// it, and what the lane must do in its place: for instance the operator's rules for headers.
type Policy struct {
	// Vary names request headers on which it depends, besides the job's.
	Vary []string
	// SuccessOnly keeps answers with a status of 400 or more out of the lane: the
	// server replaces them by its own pages.
	SuccessOnly bool
	// HeaderRules returns what changes the header of an answer with a status and a content
	// type. The Date and the fields of Rule.Lines are not in it. What it does may depend
	// only on the site, the request's path, Vary and the answer. It is kept as long as the
	// answer, and called from several goroutines, so it must hold on to nothing of the
	// request. nil: nothing.
	HeaderRules func() func(h http.Header, status int, contentType []string)
	// DropLine reports whether a field of Rule.Lines is left out. nil: none is.
	DropLine func(name string) bool
	// NoLog keeps the answer out of the access log.
	NoLog bool
}

// SetPolicy sets the policy for the answers to a request, after Begin.
func SetPolicy(r *http.Request, a Policy) {
	if t := infoOf(r); t != nil {
		t.Policy = a
	}
}

// SetGate says who may have the answers to a request: the lane asks the gate at each hit.
// nil: everybody.
func SetGate(r *http.Request, g *admit.Gate) {
	if t := infoOf(r); t != nil {
		t.gate = g
	}
}

// SetTrace lets [trace.From] find t in the context of a request, after Begin. nil: the
// request has ended.
func SetTrace(r *http.Request, t *trace.Request) (same *http.Request) {
	if of := infoOf(r); of != nil {
		of.trace = t
	} else if t != nil {
		return r.WithContext(trace.With(r.Context(), t))
	}
	return r
}

// infoOf returns the info of a request, nil if it did not come through a lane.
func infoOf(r *http.Request) *requestInfo {
	if c, ok := r.Context().Value(connKey{}).(*Conn); ok {
		return &c.info
	}
	if o, ok := r.Context().Value(sourceKey{}).(*requestSource); ok {
		return &o.info
	}
	return nil
}

// traceValue is the context's value for [trace.Key].
func (t *requestInfo) traceValue() any {
	if t.trace == nil {
		return nil
	}
	return t.trace
}

// Decline keeps every answer to a request out of the lane, also those that are offered
// later.
func Decline(r *http.Request) {
	if t := infoOf(r); t != nil {
		t.site = 0
	}
}

type connKey struct{}

// WithConn is for http.Server.ConnContext: it returns a context in which Offer and Begin
// find the connection.
func WithConn(ctx context.Context, c *Conn) context.Context {
	return infoContext{Context: ctx, conn: c, info: &c.info}
}

// infoContext is the context of all requests of a connection of HTTP/1.1, which sets conn,
// or of one request over HTTP/2 or HTTP/3, which sets source.
type infoContext struct {
	context.Context
	conn   *Conn
	source *requestSource
	info   *requestInfo
}

// Value implements [context.Context].
func (t infoContext) Value(key any) any {
	switch key.(type) {
	case connKey:
		if t.conn != nil {
			return t.conn
		}
	case sourceKey:
		if t.source != nil {
			return t.source
		}
	case trace.Key:
		return t.info.traceValue()
	}
	return t.Context.Value(key)
}

// withSource returns the context of a request over HTTP/2 or HTTP/3.
func withSource(ctx context.Context, o *requestSource) context.Context {
	return infoContext{Context: ctx, source: o, info: &o.info}
}

// Outside returns r for a server inside another one, whose offers must not be stored under
// the outer one's routes.
func Outside(r *http.Request) *http.Request { return r.WithContext(outside{r.Context()}) }

// outside is a context in which no lane is found.
type outside struct{ context.Context }

// Value implements [context.Context].
func (o outside) Value(key any) any {
	switch key.(type) {
	case connKey, h2Key, streamKey, sourceKey, http3Key, observerKey:
		return nil
	}
	return o.Context.Value(key)
}

// Begin tells the lane that a handler serves a request, before anything else is done with
// it. It returns the request to go on with, and the connection's shard for the counters of
// package meter. From then on [Take] finds what a loop has begun for the request.
func Begin(r *http.Request) (same *http.Request, shard uint32) {
	if c, ok := r.Context().Value(connKey{}).(*Conn); ok {
		c.info, c.started = requestInfo{started: c.started}, nil
		c.posted, c.handled = r.Method == http.MethodPost, true
		return r, c.shard
	}
	if x, ok := r.Context().Value(streamKey{}).(*stream); ok {
		x.source.info = requestInfo{started: x.source.info.started}
		return r, x.source.shard
	}
	if c, ok := r.Context().Value(h2Key{}).(*Conn); ok {
		return r.WithContext(withSource(r.Context(), &requestSource{lane: c.lane, scope: c.scope, shard: c.shard})), c.shard
	}
	if v, ok := r.Context().Value(http3Key{}).(*HTTP3Conn); ok {
		return r.WithContext(withSource(r.Context(), &requestSource{lane: v.lane, scope: v.scope, shard: v.shard})), v.shard
	}
	return r, 0
}

// SetJob tells the lane which site and job serve a request, after Begin and before the job
// runs: its offers are stored under the site's number. 0: the lane must not repeat them.
func SetJob(r *http.Request, site uint64, job *meter.Job) {
	if t := infoOf(r); t != nil {
		t.site, t.job = site, job
	}
}

// requestSource is what Offer must know of the connection that a request came on.
type requestSource struct {
	info  requestInfo
	lane  *Lane // nil: there is no lane
	scope *Scope
	shard uint32
}

// sourceOf returns the source of a request.
func sourceOf(r *http.Request) requestSource {
	if c, ok := r.Context().Value(connKey{}).(*Conn); ok {
		return requestSource{info: c.info, lane: c.lane, scope: c.scope, shard: c.shard}
	}
	if o, ok := r.Context().Value(sourceKey{}).(*requestSource); ok {
		return *o
	}
	return requestSource{}
}
