// Package admit decides who may ask, and how often: addresses that are allowed
// and denied, limits of requests by address, by header field or for all
// clients together, traps for those who look for holes, and proofs that are asked
// of what looks like a crawler.
//
// A [Gate] is what one route asks of each request, in the fast lane as well as
// before a handler. What it counts is in the [Table] that the whole process has,
// so that memory is bounded once, whatever a config names.
package admit

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"millrace/internal/access/challenge"
)

// MaxRates is how many limits one request may be counted by: its site's and its
// route's.
const MaxRates = 2

// Rules are what a gate asks. The zero ones let everybody pass.
type Rules struct {
	Lists    *Lists
	Trap     *Trap
	Suspects *Suspects
	Rates    []*Limit // at most MaxRates
}

// A Gate decides about requests. A nil one lets everybody pass. It is safe for
// concurrent use.
type Gate struct {
	rules Rules
	open  *Gate // the same without suspects
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

// At is the gate for a path: at some nobody is asked for a proof. raw is how it came, if
// that is not as it would be escaped here: see [url.URL].
func (g *Gate) At(path, raw string) *Gate {
	if g != nil && g.rules.Suspects != nil && never(path, raw) {
		return g.open
	}
	return g
}

// Header is the name of the field that the limit number i counts by; "" where it
// needs none.
func (g *Gate) Header(i int) string {
	if i < len(g.rules.Rates) {
		return g.rules.Rates[i].header
	}
	return ""
}

// LooksAtAgent reports whether the gate needs to know the User-Agent.
func (g *Gate) LooksAtAgent() bool { return g.rules.Suspects != nil && g.rules.Suspects.agents != nil }

// TakesProof reports whether a request may be one that brings a proof, which only
// [Gate.Admit] can judge.
func (g *Gate) TakesProof(method, query string) bool {
	return g.rules.Suspects != nil && challenge.ProvesBy(method, query)
}

// A Request is what a gate looks at.
type Request struct {
	Client netip.Addr // the zero address behind a UNIX socket
	Now    time.Time
	Values [MaxRates][]byte // of the fields that Header names; empty where there are none
	more   [MaxRates][]string
	Agent  []byte // User-Agent, where LooksAtAgent

	from *http.Request // for the proofs it brings; nil: none
}

// A Verdict is what a gate says about a request. The zero one lets it pass.
type Verdict struct {
	Denied bool          // the address may not ask
	Limit  *Limit        // of which the client has had its share; nil: none
	Wait   time.Duration // until it may ask again
	Caught bool          // either because it has asked for a trap
	Proof  string        // why a proof is needed; "" for none
}

// Passes reports whether the request may have its answer.
func (v Verdict) Passes() bool { return !v.Denied && v.Limit == nil && v.Proof == "" }

// Ask decides about a request and counts it if it passes.
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
	for i, l := range o.Rates {
		if wait := l.takeEach(q.Client, q.Now, q.Values[i], q.more[i]); wait > 0 {
			return Verdict{Limit: l, Wait: wait}
		}
	}
	return Verdict{}
}

// Admit decides about a request that a handler has, and answers it if it may not
// pass, or if it is about a proof. answered is what it did.
func (g *Gate) Admit(w http.ResponseWriter, r *http.Request, client netip.Addr) (v Verdict, answered bool) {
	q := Request{Client: client, Now: time.Now(), from: r}
	for i := range q.Values {
		if name := g.Header(i); name != "" {
			if values := valuesOf(r.Header, name); len(values) > 0 {
				q.Values[i], q.more[i] = []byte(values[0]), values[1:]
			}
		}
	}
	suspects := g.rules.Suspects
	if suspects != nil && challenge.Proves(r) {
		v = Verdict{}
		if g.open != nil {
			v = g.open.Ask(&q)
		}
		if v.Passes() {
			ownPage(w)
			suspects.asks.Take(w, r, client, q.Now)
			return v, true
		}
		v.Refuse(w)
		return v, true
	}
	if g.LooksAtAgent() {
		q.Agent = []byte(r.Header.Get("User-Agent"))
	}
	if v = g.Ask(&q); v.Passes() {
		return v, false
	}
	if v.Proof == "" {
		v.Refuse(w)
		return v, true
	}
	status := http.StatusForbidden
	if v.Proof == whyRate {
		status = http.StatusTooManyRequests
	}
	ownPage(w)
	suspects.asks.Ask(w, r, v.Proof, client, q.Now, status)
	return v, true
}

// ownPage keeps the site's pages for errors, and what it adds to the header of
// answers, away from a page that cannot do without its own.
func ownPage(w http.ResponseWriter) {
	if o, ok := w.(interface{ OwnPage() }); ok {
		o.OwnPage()
	}
}

// Seconds is how long to wait before the next request, as a client is told.
func (v Verdict) Seconds() int64 { return int64((v.Wait + time.Second - 1) / time.Second) }

// Refuse answers a request that may not pass, and needs no proof.
func (v Verdict) Refuse(w http.ResponseWriter) {
	status, text := http.StatusForbidden, "403 Forbidden\n"
	h := w.Header()
	if !v.Denied {
		seconds := v.Seconds()
		h.Set("Retry-After", strconv.FormatInt(seconds, 10))
		h.Set("RateLimit-Policy", v.Limit.policy)
		h.Set("RateLimit", fmt.Sprintf("%q;r=0;t=%d", v.Limit.name, seconds))
		status, text = http.StatusTooManyRequests, fmt.Sprintf("Too many requests: try again in %d s.\n", seconds)
	}
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(text))) // as [http.Error] has it, but for this
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // the client may be gone
}
