package server

import (
	"net/http"
	"strings"
)

// malformed reports whether the pseudo fields of a request hold what the line
// of HTTP/1.1 could not: net/http takes them as they are over HTTP/2, and
// whoever writes them into such a line writes another request (RFC 9113, 8.3.1
// and 10.3). Over HTTP/1.1 net/http has looked itself.
func malformed(r *http.Request) bool {
	if r.ProtoMajor < 2 {
		return false
	}
	notVisible := func(c rune) bool { return c <= ' ' || c == 0x7f }
	const separators = `"(),/:;<=>?@[\]{}`
	return strings.ContainsFunc(r.RequestURI, notVisible) ||
		strings.ContainsFunc(r.Host, notVisible) || strings.ContainsAny(r.Host, `/\@?#,`) ||
		strings.ContainsFunc(r.Method, func(c rune) bool { return notVisible(c) || c > 0x7f || strings.ContainsRune(separators, c) })
}
