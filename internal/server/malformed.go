package server

import (
	"net/http"
	"strconv"
	"strings"

	"millrace/internal/wire/field"
	"millrace/internal/wire/h2"
)

// malformed reports whether a request's target is none (see formless), or whether its
// pseudo fields hold what the line of HTTP/1.1 could not: net/http takes them as they are
// over HTTP/2, and whoever writes them into such a line writes another request (RFC 9113,
// 8.3.1 and 10.3). Over HTTP/1.1 net/http has looked itself.
func malformed(r *http.Request) bool {
	if badForm(r) {
		return true
	}
	if r.ProtoMajor < 2 {
		return false
	}
	if badLength(r) {
		return true
	}
	notVisible := func(c rune) bool { return c <= ' ' || c == 0x7f }
	const separators = `"(),/:;<=>?@[\]{}`
	return strings.ContainsFunc(r.RequestURI, notVisible) ||
		strings.ContainsFunc(r.Host, notVisible) || strings.ContainsAny(r.Host, `/\@?#,`) ||
		strings.ContainsFunc(r.Method, func(c rune) bool { return notVisible(c) || c > 0x7f || strings.ContainsRune(separators, c) })
}

// badForm reports whether a target has none of the forms that a request to a server may
// have: a path, or over HTTP/1.1 the whole address with its host (RFC 9112, 3.2.1 and
// 3.2.2; RFC 9113, 8.3.1; RFC 9110, 4.2.1). "*" is looked at elsewhere.
func badForm(r *http.Request) bool {
	target := r.RequestURI
	if target == "" || target[0] == '/' || target == "*" || r.Method == http.MethodConnect {
		return false
	}
	u := r.URL
	return r.ProtoMajor > 1 || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Opaque != ""
}

// badLength reports whether the Content-Length of a request is not one number, or
// says that a body comes where none does (RFC 9113, 8.1.1): who goes by the field
// would take what follows for the body. Net/http compares it with the body alone.
func badLength(r *http.Request) bool {
	values, ok := r.Header["Content-Length"]
	if !ok {
		return false
	}
	if len(values) != 1 || strings.ContainsFunc(values[0], func(c rune) bool { return c < '0' || c > '9' }) {
		return true
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	return err != nil || r.ContentLength >= 0 && n != r.ContentLength
}

// badExpectation reports whether a request expects what nobody here does (RFC 9110,
// 10.1.1). Over HTTP/1.1 net/http has looked itself.
func badExpectation(r *http.Request) bool {
	return r.ProtoMajor >= 2 && r.Header["Expect"] != nil && !field.Has(r.Header["Expect"], "100-continue")
}

// misdirected reports whether a request names another scheme than that of its
// connection. What it asks for there is for other sites, with other rules and
// redirects (RFC 9110, 7.4; RFC 9113, 8.3.1). A proxy that is trusted may have had
// TLS.
func misdirected(r *http.Request, trusted bool) (why string) {
	named := r.ProtoMajor == 1 && r.URL.Scheme != "" && r.RequestURI != "" && r.RequestURI[0] != '/'
	switch {
	case cleartext(r), named && r.TLS != nil && r.URL.Scheme == "http":
		return h2.NotHTTPS
	case named && r.TLS == nil && r.URL.Scheme == "https" && !trusted:
		return "This connection is for http addresses."
	}
	return ""
}
