package rfc9111

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"millrace/internal/wire/message"
)

// Heuristic freshness (4.2.2): a tenth of the time since the last change, and
// no more than a day, since nobody has promised anything.
const (
	heuristicShare = 10
	heuristicMost  = 24 * time.Hour
)

// NoLifetime is the reason of Judge for an answer that those who wait for it already
// may share, but that says nothing about later.
const NoLifetime = "no-lifetime"

// Judge decides whether the final response to q may be stored (3), and how it
// may be used. reason is "" when it may, else a word for Cache-Status and logs:
//
//	method             neither GET nor HEAD nor a POST that says what to store (RFC 9110, 9.3.3)
//	status             a status that is never stored, or only valid for this request
//	partial, range     206 and 416
//	must-understand    asked for by a status that is not understood (5.2.2.3)
//	request-no-store   asked for by the request (5.2.1.5)
//	no-store, private  asked for by the response (5.2.2.5, 5.2.2.7)
//	no-cache           it would have to be validated, and has no validator (5.2.2.4)
//	authorization      the request had Authorization, or what counts as it, and nothing allows it (3.5)
//	set-cookie         there is one, and it or the policy does not allow it
//	vary               Vary: * (4.1)
//	no-lifetime        nothing says how long it is fresh, and nothing may be guessed (3)
//	stale              its lifetime is 0, and it can neither be validated nor used stale
//	rule               Force is 0
//
// sent is when the request left, received when the header came. h is the
// response's header as it came, or as Freshen made it; a missing or unreadable
// Date counts as received. With a reason, the facts have an age and allow no use.
//
// HEAD is judged like the GET it stands for, so that it can update a stored
// response (4.3.5), or be answered from a GET. What came without content must
// not be stored as if that were empty: that is for the caller to see to.
func (p *Policy) Judge(q *message.Request, status int, h http.Header, sent, received time.Time) (f Facts, reason string) {
	date, ok := dateField(h, "Date", received)
	if !ok {
		date = received
	}
	f = Facts{Received: received, Age: p.initialAge(h, date, sent, received)}
	c, source := p.control(h)
	reason = p.refusal(q, status, h, c)
	if reason == "" && !p.SharesCookies(h, received) {
		reason = "set-cookie"
	}
	if reason == "" {
		reason = p.lifetime(&f, q, status, h, c, source)
	}
	if reason == "" {
		p.windows(&f, c)
		reason = f.useless(h)
	}
	if reason != "" {
		return Facts{Received: f.Received, Age: f.Age, NoStale: true}, reason
	}
	return f, ""
}

// useless is why a response that may be stored could never be used.
func (f *Facts) useless(h http.Header) string {
	if tag, since := validators(h); tag != "" || since != "" {
		return ""
	}
	switch {
	case f.NoCache:
		return "no-cache"
	case f.Fresh == 0 && f.StaleWhileRevalidate == 0 && f.StaleIfError == 0:
		return "stale"
	}
	return ""
}

// refusal is why a response may not be stored whatever its lifetime (3).
func (p *Policy) refusal(q *message.Request, status int, h http.Header, c Control) string {
	if p.Force != nil && *p.Force <= 0 {
		return "rule"
	}
	switch q.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost:
	default:
		return "method"
	}
	switch {
	case status == http.StatusPartialContent:
		return "partial"
	case status == http.StatusRequestedRangeNotSatisfiable:
		return "range"
	case status < 200 || status > 599 || neverStored[status]:
		return "status"
	case c.Has("must-understand") && !understood[status]:
		return "must-understand"
	case c.Has("no-store") && !c.grants("must-understand"): // 5.2.2.3
		return "no-store"
	case c.whole("private"):
		return "private"
	}
	if lines := q.Fields.Values(cacheControl); lines != nil && ParseControl(lines).Has("no-store") {
		return "request-no-store"
	}
	if (p.Proved || q.Fields.Has("Authorization") && !p.Authorized) &&
		!c.grants("public") && !c.grants("s-maxage") && !c.grants("must-revalidate") {
		return "authorization"
	}
	if _, star := Vary(h); star {
		return "vary"
	}
	return ""
}

// SharesCookies reports whether a response sets no cookie that is for one client
// alone. Software sets cookies without a thought of caches: what goes to everyone
// must say so by a lifetime of its own (4.2.1). One that is guessed, or that the
// policy gives, is not the origin's word, and neither is a lifetime of 0.
func (p *Policy) SharesCookies(h http.Header, received time.Time) bool {
	c, source := p.control(h)
	if !setsCookie(h, c) {
		return true
	}
	fresh, _, explicit := p.explicit(h, c, source, received)
	return p.SetCookie && explicit && fresh > 0
}

// setsCookie reports whether h has a cookie that would be stored.
func setsCookie(h http.Header, c Control) bool {
	for _, name := range [...]string{"Set-Cookie", "Set-Cookie2"} {
		if _, ok := h[name]; !ok {
			continue
		}
		named := false
		for _, withheld := range c.withheld() {
			named = named || withheld == name
		}
		if !named {
			return true
		}
	}
	return false
}

// lifetime finds f.Fresh and f.Source (4.2.1), or why there is none.
func (p *Policy) lifetime(f *Facts, q *message.Request, status int, h http.Header, c Control, source string) string {
	f.NoCache = c.whole("no-cache") && p.Force == nil
	fresh, from, explicit := p.explicit(h, c, source, f.Received)
	if q.Method == http.MethodPost && (!explicit || !aboutItself(q, h)) {
		return "method"
	}
	// Without an explicit lifetime only these may be stored (3).
	guessed := byDefault[status] || c.grants("public")
	switch {
	case !explicit && !guessed && !p.AnyStatus:
		return NoLifetime
	case p.Force != nil:
		f.Fresh, f.Source = f.Age+min(*p.Force, forever), "rule"
	case explicit:
		f.Fresh, f.Source = fresh, from
	case f.NoCache:
		f.Source = "no-cache"
	case p.TTL > 0:
		f.Fresh, f.Source = f.Age+min(p.TTL, forever), "ttl"
	default:
		if !guessed || p.NoHeuristics || !p.heuristic(f, h) {
			return NoLifetime
		}
	}
	return ""
}

// explicit is the lifetime that a response names itself: s-maxage before
// max-age before Expires (4.2.1). What contradicts itself is 0.
func (p *Policy) explicit(h http.Header, c Control, source string, received time.Time) (d time.Duration, from string, ok bool) {
	for _, name := range [...]string{"s-maxage", "max-age"} {
		if d, ok := c.Seconds(name); ok {
			if source != "" {
				name = source
			}
			return d, name, true
		}
	}
	lines := h["Expires"]
	if source != "" || len(lines) == 0 {
		return 0, "", false
	}
	// 5.3: one that is not a date, "0" above all, is in the past; so is one that
	// comes twice.
	at, ok := dateField(h, "Expires", received)
	if !ok {
		return 0, "Expires", true
	}
	date, ok := dateField(h, "Date", received)
	if !ok {
		date = received.Truncate(time.Second)
	}
	return min(max(at.Sub(date), 0), forever), "Expires", true
}

// heuristic guesses a lifetime from Last-Modified (4.2.2). Queries make no
// difference: RFC 9111 no longer excepts them. Pragma: no-cache means nothing
// in a response (5.4), but where all is a guess it is taken for a hint.
func (p *Policy) heuristic(f *Facts, h http.Header) bool {
	modified, ok := dateField(h, "Last-Modified", f.Received)
	if !ok || ParseControl(h["Pragma"]).Has("no-cache") {
		return false
	}
	date, ok := dateField(h, "Date", f.Received)
	if !ok {
		date = f.Received
	}
	f.Fresh = min(max(date.Sub(modified)/heuristicShare, 0), heuristicMost)
	f.Source = "heuristic"
	return true
}

// initialAge is corrected_initial_age (4.2.3). Its apparent_age is in whole
// seconds, as Date is: otherwise half a second of every short lifetime would
// be lost to rounding.
func (p *Policy) initialAge(h http.Header, date, sent, received time.Time) time.Duration {
	apparent := max(received.Truncate(time.Second).Sub(date), 0)
	delay := max(received.Sub(sent), 0)
	corrected := p.ageValue(h) + min(delay, forever)
	return min(max(apparent, corrected), 2*forever)
}

// ageValue reads Age (5.1): of several members the first, nonsense is ignored,
// unless the policy is strict.
func (p *Policy) ageValue(h http.Header) time.Duration {
	lines := h["Age"]
	if len(lines) == 0 {
		return 0
	}
	first, _, several := strings.Cut(lines[0], ",")
	age, ok := seconds(strings.Trim(first, " \t"))
	if p.StrictAge && (!ok || several || len(lines) > 1) {
		return forever
	}
	return age
}

// windows finds what stale use is allowed (4.2.4, RFC 5861).
//
// s-maxage forbids it as proxy-revalidate does (5.2.2.10). A response that
// names a window beside s-maxage has been written with extensions for caches
// that know them, which modify what they stand beside (5.2.3); must-revalidate
// and proxy-revalidate, written out, are stronger.
func (p *Policy) windows(f *Facts, c Control) {
	if f.NoCache || c.Has("must-revalidate") || c.Has("proxy-revalidate") {
		f.NoStale = true
		return
	}
	f.NoStale = c.Has("s-maxage") && p.Force == nil // which stands in its place
	window := func(name string, otherwise time.Duration) time.Duration {
		if d, ok := c.Seconds(name); ok {
			return d
		}
		if f.NoStale {
			return 0
		}
		return min(max(otherwise, 0), forever)
	}
	f.StaleWhileRevalidate = window("stale-while-revalidate", p.StaleWhileRevalidate)
	f.StaleIfError = window("stale-if-error", p.StaleIfError)
}

// aboutItself reports whether Content-Location is what was asked for, so that
// a later GET may get the same (RFC 9110, 9.3.3 and 8.7).
func aboutItself(q *message.Request, h http.Header) bool {
	lines := h["Content-Location"]
	if len(lines) != 1 || strings.Trim(lines[0], " \t") == "" {
		return false
	}
	asked := url.URL{Scheme: q.Scheme(), Host: q.Host}
	if !q.URL(&asked) {
		return false
	}
	u, err := asked.Parse(strings.Trim(lines[0], " \t"))
	if err != nil || u.Opaque != "" {
		return false
	}
	return u.RequestURI() == asked.RequestURI() && strings.EqualFold(u.Host, asked.Host) && strings.EqualFold(u.Scheme, asked.Scheme)
}

// neverStored are final statuses that speak of one request or connection, or
// that must not be stored by their definition.
var neverStored = map[int]bool{
	http.StatusNotModified:                   true, // updates what is stored (4.3.3)
	http.StatusProxyAuthRequired:             true, // of this hop
	http.StatusRequestTimeout:                true, // of this connection
	http.StatusPreconditionFailed:            true, // of this request's conditions
	http.StatusExpectationFailed:             true, // of this request's Expect
	http.StatusMisdirectedRequest:            true, // of this connection
	http.StatusTooEarly:                      true, // RFC 8470, 5.2
	http.StatusPreconditionRequired:          true, // RFC 6585, 3
	http.StatusTooManyRequests:               true, // RFC 6585, 4
	http.StatusRequestHeaderFieldsTooLarge:   true, // RFC 6585, 5
	http.StatusNetworkAuthenticationRequired: true, // RFC 6585, 6
}

// byDefault are the statuses cacheable by heuristics (RFC 9110, 15.1; 451: RFC
// 7725, 3) without 206.
var byDefault = map[int]bool{
	200: true, 203: true, 204: true, 300: true, 301: true, 308: true,
	404: true, 405: true, 410: true, 414: true, 451: true, 501: true,
}

// understood are the statuses whose meaning for a cache is known and obeyed,
// for must-understand (5.2.2.3): all of RFC 9110, 15 that can be stored.
var understood = map[int]bool{
	200: true, 201: true, 202: true, 203: true, 204: true, 205: true,
	300: true, 301: true, 302: true, 303: true, 305: true, 307: true, 308: true,
	400: true, 401: true, 402: true, 403: true, 404: true, 405: true, 406: true,
	409: true, 410: true, 411: true, 413: true, 414: true, 415: true, 422: true,
	426: true, 451: true, 500: true, 501: true, 502: true, 503: true, 504: true, 505: true,
}
