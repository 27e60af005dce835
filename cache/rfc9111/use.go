package rfc9111

import (
	"math"
	"time"

	"millrace/internal/wire/field"
)

// Use is what may be done with a stored response for one request.
type Use int

// From the best to the worst.
const (
	Serve    Use = iota // fresh, or stale within what the client accepts
	Refresh             // serve it stale and refresh it in the background
	Validate            // ask the origin first
	Miss                // nothing is known of it: act as if nothing were stored
)

// Demand is what a request's header says about stored responses. The zero
// value asks for nothing.
type Demand struct {
	OnlyIfCached bool // 5.2.1.7: 504 rather than going to the origin
	NoStore      bool // 5.2.1.5: do not store what comes back

	noCache   bool
	aged      bool          // max-age is named
	maxAge    time.Duration // 5.2.1.1
	minFresh  time.Duration // 5.2.1.3, 0: not named
	lenient   bool          // max-stale is named
	maxStale  time.Duration // 5.2.1.2
	staleOkay time.Duration // stale-if-error (RFC 5861, 4), 0: not named
}

// Validates reports whether a request wants no stored response without validation.
func (d Demand) Validates() bool { return d.noCache || d.aged && d.maxAge == 0 }

// Demands reads a request's Cache-Control and, without one, Pragma (5.4).
func (p *Policy) Demands(request field.Lines) Demand {
	lines := request.Values(cacheControl)
	if lines == nil {
		if p.IgnoreReload {
			return Demand{}
		}
		return Demand{noCache: ParseControl(request.Values("Pragma")).Has("no-cache")}
	}
	c := ParseControl(lines)
	d := Demand{OnlyIfCached: c.Has("only-if-cached"), NoStore: c.Has("no-store")}
	if d.maxStale, d.lenient = c.Seconds("max-stale"); d.lenient && c.bare("max-stale") {
		d.maxStale = math.MaxInt64 // without an argument: however stale
	}
	d.staleOkay, _ = c.Seconds("stale-if-error")
	if !p.IgnoreReload {
		d.noCache = c.Has("no-cache")
		d.maxAge, d.aged = c.Seconds("max-age")
		d.minFresh, _ = c.Seconds("min-fresh")
	}
	return d
}

// bare reports whether a directive is there, well written, and never with an argument.
func (c Control) bare(name string) bool {
	for _, d := range c.directives {
		if d.name == name && (d.arg || d.bad) {
			return false
		}
	}
	return c.Has(name)
}

// Neutral reports whether d asks for nothing that differs from a request
// without Cache-Control and Pragma.
func (d Demand) Neutral() bool { return d == Demand{} }

// Validated is d for who may get nothing that was not validated, whatever the client accepts.
func (d Demand) Validated() Demand {
	d.noCache = true
	return d
}

// Use decides over a stored response at a time (4.2, 4.2.4). soft means that it
// has been purged softly: fresh counts as stale.
func (f *Facts) Use(d Demand, now time.Time, soft bool) Use {
	if f.Received.IsZero() {
		return Miss
	}
	if f.NoCache || d.noCache { // 5.2.2.4, 5.2.1.4
		return Validate
	}
	age := f.CurrentAge(now)
	left := f.Fresh - age
	if left > 0 && !soft {
		if d.aged && age > d.maxAge || left < d.minFresh {
			return Validate
		}
		return Serve
	}
	stale := max(-left, 0)
	if d.minFresh > 0 || d.aged && (!d.lenient || age > d.maxAge) || d.lenient && stale > d.maxStale {
		return Validate // 5.2.1: the client wants none this stale
	}
	if f.StaleWhileRevalidate > 0 && stale <= f.StaleWhileRevalidate {
		return Refresh
	}
	if d.lenient && !f.NoStale && !soft {
		return Serve
	}
	return Validate
}

// OnError reports whether the response may be served when the origin fails
// (RFC 5861, 4; RFC 9111, 4.2.4), also honouring the request's stale-if-error.
// request are the request's fields. disconnected says that the origin cannot be reached at
// all, and that this alone allows it, as 4.2.4 does, unless the response forbids it. A client's no-cache does not count here: it says
// what it prefers (5.2.1.4), and an error is not that.
func (f *Facts) OnError(request field.Lines, now time.Time, disconnected bool) bool {
	if f.Received.IsZero() || f.NoCache {
		return false
	}
	stale := -f.TTL(now)
	if stale < 0 || f.StaleIfError > 0 && stale <= f.StaleIfError {
		return true
	}
	if f.NoStale || disconnected {
		return !f.NoStale
	}
	c := ParseControl(request.Values(cacheControl))
	accepted, _ := c.Seconds("stale-if-error")
	return accepted > 0 && stale <= accepted
}
