// Package admit decides which clients are served, and how often: by lists of addresses,
// rate limits (by address, by header field or for all clients together), traps for
// scanners, and proofs that crawlers must bring.
//
// A [Gate] has the rules of one route. The fast lane asks it as well as the server does
// before a handler. Counts are in one [Table] of the whole process, so that memory is
// bounded once, whatever a config names.
package admit

import (
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"millrace/internal/access/challenge"
	"millrace/internal/wire/message"
	"millrace/internal/wire/pages"
)

// MaxRates is how many limits one request may be counted by: its site's and its
// route's.
const MaxRates = 2

// Rules are the rules of a gate. The zero Rules admit every request.
type Rules struct {
	Lists    *Lists
	Trap     *Trap
	Suspects *Suspects
	Rates    []*Limit // at most MaxRates
}

// A Gate decides about requests. A nil one admits every request. It is safe for concurrent
// use.
type Gate struct {
	rules Rules
	open  *Gate // the same gate without challenges
}

// New returns the gate of rules. It is nil where there is nothing to decide.
func New(r Rules) *Gate {
	if r.Lists == nil && r.Trap == nil && r.Suspects == nil && len(r.Rates) == 0 {
		return nil
	}
	g := &Gate{rules: r}
	if r.Suspects != nil {
		r.Suspects = nil
		g.open = New(r)
	}
	return g
}

// At returns the gate for a path: on some, such as /robots.txt, no proof is needed. raw is
// [url.URL.RawPath].
func (g *Gate) At(path, raw string) *Gate {
	if g != nil && g.rules.Suspects != nil && never(path, raw) {
		return g.open
	}
	return g
}

// Header returns the name of the field that limit number i counts by; "": it counts by
// address or for all clients.
func (g *Gate) Header(i int) string {
	if i < len(g.rules.Rates) {
		return g.rules.Rates[i].header
	}
	return ""
}

// LooksAtAgent reports whether the gate needs to know the User-Agent.
func (g *Gate) LooksAtAgent() bool { return g.rules.Suspects != nil && g.rules.Suspects.agents != nil }

// TakesProof reports whether a request brings a proof: then [Gate.TakeProof] answers it, and
// the gate is not asked.
func (g *Gate) TakesProof(method, query string) bool {
	return g.rules.Suspects != nil && challenge.Proves(method, query)
}

// A Request has the parts of a request that a gate needs.
type Request struct {
	Client netip.Addr // the zero address behind a UNIX socket
	Now    time.Time
	Values [MaxRates][]byte // of the fields that Header names; empty where there are none
	more   [MaxRates][]string
	Agent  []byte // User-Agent, where LooksAtAgent
	// Waits: the decision may take a moment, where other machines have a part in it. An
	// event loop must not wait.
	Waits bool

	cookies []string // with the proofs it has
}

// About returns what the gate needs to know of a request by a client.
func (g *Gate) About(q *message.Request, client netip.Addr, now time.Time) Request {
	about := Request{Client: client, Now: now}
	for i, l := range g.rules.Rates {
		if l.header != "" {
			about.Values[i], about.more[i] = valuesOf(q.Fields, l.header)
		}
	}
	if g.rules.Suspects != nil {
		about.cookies = q.Fields.Values("Cookie")
	}
	if g.LooksAtAgent() {
		about.Agent = []byte(q.Value("User-Agent"))
	}
	return about
}

// A Verdict is a gate's decision. The zero one admits the request.
type Verdict struct {
	Denied bool          // the address may not ask
	Limit  *Limit        // the limit that the client has used up; nil: none
	Wait   time.Duration // until it may ask again
	Caught bool          // the reason is that the client has requested a trap
	Proof  string        // why a proof is needed; "" for none
	Later  bool          // nothing is decided, nor counted: ask with Request.Waits
}

// Passes reports whether the request is admitted.
func (v Verdict) Passes() bool { return !v.Denied && v.Limit == nil && v.Proof == "" && !v.Later }

// Ask decides about a request, and counts it if it is admitted.
func (g *Gate) Ask(q *Request) Verdict {
	o := &g.rules
	if o.Lists != nil && !o.Lists.Allow(q.Client) {
		return Verdict{Denied: true}
	}
	if o.Trap != nil {
		if v := o.Trap.ask(q.Client, q.Now); !v.Passes() {
			return v
		}
	}
	if o.Suspects != nil {
		if why := o.Suspects.why(q); why != "" {
			return Verdict{Proof: why}
		}
	}
	if !q.Waits {
		for i, l := range o.Rates { // before any of them counts the request
			if l.mustBorrow(q.Client, q.Now, q.Values[i], q.more[i]) {
				return Verdict{Later: true}
			}
		}
	}
	for i, l := range o.Rates {
		switch wait, later := l.takeEach(q.Client, q.Now, q.Values[i], q.more[i], q.Waits); {
		case wait > 0:
			return Verdict{Limit: l, Wait: wait}
		case later:
			return Verdict{Later: true}
		}
	}
	return Verdict{}
}

// Admit decides about a request before its handler. It answers a request that is not
// admitted, and one that brings a proof; answered reports whether it did.
func (g *Gate) Admit(w http.ResponseWriter, r *http.Request, client netip.Addr) (v Verdict, answered bool) {
	var q message.Request
	q.Of(r)
	now := time.Now()
	if g.TakesProof(q.Method, q.Query) {
		return g.TakeProof(w, r, client, now), true
	}
	about := g.About(&q, client, now)
	about.Waits = true
	if v = g.Ask(&about); v.Passes() {
		return v, false
	}
	g.Answer(w, r, client, now, v)
	return v, true
}

// TakeProof answers a request that brings a proof.
func (g *Gate) TakeProof(w http.ResponseWriter, r *http.Request, client netip.Addr, now time.Time) (v Verdict) {
	if g.open != nil {
		var q message.Request
		q.Of(r)
		about := g.open.About(&q, client, now)
		about.Waits = true
		v = g.open.Ask(&about)
	}
	if !v.Passes() {
		v.Refuse(w, r)
		return v
	}
	ownPage(w)
	g.rules.Suspects.asks.Take(w, r, client, now)
	return v
}

// Answer answers a request that is not admitted, as the verdict says.
func (g *Gate) Answer(w http.ResponseWriter, r *http.Request, client netip.Addr, now time.Time, v Verdict) {
	if v.Proof == "" {
		v.Refuse(w, r)
		return
	}
	status := http.StatusForbidden
	if v.Proof == whyRate {
		status = http.StatusTooManyRequests
	}
	ownPage(w)
	g.rules.Suspects.asks.Ask(w, r, v.Proof, client, now, status)
}

// ownPage keeps the site's pages for errors, and what it adds to the header of
// answers, away from a page that cannot do without its own.
func ownPage(w http.ResponseWriter) {
	if o, ok := w.(interface{ OwnPage() }); ok {
		o.OwnPage()
	}
}

// Seconds is how long to wait before the next request, for Retry-After.
func (v Verdict) Seconds() int64 { return int64((v.Wait + time.Second - 1) / time.Second) }

// Refuse answers a request that is not admitted, and for which no proof would help.
func (v Verdict) Refuse(w http.ResponseWriter, r *http.Request) {
	if v.Denied {
		pages.Error(w, r, http.StatusForbidden, "Your address may not see this page. If you think it should, ask the owner of the site.")
		return
	}
	h, seconds := w.Header(), v.Seconds()
	h.Set("Retry-After", strconv.FormatInt(seconds, 10))
	h.Set("RateLimit-Policy", v.Limit.policy)
	h.Set("RateLimit", fmt.Sprintf("%q;r=0;t=%d", v.Limit.name, seconds))
	pages.Error(w, r, http.StatusTooManyRequests, "")
}
