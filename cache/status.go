package cache

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// statusName is what this cache is called in Cache-Status (RFC 9211, 2).
const statusName = "millrace"

// hitStatus is the member of Cache-Status for an answer from here. "stale" is
// a hit with a negative ttl (RFC 9211, 2.1 and 2.4).
func hitStatus(how string, o *object, now time.Time) string {
	b := append(make([]byte, 0, 64), statusName+"; hit; ttl="...)
	b = strconv.AppendInt(b, seconds(o.facts.TTL(now)), 10)
	if how != "hit" {
		b = append(append(b, "; detail="...), how...)
	}
	return string(b)
}

// forward describes an answer that came from the upstream.
type forward struct {
	why       string // RFC 9211, 2.2: bypass, method, uri-miss, vary-miss, miss, request, stale, partial
	status    int    // of the upstream's answer; 0: none
	stored    bool
	collapsed bool // another request's journey
	detail    string
}

func (f forward) String() string {
	var b strings.Builder
	b.WriteString(statusName + "; fwd=" + f.why)
	if f.status != 0 {
		b.WriteString("; fwd-status=" + strconv.Itoa(f.status))
	}
	if f.collapsed {
		b.WriteString("; collapsed")
	}
	if f.stored {
		b.WriteString("; stored")
	}
	if f.detail != "" {
		b.WriteString("; detail=" + f.detail)
	}
	return b.String()
}

// addStatus puts our member behind those of the caches closer to the origin.
func (x *exchange) addStatus(h http.Header, earlier []string, member string) {
	h["Cache-Status"] = append(slices.Clip(slices.Clone(earlier)), member)
}
