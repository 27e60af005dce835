package proxy

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"millrace/internal/lane"
	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
)

// Canary sends some of the visitors to another version of the upstream, to try it
// with real traffic.
type Canary struct {
	// To are its addresses, as in "to". For everything else the keys of the route
	// hold; weights are of the route's own addresses. Required.
	To []string `yaml:"to"`
	// Share is how many of the visitors go there, in percent: 5, or 0.5. Who does
	// goes by the client's address, of IPv6 by its network of 64 bits, so that a
	// visitor stays with one version, on every machine and after a restart. Default 0.
	Share float64 `yaml:"share"`
	// Cookie has visitors stay by a cookie of this name instead, also when their
	// address changes. A greater share moves only visitors who were not there before.
	Cookie string `yaml:"cookie"`
	// Header is a field with which a request chooses for itself: "always" goes
	// there, "never" does not, whatever the share.
	Header string `yaml:"header"`
}

// buckets are how finely visitors are divided: a hundredth of a percent.
const buckets = 10000

// check puts what is wrong with a canary into faults, by its key.
func (c *Canary) check(o Options, faults map[string]error) {
	if len(c.To) == 0 {
		if c.Share != 0 || c.Cookie != "" || c.Header != "" {
			faults["canary.to"] = errors.New("a canary needs an address: to: http://127.0.0.1:5001")
		}
		return
	}
	for key, err := range o.OfCanary().Options.Check() {
		if strings.HasPrefix(key, "to") { // the others are the route's
			faults["canary."+key] = err
		}
	}
	if !(c.Share >= 0 && c.Share <= 100) {
		faults["canary.share"] = fmt.Errorf("%v is not a percentage: write 5 for one visitor in twenty", c.Share)
	}
	if c.Header != "" && !field.Token(c.Header) {
		faults["canary.header"] = fmt.Errorf("%q is not the name of a header field", c.Header)
	}
	if c.Cookie != "" && (!field.Token(c.Cookie) || strings.HasPrefix(c.Cookie, "__")) {
		faults["canary.cookie"] = fmt.Errorf("%q is not a name for a cookie: use letters, digits and -", c.Cookie)
	}
	if c.Share == 0 && c.Header == "" {
		faults["canary.share"] = errors.New("nobody would go there: give a share, or a header with which requests choose")
	}
}

// OfCanary are the options of a proxy to the canary alone.
func (o Options) OfCanary() Options {
	o.To, o.Weights, o.Canary, o.Mirror = o.Canary.To, nil, Canary{}, Mirror{}
	return o
}

// Split divides visitors between two versions of an upstream.
type Split struct {
	usual, canary *Handler
	below         int // of the buckets
	cookie        string
	header        string // in its canonical form
}

// NewSplit returns the job of a route with a canary: a proxy made by o, and one by
// o.OfCanary.
func NewSplit(o Options, usual, canary *Handler) *Split {
	return &Split{usual, canary, int(o.Canary.Share*buckets/100 + 0.5), o.Canary.Cookie, http.CanonicalHeaderKey(o.Canary.Header)}
}

// ServeHTTP passes r on to one of the two.
func (s *Split) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := heads.Get().(*message.Request)
	defer heads.Put(q)
	Head(q, r)
	if g, started := lane.Take[*given](r, s); started {
		g.to.Serve(w, r, q, g)
		return
	}
	to, g := s.choose(q)
	if g != nil {
		to.Serve(w, r, q, g)
		return
	}
	to.Serve(w, r, q, nil)
}

// Pass implements [lane.Passer].
func (s *Split) Pass(q *lane.ForwardRequest) lane.RoundTrip {
	to, g := s.choose(q.Head)
	if g == nil {
		return to.Pass(q)
	}
	if g.RoundTrip = to.PassEdited(q, g); g.RoundTrip == nil {
		return nil
	}
	return g
}

// choose returns which version a request goes to, and what gives the visitor a cookie; nil:
// there is none to give.
func (s *Split) choose(q *message.Request) (to *Handler, g *given) {
	if s.header != "" {
		switch q.Fields.Join(s.header) {
		case "always":
			return s.canary, nil
		case "never":
			return s.usual, nil
		}
	}
	if s.cookie == "" {
		return s.of(bucketOf(s.usual.client(q))), nil
	}
	for value := range q.Fields.Cookies(s.cookie) {
		if n, err := strconv.Atoi(value); err == nil && n >= 0 && n < buckets {
			return s.of(n), nil
		}
	}
	bucket := rand.IntN(buckets)
	to = s.of(bucket)
	return to, &given{split: s, to: to, bucket: bucket, secure: q.Secure}
}

func (s *Split) of(bucket int) *Handler {
	if bucket < s.below {
		return s.canary
	}
	return s.usual
}

// given is the bucket of a new visitor, who gets a cookie for it. On an event loop it wraps
// the round trip, so that a handler which goes on with it draws no other.
type given struct {
	lane.RoundTrip
	split  *Split
	to     *Handler
	bucket int
	secure bool
}

// Owner is for [lane.Take].
func (g *given) Owner() *Split { return g.split }

// Inner is for [lane.Take].
func (g *given) Inner() lane.RoundTrip { return g.RoundTrip }

// Edit implements [Editor].
func (g *given) Edit(_ int, lines []field.Line) []field.Line {
	c := http.Cookie{Name: g.split.cookie, Value: strconv.Itoa(g.bucket), Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: g.secure}
	return append(lines, field.Line{Name: "Set-Cookie", Value: c.String()})
}

// bucketOf is a client's bucket; all clients on UNIX sockets have the same.
func bucketOf(client netip.Addr) int {
	h := fnv.New64a()
	if client.Is4() {
		_, _ = h.Write(client.AsSlice()) // which never fails
	} else if client.IsValid() {
		_, _ = h.Write(client.AsSlice()[:8])
	}
	return int(h.Sum64() % buckets)
}
