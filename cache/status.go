package cache

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"millrace/cache/rfc9111"
)

// statusName is what this cache is called in Cache-Status (RFC 9211, 2).
const statusName = "millrace"

// cacheStatus is the name of that field.
const cacheStatus = "Cache-Status"

// shown are an answer's age and what is left of its lifetime, in seconds, as of
// the end of the second that now is in: the fast lane makes them once a second,
// and an age must neither be too low nor fall from one answer to the next. What
// is left is rounded down, so that what is stale is never shown as 0.
func shown(f *rfc9111.Facts, now time.Time) (age, ttl int64) {
	end := now.Truncate(time.Second).Add(time.Second - 1)
	left := f.TTL(end)
	ttl = seconds(left)
	if left < 0 && left%time.Second != 0 {
		ttl--
	}
	return seconds(f.CurrentAge(end)), ttl
}

// storedStatus is the member of Cache-Status for an answer from here. A stale
// one is a hit with a negative ttl (RFC 9211, 2.1 and 2.4), unless the upstream
// was asked: then the request was forwarded (2.2).
func storedStatus(how string, ttl int64) string {
	switch how {
	case "hit":
		return statusName + "; hit; ttl=" + strconv.FormatInt(ttl, 10)
	case "validated":
		return statusName + "; fwd=stale; fwd-status=304; ttl=" + strconv.FormatInt(ttl, 10)
	case "stale-if-error":
		return statusName + "; fwd=stale; ttl=" + strconv.FormatInt(ttl, 10) + "; detail=" + how
	}
	return statusName + "; hit; ttl=" + strconv.FormatInt(ttl, 10) + "; detail=" + how
}

// forward describes a forwarded request for Cache-Status.
type forward struct {
	why       string // RFC 9211, 2.2: bypass, method, uri-miss, vary-miss, miss, request, stale, partial
	status    int    // of the upstream's answer; 0: none
	stored    bool
	collapsed bool // another request's fetch
	detail    string
}

func (f forward) String() string {
	var room [96]byte
	b := append(append(room[:0], statusName+"; fwd="...), f.why...)
	if f.status != 0 {
		b = strconv.AppendInt(append(b, "; fwd-status="...), int64(f.status), 10)
	}
	if f.collapsed {
		b = append(b, "; collapsed"...)
	}
	if f.stored {
		b = append(b, "; stored"...)
	}
	if f.detail != "" {
		b = append(append(b, "; detail="...), f.detail...)
	}
	return string(b)
}

// addStatus puts our member after those of the caches closer to the origin.
func (x *exchange) addStatus(h http.Header, earlier []string, member string) {
	h[cacheStatus] = append(slices.Clip(slices.Clone(earlier)), member)
}
