// Package condition evaluates the preconditions of a request against the
// validators of what it would get (RFC 9110, 13). It writes nothing and knows
// no files: callers act on the [Result].
package condition

import (
	"net/http"
	"net/textproto"
	"strings"
	"time"
)

// Result is what a request's preconditions ask for.
type Result int

const (
	// Proceed means: answer as if there were no preconditions.
	Proceed Result = iota
	// NotModified means: answer 304, the client has it already.
	NotModified
	// PreconditionFailed means: answer 412.
	PreconditionFailed
)

// String names the result for test output.
func (r Result) String() string {
	switch r {
	case Proceed:
		return "proceed"
	case NotModified:
		return "not modified"
	case PreconditionFailed:
		return "precondition failed"
	}
	return "unknown"
}

// Fields are those of a request that make it conditional, by their lines; nil: the field did
// not come.
type Fields struct {
	IfMatch, IfUnmodifiedSince, IfNoneMatch, IfModifiedSince []string
	IfRange                                                  []string
}

// Of returns the fields of a header.
func Of(h http.Header) Fields {
	return Fields{h["If-Match"], h["If-Unmodified-Since"], h["If-None-Match"], h["If-Modified-Since"], h["If-Range"]}
}

// Check is [Fields.Check] for a header.
func Check(method string, h http.Header, etag string, modified time.Time) Result {
	f := Of(h)
	return f.Check(method, etag, modified)
}

// Check evaluates If-Match, If-Unmodified-Since, If-None-Match and
// If-Modified-Since in the order of RFC 9110, 13.2.2, for a resource that
// exists. etag is the selected representation's entity tag with its quotes
// (and W/ if it is weak), or empty when there is none; modified may be zero.
// A condition that cannot be parsed holds where the RFC says "ignore", and
// matches nothing where it is a list of tags.
func (f *Fields) Check(method, etag string, modified time.Time) Result {
	read := method == http.MethodGet || method == http.MethodHead
	modified = modified.Truncate(time.Second) // dates in headers have whole seconds
	if f.IfMatch != nil {                     // 13.1.1
		if !matches(f.IfMatch, etag, strongEqual) {
			return PreconditionFailed
		}
	} else if since, ok := date(f.IfUnmodifiedSince); ok && !modified.IsZero() { // 13.1.4
		if modified.After(since) {
			return PreconditionFailed
		}
	}
	if f.IfNoneMatch != nil { // 13.1.2
		if !matches(f.IfNoneMatch, etag, weakEqual) {
			return Proceed
		}
		if read {
			return NotModified
		}
		return PreconditionFailed
	}
	if !read {
		return Proceed // 13.1.3: If-Modified-Since is for GET and HEAD alone
	}
	if since, ok := date(f.IfModifiedSince); ok && !modified.IsZero() && !modified.After(since) {
		return NotModified
	}
	return Proceed
}

// Ranges reports whether a Range header is to be honoured: there is no
// If-Range, or it names exactly this representation (RFC 9110, 13.1.5). A date
// counts only while it is a strong validator, which one second of age makes it
// (8.8.2.2); until then a file may have had two contents with that date.
func (f *Fields) Ranges(etag string, modified time.Time) bool {
	if f.IfRange == nil {
		return true
	}
	if len(f.IfRange) != 1 {
		return false
	}
	v := textproto.TrimString(f.IfRange[0])
	if tag, rest, ok := scanTag(v); ok {
		return rest == "" && strongEqual(tag, etag)
	}
	at, ok := ParseDate(v, time.Now())
	return ok && !modified.IsZero() && at.Equal(modified.Truncate(time.Second)) &&
		time.Since(modified) >= time.Second
}

// matches reports whether one of the tags in the lines equals etag, or the
// field is the lone "*", which any existing representation satisfies.
func matches(lines []string, etag string, equal func(a, b string) bool) bool {
	if len(lines) == 1 && textproto.TrimString(lines[0]) == "*" {
		return true
	}
	for _, line := range lines {
		for rest := line; ; {
			// RFC 9110, 5.6.1.2: empty list elements are to be accepted.
			rest = strings.TrimLeft(rest, " \t,")
			tag, after, ok := scanTag(rest)
			if !ok {
				break // at the end, or no tag: what follows is not to be trusted
			}
			after = strings.TrimLeft(after, " \t")
			if after != "" && after[0] != ',' {
				break
			}
			if equal(tag, etag) {
				return true
			}
			rest = after
		}
	}
	return false
}

// scanTag splits an entity-tag off the front of s (RFC 9110, 8.8.3).
func scanTag(s string) (tag, rest string, ok bool) {
	start := 0
	if strings.HasPrefix(s, "W/") { // case-sensitive
		start = 2
	}
	if len(s) <= start || s[start] != '"' {
		return "", s, false
	}
	for i := start + 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return s[:i+1], s[i+1:], true
		case c < 0x21 || c == 0x7f:
			return "", s, false
		}
	}
	return "", s, false
}

// strongEqual and weakEqual compare as RFC 9110, 8.8.3.2 says.
func strongEqual(a, b string) bool {
	return a == b && a != "" && a[0] == '"'
}

func weakEqual(a, b string) bool {
	a, b = strings.TrimPrefix(a, "W/"), strings.TrimPrefix(b, "W/")
	return a == b && a != ""
}

// date reads a field that must be one date and nothing else.
func date(lines []string) (time.Time, bool) {
	if len(lines) != 1 {
		return time.Time{}, false
	}
	return ParseDate(textproto.TrimString(lines[0]), time.Now())
}

// The three forms of a date (RFC 9110, 5.6.7). All of them are in GMT.
const (
	imfDate     = "Mon, 02 Jan 2006 15:04:05 GMT"
	rfc850Date  = "Monday, 02-Jan-06 15:04:05 GMT"
	asctimeDate = "Mon Jan _2 15:04:05 2006"
)

// ParseDate reads an HTTP date in any of its three forms. A two-digit year
// that would be more than 50 years after now is one of the century before
// (RFC 9110, 5.6.7).
func ParseDate(s string, now time.Time) (time.Time, bool) {
	for _, layout := range [...]string{imfDate, asctimeDate} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, true
		}
	}
	t, err := time.Parse(rfc850Date, s)
	if err != nil {
		return time.Time{}, false
	}
	year := now.Year() - now.Year()%100 + t.Year()%100
	if year > now.Year()+50 {
		year -= 100
	}
	return time.Date(year, t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC), true
}
