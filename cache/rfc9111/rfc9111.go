// Package rfc9111 is what RFC 9111 asks of a shared cache, as pure functions of
// messages and times: what may be stored, for how long it is fresh, which
// stored response a request selects, what a 304 changes, what an unsafe method
// invalidates. It holds nothing and does no I/O.
//
// Numbers alone in comments, as in "4.2.1", are sections of RFC 9111; others
// come with their document. Headers must have canonical names, as net/http
// makes them.
package rfc9111

import "time"

// Policy is what the operator decided where the RFC leaves a choice. The zero
// value does nothing beyond the RFC, and stores no Set-Cookie.
type Policy struct {
	// Targets are the names of targeted fields that speak to this cache, the
	// first one present and valid wins over Cache-Control and Expires (RFC 9213, 2.2).
	Targets []string
	// Surrogate honours Surrogate-Control (Edge Architecture 1.0), below Targets.
	Surrogate bool
	// Device is the name that this cache gives itself in Surrogate-Capability.
	// Directives of Surrogate-Control that are for another one do not count.
	Device string
	// TTL is the lifetime of responses that give none themselves, before
	// heuristics; 0: none. It counts from when they came, whatever their Age.
	TTL time.Duration
	// Force, if not nil, is the lifetime of every response that may be stored
	// at all, whatever it says itself in max-age, s-maxage, Expires and
	// no-cache; 0 stores nothing. It counts from when they came.
	Force *time.Duration
	// AnyStatus lets TTL and Force apply to statuses that are not cacheable by
	// default either (RFC 9110, 15.1), because the operator has named them.
	AnyStatus bool
	// NoHeuristics stores nothing on the grounds of Last-Modified alone (4.2.2).
	NoHeuristics bool
	// StaleWhileRevalidate and StaleIfError are used where a response names
	// none (RFC 5861) and does not forbid stale use (5.2.2.2, 5.2.2.8).
	StaleWhileRevalidate, StaleIfError time.Duration
	// Disconnected allows stale use of whatever age while the origin cannot be
	// reached at all, where the response does not forbid it (4.2.4).
	Disconnected bool
	// SetCookie lets responses with Set-Cookie be stored that name a lifetime
	// themselves: see SharesCookies.
	SetCookie bool
	// Authorized lets responses to requests with Authorization be stored
	// although they do not say so (3.5), because the key tells users apart.
	Authorized bool
	// Proved: the request has been let in for something that counts as
	// Authorization, and that the key does not tell users apart by.
	Proved bool
	// IgnoreReload ignores no-cache, max-age, min-fresh and Pragma in requests,
	// by which any client could make the origin work.
	IgnoreReload bool
	// StrictAge makes a response stale whose Age is not exactly one number.
	// Otherwise the first of several counts and nonsense is ignored, as 5.1
	// now advises; before RFC 9111 nothing was said about it.
	StrictAge bool
}

// Facts are all that decides over a stored response's use. They are computed
// once, when it is stored or freshened, and kept with it.
type Facts struct {
	Received time.Time     // when its header came
	Age      time.Duration // corrected_initial_age at Received (4.2.3), never negative
	Fresh    time.Duration // freshness lifetime (4.2.1), never negative
	// Source is what gave Fresh: "s-maxage", "max-age", "Expires", "heuristic",
	// "ttl", "rule", "no-cache", "Surrogate-Control" or a target's name.
	Source string

	StaleWhileRevalidate time.Duration // RFC 5861, 3; 0 where stale use is forbidden
	StaleIfError         time.Duration // RFC 5861, 4; likewise
	// NoStale: must-revalidate, proxy-revalidate, s-maxage or no-cache forbid
	// stale use without validation but within the two windows above, which are
	// then only there if the response itself names them beside s-maxage.
	NoStale bool
	NoCache bool // every use needs validation (5.2.2.4)
}

// CurrentAge is the response's age (4.2.3), never negative.
func (f *Facts) CurrentAge(now time.Time) time.Duration {
	// Less than nothing comes of a clock that was set back; the most is bounded
	// so that sums of ages and lifetimes fit into a Duration.
	return f.Age + min(max(now.Sub(f.Received), 0), forever)
}

// TTL is what is left of the lifetime; negative once stale. A response is
// fresh while it is more than zero (4.2).
func (f *Facts) TTL(now time.Time) time.Duration {
	return f.Fresh - f.CurrentAge(now)
}

// Hidden lists the fields that speak to this cache alone: they stay with the
// stored header, since a later 304 may leave them out, and are to be deleted
// from what goes to clients. Cdn-Cache-Control is not among them: it is for
// other caches on the way as well (RFC 9213, 3.1).
func (p *Policy) Hidden() []string {
	var names []string
	for _, name := range p.Targets {
		if c := canonical(name); c != cdnCacheControl {
			names = append(names, c)
		}
	}
	if p.Surrogate {
		names = append(names, surrogateControl)
	}
	return names
}
