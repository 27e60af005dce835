package cachecmd

import (
	"net/http"
	"strings"
)

// cacheStatus is what Cache-Status says of the cache that is nearest to us.
type cacheStatus struct{ cached, hit, stored bool }

// readCacheStatus reads the last member (RFC 9211, 2: each cache appends its
// own). What stands in quotes has no part in it.
func readCacheStatus(h http.Header) (s cacheStatus) {
	lines := h.Values("Cache-Status")
	if len(lines) == 0 {
		return s
	}
	unquoted, last := lines[len(lines)-1], ""
	for i, part := range strings.Split(unquoted, `"`) {
		if i%2 == 0 {
			last += part
		}
	}
	last = last[strings.LastIndexByte(last, ',')+1:]
	s.cached = strings.TrimSpace(last) != ""
	for i, parameter := range strings.Split(last, ";") {
		switch strings.TrimSpace(parameter) {
		case "hit":
			s.hit = s.hit || i > 0
		case "stored":
			s.stored = s.stored || i > 0
		}
	}
	return s
}
