package rfc9111

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"millrace/internal/wire/field"
)

// Invalidated lists the URLs that a response to an unsafe method makes invalid
// (4.4): the target, and Location and Content-Location on the same origin.
// It is empty for safe methods and for errors.
func Invalidated(method string, target *url.URL, status int, answer field.Lines) []*url.URL {
	if !Unsafe(method) || status < 200 || status > 399 {
		return nil
	}
	self := *target
	self.Fragment, self.RawFragment = "", ""
	urls := []*url.URL{&self}
	for _, name := range [...]string{"Location", "Content-Location"} {
		lines := answer.Values(name)
		if len(lines) != 1 { // more than one is nonsense
			continue
		}
		u, err := self.Parse(strings.Trim(lines[0], " \t"))
		if err != nil || !sameOrigin(u, &self) {
			continue // 4.4: or one site could empty another one's cache
		}
		u.Fragment, u.RawFragment, u.User = "", "", nil
		if !slices.ContainsFunc(urls, func(other *url.URL) bool { return other.String() == u.String() }) {
			urls = append(urls, u)
		}
	}
	return urls
}

// sameOrigin compares scheme, host and port (RFC 9110, 4.3.1).
func sameOrigin(a, b *url.URL) bool {
	return strings.EqualFold(a.Scheme, b.Scheme) && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	switch strings.ToLower(u.Scheme) {
	case "http":
		return "80"
	case "https":
		return "443"
	}
	return ""
}

// Unsafe reports whether a method may change the resource (RFC 9110, 9.2.1);
// an unknown one may. Safe are those that the IANA registry calls so.
func Unsafe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace,
		"PROPFIND", "QUERY", "REPORT", "SEARCH":
		return false
	}
	return true
}
