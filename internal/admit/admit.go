// Package admit decides who may ask, and how often: addresses that are allowed
// and denied, and limits of requests by address, by header field or for all
// clients together.
//
// A [Gate] is what one route asks of each request, in the fast lane as well as
// before a handler. What it counts is in the [Table] that the whole process has,
// so that memory is bounded once, whatever a config names.
package admit

import (
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"time"
)

// MaxRates is how many limits one request may be counted by: its site's and its
// route's.
const MaxRates = 2

// A Gate decides about requests. A nil one lets everybody pass. It is safe for
// concurrent use.
type Gate struct {
	lists *Lists // nil: every address
	rates []*Limit
}

// New returns the gate of lists, which may be nil, and at most [MaxRates] limits.
// It is nil where there is nothing to decide.
func New(lists *Lists, rates ...*Limit) *Gate {
	if lists == nil && len(rates) == 0 {
		return nil
	}
	return &Gate{lists, rates}
}

// Header is the field that the limit number i counts by; "" where it needs none.
func (g *Gate) Header(i int) string {
	if i < len(g.rates) {
		return g.rates[i].header
	}
	return ""
}

// A Verdict is what a gate says about a request. The zero one lets it pass.
type Verdict struct {
	Denied bool          // the address may not ask
	Limit  *Limit        // of which the client has had its share; nil: none
	Wait   time.Duration // until it may ask again
}

// Passes reports whether the request may have its answer.
func (v Verdict) Passes() bool { return !v.Denied && v.Limit == nil }

// Ask decides about a request and counts it if it passes. The client is the zero
// address behind a UNIX socket. values are those of the fields that Header names,
// empty where the request has none.
func (g *Gate) Ask(client netip.Addr, now time.Time, values [MaxRates][]byte) Verdict {
	if g.lists != nil && !g.lists.Allow(client) {
		return Verdict{Denied: true}
	}
	for i, l := range g.rates {
		if wait := l.take(client, now, values[i]); wait > 0 {
			return Verdict{Limit: l, Wait: wait}
		}
	}
	return Verdict{}
}

// AskFor is Ask for a request that a handler has.
func (g *Gate) AskFor(r *http.Request, client netip.Addr) Verdict {
	var values [MaxRates][]byte
	for i := range values {
		if name := g.Header(i); name != "" {
			values[i] = []byte(r.Header.Get(name))
		}
	}
	return g.Ask(client, time.Now(), values)
}

// Refuse answers a request that may not pass.
func (v Verdict) Refuse(w http.ResponseWriter) {
	if v.Denied {
		http.Error(w, "403 Forbidden", http.StatusForbidden)
		return
	}
	seconds := int64((v.Wait + time.Second - 1) / time.Second)
	h := w.Header()
	h.Set("Retry-After", strconv.FormatInt(seconds, 10))
	h.Set("RateLimit-Policy", v.Limit.policy)
	h.Set("RateLimit", fmt.Sprintf("%q;r=0;t=%d", v.Limit.name, seconds))
	http.Error(w, fmt.Sprintf("Too many requests: try again in %d s.", seconds), http.StatusTooManyRequests)
}
