package server

import (
	"net/http"
	"strings"
)

// malformed reports whether a request's target is none (see formless), or whether its
// pseudo fields hold what the line of HTTP/1.1 could not: net/http takes them as they are
// over HTTP/2, and whoever writes them into such a line writes another request (RFC 9113,
// 8.3.1 and 10.3). Over HTTP/1.1 net/http has looked itself.
func malformed(r *http.Request) bool {
	if formless(r) {
		return true
	}
	if r.ProtoMajor < 2 {
		return false
	}
	notVisible := func(c rune) bool { return c <= ' ' || c == 0x7f }
	const separators = `"(),/:;<=>?@[\]{}`
	return strings.ContainsFunc(r.RequestURI, notVisible) ||
		strings.ContainsFunc(r.Host, notVisible) || strings.ContainsAny(r.Host, `/\@?#,`) ||
		strings.ContainsFunc(r.Method, func(c rune) bool { return notVisible(c) || c > 0x7f || strings.ContainsRune(separators, c) })
}

// formless reports whether a target has none of the forms that a request to a server may
// have: a path, or over HTTP/1.1 the whole address with its host (RFC 9112, 3.2.1 and
// 3.2.2; RFC 9113, 8.3.1; RFC 9110, 4.2.1). "*" is looked at elsewhere.
func formless(r *http.Request) bool {
	target := r.RequestURI
	if target == "" || target[0] == '/' || target == "*" || r.Method == http.MethodConnect {
		return false
	}
	u := r.URL
	return r.ProtoMajor > 1 || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Opaque != ""
}
