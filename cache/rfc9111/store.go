package rfc9111

import (
	"net/http"
	"slices"
	"time"

	"millrace/internal/wire/field"
)

// Storable returns the header that is to be stored: without connection-level
// fields (3.1; RFC 9110, 7.6.1), those that no-cache or private name, and Age,
// which Facts hold; with a Date. Fields for this cache alone stay, since what a
// 304 does not say again still holds: see Hidden. h stays as it is.
func (p *Policy) Storable(h http.Header, received time.Time) http.Header {
	stored := make(http.Header, len(h)+1)
	listed := options(h)
	for name, values := range h {
		if name != "Age" && !connectionLevel(name, listed) {
			stored[name] = slices.Clone(values)
		}
	}
	p.withhold(stored)
	// RFC 9110, 6.6.1: a recipient gives a Date to what has none.
	if _, ok := dateField(stored, "Date", received); !ok {
		stored["Date"] = []string{received.UTC().Format(http.TimeFormat)}
	}
	return stored
}

// Freshen returns the stored header as a 304's changes it (3.2), or that of a
// HEAD (4.3.5): every field but those that describe the stored content itself,
// and connection-level ones. Neither argument changes.
//
// The stored ETag stays: it is the name of what is stored, and servers that
// answer 304 with another one have compared what they were asked about, and
// then said what they have now. Last-Modified stays unless the tags agree.
// A missing or unreadable Date of the 304 is received, and there is no Age but
// its own: hand the result to Judge for the new facts, then keep it as it is.
// Its Vary may be another one than before.
func (p *Policy) Freshen(stored, notModified http.Header, received time.Time) http.Header {
	fresh := make(http.Header, len(stored)+len(notModified))
	for name, values := range stored {
		if name != "Age" && !connectionLevel(name, nil) {
			fresh[name] = slices.Clone(values)
		}
	}
	listed := options(notModified)
	same := sameRepresentation(stored, notModified)
	for name, values := range notModified {
		switch {
		case connectionLevel(name, listed), ofContent[name]:
		case name == "Etag" && (!same || len(stored["Etag"]) > 0):
		case name == "Last-Modified" && !same && len(stored["Last-Modified"]) > 0:
		default:
			fresh[name] = slices.Clone(values)
		}
	}
	p.withhold(fresh)
	if _, ok := dateField(notModified, "Date", received); !ok {
		fresh["Date"] = []string{received.UTC().Format(http.TimeFormat)}
	}
	return fresh
}

// withhold drops the fields that the response's control does not let be kept.
func (p *Policy) withhold(h http.Header) {
	c, _ := p.control(h)
	for _, name := range c.withheld() {
		if !essential[name] {
			delete(h, name)
		}
	}
}

// connectionLevel reports whether a field ends at the next hop: by its name, or
// because Connection lists it (RFC 9110, 7.6.1).
func connectionLevel(name string, listed map[string]bool) bool {
	return hopByHop[name] || listed[name] && !essential[name]
}

// options is what Connection names, nil when there is none.
func options(h http.Header) map[string]bool {
	var names map[string]bool
	for name := range field.Members(h["Connection"]) {
		if names == nil {
			names = map[string]bool{}
		}
		names[canonical(name)] = true
	}
	return names
}

// hopByHop are the fields that are never stored (3.1; RFC 9110, 7.6.1).
var hopByHop = map[string]bool{
	"Connection": true, "Proxy-Connection": true, "Keep-Alive": true,
	"Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
	"Proxy-Authenticate": true, "Proxy-Authentication-Info": true, "Proxy-Authorization": true,
}

// ofContent are the fields that a 304 does not change, as they describe the
// content that is stored and stays (3.2).
var ofContent = map[string]bool{
	"Content-Length": true, "Content-Encoding": true, "Content-Range": true,
	"Content-Md5": true, "Digest": true, "Content-Digest": true, "Repr-Digest": true,
}

// essential are the fields without which the rest would mean something else.
// Neither Connection (RFC 9110, 7.6.1: "never appropriate") nor a qualified
// no-cache takes them away: the latter then counts as unqualified.
var essential = map[string]bool{
	"Cache-Control": true, "Content-Encoding": true, "Content-Length": true,
	"Content-Range": true, "Content-Type": true, "Date": true, "Expires": true, "Vary": true,
}
