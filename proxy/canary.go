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
	"millrace/internal/wire/netset"
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
	chosen := ""
	if s.header != "" {
		chosen = strings.Join(r.Header[s.header], ",")
	}
	to, known := s.choose(chosen, r.Header["Cookie"], s.usual.remote(r))
	if known {
		to.ServeHTTP(w, r)
		return
	}
	bucket := rand.IntN(buckets)
	s.of(bucket).ServeHooked(w, r, func(res *http.Response) {
		c := http.Cookie{Name: s.cookie, Value: strconv.Itoa(bucket), Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: r.TLS != nil}
		res.Header.Add("Set-Cookie", c.String())
	})
}

// Pass implements [lane.Passer]. It forwards only requests whose version is known from
// the request alone; a client that is to get a cookie goes to ServeHTTP.
func (s *Split) Pass(q *lane.ForwardRequest) lane.RoundTrip {
	client := q.Client.String()
	if from := s.usual.senderOf(q); from.trusted && from.client != q.Head.Peer {
		client = netip.AddrPortFrom(from.client, 0).String() // as remote has it
	}
	var cookies []string
	if s.cookie != "" {
		for i := range q.Head.Fields {
			if l := &q.Head.Fields[i]; l.Name == "Cookie" {
				cookies = append(cookies, l.Value)
			}
		}
	}
	chosen := ""
	if s.header != "" {
		chosen = q.Head.Value(s.header)
	}
	to, known := s.choose(chosen, cookies, client)
	if !known {
		return nil
	}
	return to.Pass(q)
}

// choose returns which version a request goes to. known is false where that is still
// to be drawn, and the visitor to be given a cookie.
func (s *Split) choose(chosen string, cookies []string, client string) (to *Handler, known bool) {
	switch chosen {
	case "always":
		return s.canary, true
	case "never":
		return s.usual, true
	}
	if s.cookie == "" {
		return s.of(bucketOf(client)), true
	}
	has := http.Request{Header: http.Header{"Cookie": cookies}} // which reads on behind one that is malformed
	for _, c := range has.CookiesNamed(s.cookie) {
		if n, err := strconv.Atoi(c.Value); err == nil && n >= 0 && n < buckets {
			return s.of(n), true
		}
	}
	return nil, false
}

func (s *Split) of(bucket int) *Handler {
	if bucket < s.below {
		return s.canary
	}
	return s.usual
}

// bucketOf is a client's bucket by its address, with a port; all clients on UNIX
// sockets have the same.
func bucketOf(client string) int {
	h := fnv.New64a()
	if a := netset.Peer(client); a.Is4() {
		_, _ = h.Write(a.AsSlice()) // which never fails
	} else if a.IsValid() {
		_, _ = h.Write(a.AsSlice()[:8])
	}
	return int(h.Sum64() % buckets)
}
