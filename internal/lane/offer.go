package lane

import (
	"context"
	"net/http"
	"net/textproto"
	"strings"
	"sync/atomic"
	"time"

	"millrace/internal/meter"
	"millrace/internal/send"
)

// Generation is what several answers stand or fall with: a file's content, a
// purge tag. Void ends the life of every answer offered under it, at once,
// also of offers that were prepared before and come in later. The zero value
// is ready.
type Generation struct{ n atomic.Uint64 }

// Mark is a generation's state at one moment. Take it before reading what the
// answer is made of. The zero Mark never falls.
type Mark struct {
	gen *Generation
	at  uint64
}

// Now returns the current mark.
func (g *Generation) Now() Mark { return Mark{g, g.n.Load()} }

// Void makes every mark taken so far invalid.
func (g *Generation) Void() { g.n.Add(1) }

// Valid reports whether the generation is still the one the mark was taken in.
func (m Mark) Valid() bool { return m.gen == nil || m.gen.n.Load() == m.at }

// Rule says for which requests, and how long, an offered answer is right.
type Rule struct {
	// Consulted names, canonically, every request header that had a say in
	// choosing the answer. A request in which one of them differs is not
	// answered by the lane. Accept-Encoding is compared as the set of codings
	// it names. An answer for which Authorization or Cookie was consulted is
	// only ever given to requests without them.
	Consulted []string
	// Mark must have been taken before the answer's content was read.
	Mark Mark
	// Also is a second mark that the answer falls with: Mark may stand for one
	// object, Also for a purge of many. The zero Mark never falls.
	Also Mark
	// Lines appends the header lines, each with its line end, that change from
	// second to second (Age, Cache-Status), for the time now in Unix seconds.
	// It is called at most once a second, and must be safe to call at once from
	// several connections. The answer's Header then has a Date of its own,
	// which stays as it is (RFC 9111, 5.1). nil: the Date is this second's.
	Lines func(b []byte, now int64) []byte
	// Expires ends the answer's life; zero means only Mark does.
	Expires time.Time
	// WithQuery makes the query part of the key; without it the answer
	// holds for the path whatever the query says.
	WithQuery bool
}

// maxConsulted bounds the headers besides Accept-Encoding that one answer may
// depend on: each is compared on every hit.
const maxConsulted = 4

// Offer lets the fast lane answer the next such request itself. It does
// nothing where there is no lane (a test, HTTP/2, another program's server)
// and declines what the lane could not honour. The answer must be the one that
// r's method, target and headers led to, conditions and ranges aside; Offer
// must be called before the job's ServeHTTP returns.
func Offer(r *http.Request, a *send.Answer, rule Rule) {
	c, _ := r.Context().Value(connKey{}).(*Conn)
	if c == nil || c.ticket.site == 0 || !c.lane.on() || !rule.Mark.Valid() {
		return
	}
	if (r.Method != http.MethodGet && r.Method != http.MethodHead) || !strings.HasPrefix(r.RequestURI, "/") || !offerable(a) {
		return
	}
	v := variant{anyCoding: true}
	var consulted []headerID
	for _, name := range rule.Consulted {
		id, value, ok := consultedValue(r, name)
		switch {
		case !ok:
			return
		case id == hdrAcceptEncoding:
			v.anyCoding, v.coding = false, codingAbsent
			if value != "" {
				v.coding = codings([]byte(value))
			}
			if v.coding == codingUnknown {
				return
			}
		default:
			consulted = append(consulted, id)
			v.values = append(v.values, value)
		}
	}
	if len(consulted) > maxConsulted {
		return
	}
	k := key{site: c.ticket.site, withQuery: rule.WithQuery}
	k.target = r.RequestURI
	if path, _, found := strings.Cut(r.RequestURI, "?"); found && !rule.WithQuery {
		k.target = path
	}
	if !matchable(k.target) {
		return // no request would ever find it, and there are many ways to write one path
	}
	if c.lane.table.holds(k, v, a, rule) {
		return
	}
	v.response = newResponse(a, rule, c.ticket.job)
	if c.lane.table.put(k, consulted, v) {
		c.lane.meters.LaneOffers.Add(c.shard, 1)
	}
}

// matchable reports whether match can accept a request for this target.
func matchable(target string) bool {
	path, query, _ := strings.Cut(target, "?")
	for i := range len(path) {
		if class[path[i]]&isPath == 0 {
			return false
		}
	}
	for i := range len(query) {
		if class[query[i]]&isQuery == 0 {
			return false
		}
	}
	return len(target) < maxHead
}

// offerable reports whether an answer can be replayed as bytes.
func offerable(a *send.Answer) bool {
	for _, name := range []string{"Set-Cookie", "Connection", "Date", "Trailer", "Transfer-Encoding"} {
		if _, there := a.Header[name]; there {
			return false
		}
	}
	return a.Header.Get("Content-Length") != ""
}

// consultedValue finds a header by name and its one value in r, "" when it is
// absent. ok is false when the lane cannot tell requests apart by it.
func consultedValue(r *http.Request, name string) (id headerID, value string, ok bool) {
	id = lookupHeader([]byte(name))
	if id >= numKept {
		return id, "", false
	}
	if id == hdrHost {
		return id, r.Host, true
	}
	values := r.Header[textproto.CanonicalMIMEHeaderKey(name)]
	if len(values) == 0 {
		return id, "", true
	}
	secret := id == hdrAuthorization || id == hdrCookie
	return id, values[0], len(values) == 1 && values[0] != "" && !secret
}

// ticket is what the server knows of the request that net/http is answering.
type ticket struct {
	site uint64
	job  *meter.Job
}

type connKey struct{}

// WithConn is for http.Server.ConnContext: it lets Offer and Begin find the
// connection.
func WithConn(ctx context.Context, c *Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// Begin tells the lane whose answer the request on this connection will be,
// before the job runs: offers made for it are filed under that site. site is
// the number of the configuration that this request is answered by. It returns
// the connection's shard for the counters of package meter.
func Begin(r *http.Request, site uint64, job *meter.Job) (shard uint32) {
	if c, ok := r.Context().Value(connKey{}).(*Conn); ok {
		c.ticket = ticket{site, job}
		return c.shard
	}
	return 0
}
