// Package rfc9111 is what RFC 9111 asks of a shared cache, as pure functions of
// messages and times: what may be stored, for how long it is fresh, which
// stored response a request selects, what a 304 changes, what an unsafe method
// invalidates. It holds nothing and does no I/O.
package rfc9111

import (
	"net/http"
	"net/url"
	"time"
)

// Control is a parsed Cache-Control field, or one of its kind (RFC 9213).
type Control struct{ directives []directive }

type directive struct{ name, value string }

// ParseControl reads all lines of a field. What cannot be read is ignored,
// as RFC 9111, 4.2.1 and 5.2 ask for: towards not storing and not reusing.
func ParseControl(lines []string) Control { panic("not built") }

// Has reports whether a directive is there, with or without an argument.
func (c Control) Has(name string) bool { panic("not built") }

// Seconds is the argument of a directive like max-age. ok is false when the
// directive is missing; one that is there and cannot be read, or contradicts
// itself, is 0: already stale (RFC 9111, 4.2.1). Too large is 2^31 (1.2.2).
func (c Control) Seconds(name string) (d time.Duration, ok bool) { panic("not built") }

// Fields lists the field names, canonical, of a qualified no-cache or private;
// nil when the directive is missing or has no argument.
func (c Control) Fields(name string) []string { panic("not built") }

// Policy is what the operator decided where the RFC leaves a choice.
type Policy struct {
	// Targets are the names of targeted fields that speak to this cache, the
	// first one present wins over Cache-Control and Expires (RFC 9213, 2.2).
	Targets []string
	// Surrogate honours Surrogate-Control (Edge Architecture 1.0), below Targets.
	Surrogate bool
	// TTL is the lifetime of responses that give none themselves, before heuristics; 0: none.
	TTL time.Duration
	// Force, if not nil, is the lifetime of every response that may be stored
	// at all, whatever it says itself; 0 stores nothing.
	Force *time.Duration
	// NoHeuristics stores nothing on the grounds of Last-Modified alone (4.2.2).
	NoHeuristics bool
	// StaleWhileRevalidate and StaleIfError are used where a response names
	// none (RFC 5861) and does not forbid stale use (5.2.2.2, 5.2.2.8).
	StaleWhileRevalidate, StaleIfError time.Duration
	// SetCookie lets responses with Set-Cookie be stored.
	SetCookie bool
	// Authorized lets responses to requests with Authorization be stored
	// although they do not say so (3.5), because the key tells users apart.
	Authorized bool
	// IgnoreReload ignores no-cache, max-age=0 and Pragma in requests, by
	// which any client could make the origin work.
	IgnoreReload bool
}

// Facts are all that decides over a stored response's use. They are computed
// once, when it is stored or freshened, and kept with it.
type Facts struct {
	Received time.Time     // when its header came
	Age      time.Duration // corrected_initial_age at Received (4.2.3)
	Fresh    time.Duration // freshness lifetime (4.2.1)
	Source   string        // what gave Fresh: "s-maxage", "max-age", "Expires", "heuristic", "ttl", "rule", or a target's name

	StaleWhileRevalidate time.Duration // RFC 5861, 3
	StaleIfError         time.Duration // RFC 5861, 4
	NoStale              bool          // must-revalidate, proxy-revalidate, s-maxage, no-cache: never stale without validation
	NoCache              bool          // every use needs validation (5.2.2.4)
}

// Judge decides whether the final response to r may be stored, and how it may
// be used. reason is "" when it may, else a word for Cache-Status and logs:
// "method", "status", "no-store", "private", "authorization", "set-cookie",
// "vary", "partial", "range", "no-lifetime", "must-understand" …
// sent is when the request left, received when the header came. h is the
// response's header as it came; a missing or unreadable Date counts as received.
func (p *Policy) Judge(r *http.Request, status int, h http.Header, sent, received time.Time) (f Facts, reason string) {
	panic("not built")
}

// CurrentAge is the response's age (4.2.3), never negative.
func (f *Facts) CurrentAge(now time.Time) time.Duration { panic("not built") }

// TTL is what is left of the lifetime; negative once stale.
func (f *Facts) TTL(now time.Time) time.Duration { panic("not built") }

// Use is what may be done with a stored response for one request.
type Use int

// From the best to the worst.
const (
	Serve    Use = iota // fresh, or stale within what the client accepts
	Refresh             // serve it stale and refresh it in the background
	Validate            // ask the origin first
	Miss                // act as if nothing were stored: the client wants no stored response that could be validated
)

// Demand is what a request's header says about stored responses.
type Demand struct {
	OnlyIfCached               bool // 5.2.1.7: 504 rather than going to the origin
	NoStore                    bool // 5.2.1.5: do not store what comes back
	noCache                    bool
	maxAge, minFresh, maxStale time.Duration // negative: not named
}

// Demands reads Cache-Control and, without one, Pragma (5.4).
func (p *Policy) Demands(h http.Header) Demand { panic("not built") }

// Neutral reports whether d asks for nothing that differs from a request
// without Cache-Control and Pragma.
func (d Demand) Neutral() bool { panic("not built") }

// Use decides over a stored response at a time. soft means that it has been
// purged softly: fresh counts as stale.
func (f *Facts) Use(d Demand, now time.Time, soft bool) Use { panic("not built") }

// OnError reports whether the response may be served when the origin fails
// (RFC 5861, 4; RFC 9111, 4.2.4), also honouring the request's stale-if-error.
func (f *Facts) OnError(h http.Header, now time.Time) bool { panic("not built") }

// Storable returns the header that is to be stored: without connection-level
// fields (RFC 9111, 3.1; RFC 9110, 7.6.1), those that no-cache or private
// name, and targeted fields for this cache alone; with a Date. h stays as it is.
func (p *Policy) Storable(h http.Header, received time.Time) http.Header { panic("not built") }

// Freshen returns the stored header as the 304's changes it (3.2): every field
// of the 304 but Content-Length, -Encoding, -Type, -Range, ETag where the stored is to stay, and
// connection-level ones. Neither argument changes.
func (p *Policy) Freshen(stored, notModified http.Header, received time.Time) http.Header {
	panic("not built")
}

// Conditional makes h ask for validation of every stored response (4.3.1):
// If-None-Match with all entity tags, If-Modified-Since if there is but one
// date. It reports false, and changes nothing, when none has a validator.
// Preconditions of the client in h are replaced.
func Conditional(h http.Header, stored []http.Header) bool { panic("not built") }

// Selected is the index of the stored response that a 304 speaks of (4.3.4):
// by strong tag, weak tag, Last-Modified, or the only one there is; else -1.
func Selected(notModified http.Header, stored []http.Header) int { panic("not built") }

// Vary lists the field names of all Vary lines, canonical, sorted, each once.
// star is true when one of them is "*" (4.1).
func Vary(h http.Header) (names []string, star bool) { panic("not built") }

// Normal is the value of a request field for comparing (4.1): lines joined,
// whitespace dropped; codings of Accept-Encoding as a sorted set of what is accepted, and
// Accept-Language cut to the first of languages it accepts when there are any.
func Normal(name string, h http.Header, languages []string) string { panic("not built") }

// Invalidated lists the URLs that a response to an unsafe method makes invalid
// (4.4): the target, and Location and Content-Location on the same origin.
// It is empty for safe methods and for errors.
func Invalidated(r *http.Request, target *url.URL, status int, h http.Header) []*url.URL {
	panic("not built")
}

// Unsafe reports whether a method may change the resource (RFC 9110, 9.2.1);
// an unknown one may.
func Unsafe(method string) bool { panic("not built") }
