package h2

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http2/hpack"
)

// Refusal is the answer to a request whose header block is not one of a request that is
// served here: for instance with the scheme http over TLS, or a target that is no path.
// Net/http and quic-go would reset its stream, or take it for another request.
type Refusal struct {
	Status int    // 0: nothing is wrong
	Text   string // "": that of the status
}

// TooLong refuses a header list that is too long, as net/http does over HTTP/1.1.
func TooLong() Refusal { return Refusal{Status: http.StatusRequestHeaderFieldsTooLarge} }

// Refuse checks the :scheme and the :path of a request over TLS. An empty one is
// malformed, which net/http and quic-go report themselves. Another scheme than https is
// not malformed, but it is not served (RFC 9113, 8.3.1; RFC 9114, 4.3.1).
func Refuse(scheme, path string) Refusal {
	switch {
	case badTarget(path):
		return Refusal{Status: http.StatusBadRequest}
	case path != "" && path[0] != '/' && path != "*": // such as https://example.org/
		return Refusal{http.StatusBadRequest, NoRequest}
	case scheme == "" || strings.EqualFold(scheme, "https"):
		return Refusal{}
	case strings.EqualFold(scheme, "http"):
		return Refusal{http.StatusMisdirectedRequest, NotHTTPS}
	}
	return Refusal{http.StatusBadRequest, NoRequest}
}

// Texts of refusals, also over HTTP/1.1.
const (
	NotHTTPS  = "This connection is for https addresses."
	NoRequest = "This is not a request."
)

// badTarget reports whether net/url refuses a path.
func badTarget(path string) bool {
	odd := func(r rune) bool { return r == '%' || r <= ' ' || r == 0x7f }
	if path == "" || path[0] == '/' && !strings.ContainsFunc(path, odd) {
		return false
	}
	_, err := url.ParseRequestURI(path)
	return err != nil
}

// Refused is the field of a request that the handler must refuse. Its value is the status,
// and the scheme and path as the client has sent them, for example "421 http /a";
// net/http gets https and "/" in :scheme and :path, which it accepts.
const (
	Refused = "Millrace-Refused"
	refused = "millrace-refused" // as it is sent
)

// maxLogged is how much of a path is logged where the header is too long.
const maxLogged = 1 << 10

// refuse rewrites a request that must be refused to one that net/http accepts. own is the
// field [Refused] for it; other requests get one without a name.
func (l *headerList) refuse() (own hpack.HeaderField) {
	var scheme, path *string
	for i := range l.fields {
		switch f := &l.fields[i]; f.Name {
		case ":scheme":
			scheme = &f.Value
		case ":path":
			path = &f.Value
		}
	}
	if scheme == nil || path == nil {
		return own // malformed, or CONNECT
	}
	no, target := Refuse(*scheme, *path), *path
	if l.size > l.max {
		no, target = TooLong(), target[:min(len(target), maxLogged)]
	}
	if no.Status != 0 {
		own = hpack.HeaderField{Name: refused, Value: strconv.Itoa(no.Status) + " " + *scheme + " " + target}
		*path = "/"
	}
	if *scheme != "" {
		*scheme = "https" // net/http knows it in lower case only (RFC 3986, 3.1)
	}
	if l.size > l.max {
		l.fields = slices.DeleteFunc(l.fields, func(f hpack.HeaderField) bool {
			return !f.IsPseudo() && f.Name != "accept" || len(f.Value) > maxLogged
		})
	}
	return own
}

// RefusalOf returns why a request must be refused, and restores its target, which the log
// names.
func RefusalOf(r *http.Request) Refusal {
	was := r.Header[Refused]
	if r.ProtoMajor != 2 || len(was) != 1 {
		return Refusal{}
	}
	delete(r.Header, Refused)
	why, target, _ := strings.Cut(was[0], " ")
	scheme, path, _ := strings.Cut(target, " ")
	r.RequestURI = path
	if why == strconv.Itoa(http.StatusRequestHeaderFieldsTooLarge) {
		return TooLong()
	}
	return Refuse(scheme, path)
}
