// Package urlpath says what a request's path stands for: the one clean path by which
// it is routed, and the others for which some server may take it.
//
// A path is cleaned once, before anything is decided by it. A path that rules have
// made of texts and of what a request says is checked by [Made] before it is used. An
// exemption holds only for a path that is [Plain], or if it holds for all [Readings].
package urlpath

import (
	"net/http"
	"net/url"
	"strings"
)

// Clean returns the one path under which p is routed: dot segments resolved and
// double slashes merged, so that "/x/../private/" cannot pass by a rule for
// "/private/". It reports whether p was clean already.
func Clean(p string) (string, bool) {
	if strings.HasPrefix(p, "/") && !strings.Contains(p, "//") && !strings.Contains(p, "/.") {
		return p, true
	}
	var out []string
	segments := strings.Split(p, "/")
	for i, s := range segments {
		last := i == len(segments)-1
		switch s {
		case ".":
		case "..":
			if len(out) > 0 {
				out = out[:len(out)-1]
			}
		case "":
			continue
		default:
			out = append(out, s)
			continue
		}
		if last {
			segments = append(segments[:i:i], "") // "/a/.." is the folder "/"
		}
	}
	clean := "/" + strings.Join(out, "/")
	if clean != "/" && segments[len(segments)-1] == "" {
		clean += "/"
	}
	return clean, clean == p
}

// Made is the clean form of a decoded path that was put together from a text and from
// what a request says. It is not ok where that could lead out of the folder that the
// text names: by dot segments, also between backslashes or with parameters, or by a NUL,
// at which some programs end a name.
func Made(p string) (clean string, ok bool) {
	if strings.IndexByte(p, 0) >= 0 || hasDots(p) {
		return "", false
	}
	clean, _ = Clean(p)
	return clean, true
}

// LeadsOut reports whether an escaped address has dot segments in its path, which
// clients and servers resolve, also encoded ones and those between backslashes (WHATWG
// URL, 4.4), or a NUL: it leads elsewhere than its text says.
func LeadsOut(address string) bool {
	path := address
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		path = path[:i]
	}
	if _, rest, has := strings.Cut(path, "://"); has && path[0] != '/' {
		_, path, _ = strings.Cut(rest, "/")
	}
	if strings.IndexByte(path, '%') >= 0 {
		plain, err := url.PathUnescape(path)
		if err != nil {
			return true
		}
		path = plain
	}
	return strings.IndexByte(path, 0) >= 0 || hasDots(path)
}

// hasDots reports whether a segment is "." or "..", also with parameters behind it
// ("..;a"), which Java's servers leave out.
func hasDots(p string) bool {
	if strings.IndexByte(p, '.') < 0 {
		return false
	}
	for segment := range strings.FieldsFuncSeq(p, func(c rune) bool { return c == '/' || c == '\\' }) {
		if segment, _, _ = strings.Cut(segment, ";"); segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// Plain reports whether every server reads a decoded path in the same way, if it came
// without anything encoded in it: it is clean, and has neither percent signs nor
// backslashes, nor a semicolon, which begins a parameter for some (RFC 3986, 3.3).
func Plain(p string) bool {
	_, clean := Clean(p)
	return clean && !strings.ContainsAny(p, "%\\;\x00")
}

// AsSent is the path and query of a request as the client has sent them, before rules
// changed them.
func AsSent(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") {
		return r.RequestURI
	}
	if u, err := url.Parse(r.RequestURI); err == nil && u.Host != "" { // the absolute form (RFC 9112, 3.2.2)
		return u.RequestURI()
	}
	return r.URL.RequestURI()
}

// Scheme is that of a request's connection.
func Scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}
