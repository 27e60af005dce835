package static

import (
	"io/fs"
	"net/http"
	"net/url"
	"strings"

	"millrace/internal/wire/urlpath"
)

// maxPath is the longest path that is looked at: what Linux can open.
const maxPath = 4096

// requestName turns a URL's path into the name of a file ("a/b.css") or of a
// directory ("a/", and "" for the root). ok is false for what no file can
// answer: dot segments, empty, hidden and private ones, backslashes, NUL, and slashes
// that were percent-encoded. A name is decoded once; what looks encoded after
// that is part of the name.
func (h *Handler) requestName(u *url.URL) (name string, ok bool) {
	p := u.Path
	if len(p) > maxPath || strings.ContainsAny(p, "\\\x00") || urlpath.EncodesSlash(u.RawPath) {
		return "", false
	}
	name = strings.TrimPrefix(p, "/")
	file := strings.TrimSuffix(name, "/")
	if name == "" {
		return "", true
	}
	if !fs.ValidPath(file) || file == "." { // no "", ".", ".." segments, valid UTF-8
		return "", false
	}
	if !h.options.Hidden && hidden(file) || h.private.covers(file) {
		return "", false
	}
	return name, true
}

// hidden reports whether a segment begins with a dot. /.well-known (RFC 8615)
// is meant to be seen, but not what is hidden in it.
func hidden(file string) bool {
	if rest, ok := strings.CutPrefix(file, ".well-known"); ok && (rest == "" || rest[0] == '/') {
		file = rest
	}
	return strings.HasPrefix(file, ".") || strings.Contains(file, "/.")
}

// redirect sends the client to the directory form of what it asked for. The
// Location is relative (RFC 9110, 10.2.2): only the client knows the prefix
// that was stripped on the way here, and a relative path that begins with "./"
// can lead to no other host. segment is escaped.
func redirect(w http.ResponseWriter, r *http.Request, segment string) {
	sendTo(w, r, "./"+segment+"/")
}

// sendTo redirects to a relative location.
func sendTo(w http.ResponseWriter, r *http.Request, location string) {
	if r.URL.RawQuery != "" {
		location += "?" + r.URL.RawQuery
	}
	h := w.Header()
	h["Location"] = []string{location}
	h["Cache-Control"] = []string{otherCache} // 301 would be kept for ever
	h["Content-Length"] = []string{"0"}
	h["X-Content-Type-Options"] = nosniff
	w.WriteHeader(http.StatusMovedPermanently)
}

// directorySegment is the escaped last segment of a name.
func directorySegment(name string) string {
	return url.PathEscape(name[strings.LastIndexByte(name, '/')+1:])
}

// lastSegment is the last segment, as it was escaped, of the path in a request
// line; empty if that ends in a slash or cannot be told.
func lastSegment(target string) string {
	u, err := url.ParseRequestURI(target)
	if err != nil || !strings.HasPrefix(u.Path, "/") {
		return ""
	}
	p := u.EscapedPath()
	segment := p[strings.LastIndexByte(p, '/')+1:]
	if segment == "." || segment == ".." || strings.ContainsRune(segment, '\\') {
		return ""
	}
	return segment
}
