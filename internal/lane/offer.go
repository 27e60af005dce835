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

	"millrace/internal/admit"
	"millrace/internal/meter"
	"millrace/internal/send"
	"millrace/internal/trace"
)

// Generation counts the versions of what several answers are made of: a file's
// content, a purge tag. Invalidate ends the life of every answer offered under
// an older version, at once, also of answers that were prepared before and are
// offered later. The zero value is ready.
type Generation struct{ n atomic.Uint64 }

// Version is a generation's state at one moment. Take it before reading what
// the answer is made of. The zero Version is always valid.
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

// Rule says for which requests, and how long, an offered answer is right.
type Rule struct {
	// VaryOn names every request header that had a say in choosing the answer,
	// those of its Vary among them. A request in which one of them differs is
	// not answered by the lane. Accept-Encoding is compared as the set of
	// codings it names. An answer that varies on Authorization or Cookie is only
	// ever given to requests without them. A header that the lane does not know
	// must have been absent: a request that has it goes to net/http.
	VaryOn []string
	// Version must have been taken before the answer's content was read.
	Version Version
	// Also is a second version that must be valid: Version may stand for one
	// object, Also for a purge of many.
	Also Version
	// Lines appends the header lines, each with its line end, that change from
	// second to second (Age, Cache-Status), for the time now in Unix seconds.
	// It is called at most about once a second, and must be safe to call at
	// once from several connections; what it says must follow from the Answer,
	// the versions and Expires. The answer's Header then has a Date of its own,
	// which stays as it is (RFC 9111, 5.1). nil: the Date is this second's.
	Lines func(b []byte, now int64) []byte
	// Expires ends the answer's life; zero means only the versions do.
	Expires time.Time
	// WithQuery makes the query part of the key; without it the answer
	// holds for the path whatever the query says.
	WithQuery bool

	always       http.Header // of the scope that the request came by
	applyHeaders func(h http.Header, status int, contentType []string)
}

// without is a Rule's Lines but for fields of which drop says so.
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

// maxVaryOn bounds the headers besides Accept-Encoding that one answer may vary
// on: each is compared on every hit, at a nanosecond or two. A cache varies on
// Host, Authorization, Cookie, Cache-Control, Pragma, Origin and two
// or three that the answer's Vary names.
const maxVaryOn = 12

// Offer lets the fast lane answer the next such request itself. It does
// nothing where there is no lane (a test, another program's server)
// and declines what the lane could not honour. The answer must be the one that
// r's method, target and headers led to, conditions and ranges aside; Offer
// must be called before the job's ServeHTTP returns.
//
// Once the table is full, an answer with a query in its key is taken only when
// it is offered for the second time: of very many addresses, most are never
// asked for again.
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
	}
	varyOn, v, ok := varyBy(r, rule.VaryOn)
	if !ok {
		return
	}
	k := key{site: c.info.site, withQuery: rule.WithQuery, target: r.RequestURI}
	if path, _, found := strings.Cut(r.RequestURI, "?"); found && !rule.WithQuery {
		k.target = path
	}
	if c.lane.table.has(k, v, a, rule) {
		return
	}
	// A path that does not match can be written in many ways, and no request
	// would ever find it.
	if !matchable(k.target) || !c.lane.table.admits(k) || !offerable(a, rule) {
		return
	}
	rule.always, rule.applyHeaders = c.scope.always(), c.info.ApplyHeaders
	if c.info.DropLine != nil && rule.Lines != nil {
		rule.Lines = without(rule.Lines, c.info.DropLine)
	}
	v.response = newResponse(a, rule, c.info.job)
	v.response.noLog = c.info.NoLog
	if v.response.gate, ok = newGate(&c.info, rule.always); !ok {
		return
	}
	if c.lane.table.put(k, varyOn, v) {
		c.lane.meters.LaneOffers.Add(c.shard, 1)
	}
}

func (r *Rule) valid() bool { return r.Version.Valid() && r.Also.Valid() }

// varyBy finds what requests must have in common with r to get the same
// answer. ok is false when the lane could not tell.
func varyBy(r *http.Request, names []string) (varyOn []headerID, v variant, ok bool) {
	v.anyCoding = true
	if n := min(len(names), maxVaryOn); n > 0 {
		varyOn, v.values = make([]headerID, 0, n), make([]string, 0, n)
	}
	for _, name := range names {
		id, value, ok := varyValue(r, name)
		switch {
		case !ok:
			return nil, v, false
		case id == hdrRefuse || slices.Contains(varyOn, id):
		case id == hdrAcceptEncoding:
			v.anyCoding, v.coding = false, codingAbsent
			if value != "" {
				v.coding = codings([]byte(value))
			}
			if v.coding == codingUnknown {
				return nil, v, false
			}
		case len(varyOn) == maxVaryOn:
			return nil, v, false
		default:
			varyOn = append(varyOn, id)
			v.values = append(v.values, value)
		}
	}
	return varyOn, v, true
}

// varyValue finds a header by name and its one value in r, "" when it is
// absent. ok is false when the lane cannot tell requests apart by it.
func varyValue(r *http.Request, name string) (id headerID, value string, ok bool) {
	id = lookupHeader([]byte(name))
	if id == hdrHost {
		return id, r.Host, true
	}
	values := r.Header[textproto.CanonicalMIMEHeaderKey(name)]
	switch {
	case id == hdrRefuse: // no request with such a header is the lane's
		return id, "", len(values) == 0 && name != "*"
	case id >= numKept:
		return id, "", false
	case len(values) == 0:
		return id, "", true
	}
	secret := id == hdrAuthorization || id == hdrCookie
	return id, values[0], len(values) == 1 && values[0] != "" && !secret
}

// requestInfo is what the server knows of the request that net/http is answering.
type requestInfo struct {
	site  uint64
	job   *meter.Job
	gate  *admit.Gate
	trace *trace.Request // nil: nobody follows it
	Policy
}

// Policy is what the server has around the job that answers a request.
type Policy struct {
	// Vary are request headers that had a say before the job ran.
	Vary []string
	// SuccessOnly keeps answers from the lane whose status is 400 or more: the
	// server replaces them.
	SuccessOnly bool
	// ApplyHeaders changes the header of an answer with a status and a type of content,
	// in which the Date and what else changes by the second are missing. What it
	// does must follow from the site, the request's path, Vary and the answer.
	// nil: nothing.
	ApplyHeaders func(h http.Header, status int, contentType []string)
	// DropLine reports whether a field that changes by the second is left out. nil: none is.
	DropLine func(name string) bool
	// NoLog keeps the answer out of the access log.
	NoLog bool
}

// SetPolicy says more of a request that has begun.
func SetPolicy(r *http.Request, a Policy) {
	if t := infoOf(r); t != nil {
		t.Policy = a
	}
}

// SetGate says whom the answers to a request are for: the lane asks the gate at each
// hit. nil: everybody.
func SetGate(r *http.Request, g *admit.Gate) {
	if t := infoOf(r); t != nil {
		t.gate = g
	}
}

// SetTrace lets [trace.From] find t in the context of a request that has begun. nil:
// the request has ended.
func SetTrace(r *http.Request, t *trace.Request) (same *http.Request) {
	if of := infoOf(r); of != nil {
		of.trace = t
	} else if t != nil {
		return r.WithContext(trace.With(r.Context(), t))
	}
	return r
}

// infoOf is the ticket of a request, nil if it did not come by a lane.
func infoOf(r *http.Request) *requestInfo {
	if c, ok := r.Context().Value(connKey{}).(*Conn); ok {
		return &c.info
	}
	if o, ok := r.Context().Value(sourceKey{}).(*requestSource); ok {
		return &o.info
	}
	return nil
}

// traceValue is the value of [trace.Key] in a context.
func (t *requestInfo) traceValue() any {
	if t.trace == nil {
		return nil
	}
	return t.trace
}

// Decline keeps every answer to a request from the lane, also those that are
// offered later.
func Decline(r *http.Request) {
	if t := infoOf(r); t != nil {
		t.site = 0
	}
}

type connKey struct{}

// WithConn is for http.Server.ConnContext: it lets Offer and Begin find the
// connection.
func WithConn(ctx context.Context, c *Conn) context.Context {
	return infoContext{Context: ctx, conn: c, info: &c.info}
}

// infoContext is the context of all requests of a connection, or of one request over
// HTTP/2 or HTTP/3: conn or origin is nil.
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

// withSource is the context of one request that came by o.
func withSource(ctx context.Context, o *requestSource) context.Context {
	return infoContext{Context: ctx, source: o, info: &o.info}
}

// Outside is r for a server inside another one: what it offers must not be taken
// for answers of the other's routes.
func Outside(r *http.Request) *http.Request { return r.WithContext(outside{r.Context()}) }

// outside is a context in which no lane is found.
type outside struct{ context.Context }

// Value implements [context.Context].
func (o outside) Value(key any) any {
	switch key.(type) {
	case connKey, h2Key, sourceKey, http3Key, observerKey:
		return nil
	}
	return o.Context.Value(key)
}

// Begin tells the lane whose answer the request on this connection will be,
// before the job runs: offers made for it are filed under that site. site is
// the number of the configuration that this request is answered by. It returns
// the connection's shard for the counters of package meter.
func Begin(r *http.Request, site uint64, job *meter.Job) (same *http.Request, shard uint32) {
	if c, ok := r.Context().Value(connKey{}).(*Conn); ok {
		c.info = requestInfo{site: site, job: job}
		return r, c.shard
	}
	if c, ok := r.Context().Value(h2Key{}).(*Conn); ok {
		o := &requestSource{info: requestInfo{site: site, job: job}, lane: c.lane, scope: c.scope, shard: c.shard}
		if mark := r.Header[roundTripField]; mark != nil && c.h2host != nil {
			o.roundTrip = c.h2host.handoffs.remove(mark)
			delete(r.Header, roundTripField)
		}
		return r.WithContext(withSource(r.Context(), o)), c.shard
	}
	if v, ok := r.Context().Value(http3Key{}).(*HTTP3Conn); ok {
		return r.WithContext(withSource(r.Context(), &requestSource{info: requestInfo{site: site, job: job}, lane: v.lane, scope: v.scope, shard: v.shard})), v.shard
	}
	return r, 0
}

// requestSource is where a request that the lane saw came by, as far as Offer needs it.
type requestSource struct {
	info  requestInfo
	lane  *Lane // nil: it came by another way
	scope *Scope
	shard uint32

	roundTrip *RoundTrip // what its handler is to go on with; nil: nothing
}

// sourceOf returns the origin of a request.
func sourceOf(r *http.Request) requestSource {
	if c, ok := r.Context().Value(connKey{}).(*Conn); ok {
		return requestSource{info: c.info, lane: c.lane, scope: c.scope, shard: c.shard}
	}
	if o, ok := r.Context().Value(sourceKey{}).(*requestSource); ok {
		return *o
	}
	return requestSource{}
}
