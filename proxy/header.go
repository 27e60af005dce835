package proxy

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/upstream"
	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
)

// endToEnd are fields that a sender must not name in Connection, because they
// are for the recipient of the content (RFC 9110, 7.6.1). If Connection could name
// them, a client could have fields removed that protect the upstream. In order; see also
// endToEndPrefixes.
var endToEnd = []string{
	"Age", "Allow", "Authorization", "Cache-Control", "Cache-Status", "Cdn-Cache-Control", "Cookie",
	"Date", "Dpop", "Etag", "Expect", "Expires", "Forwarded", "From", "Host", "Idempotency-Key", "Last-Modified", "Link", "Location",
	"Max-Forwards", "Origin", "Pragma", "Priority", "Range", "Referer", "Refresh", "Retry-After", "Server",
	"Set-Cookie", "Strict-Transport-Security", "Surrogate-Control", "User-Agent", "Vary", "Via",
	"Www-Authenticate",
}

var endToEndPrefixes = []string{"Accept", "Access-Control-", "Content-", "Cross-Origin-", "If-", "Sec-"}

// maxNamed is how many fields Connection may name. Real clients name two.
const maxNamed = 16

// named lists the fields, folded, that Connection names and may name. Those
// beyond maxNamed are not removed.
func named(l field.Lines) (names []string) {
	for i := range l {
		if l[i].Name != "Connection" || l[i].Value == "keep-alive" { // as nearly always; that field is removed anyway
			continue
		}
		for name := range field.Members([]string{l[i].Value}) {
			name = field.Fold(name)
			if canonical := http.CanonicalHeaderKey(name); protected(canonical) || isConnectionLevel(canonical) {
				continue
			}
			if len(names) == maxNamed {
				return names
			}
			names = append(names, name)
		}
	}
	return names
}

// names reports whether one of named is a field.
func names(named []string, name string) bool {
	return len(named) > 0 && slices.Contains(named, field.Fold(name))
}

// protected reports whether a field, whose name is canonical, may neither be
// removed by a sender nor set by a trailer.
func protected(name string) bool {
	if _, found := slices.BinarySearch(endToEnd, name); found || field.Claim(name) {
		return true
	}
	return slices.ContainsFunc(endToEndPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// isConnectionLevel reports whether a field ends with a connection (RFC 9110, 7.6.1 and
// 11.7), is made anew by framing (RFC 9112, 6), or is harmful to pass on: Proxy becomes the
// variable HTTP_PROXY in CGI programs.
func isConnectionLevel(name string) bool {
	switch name {
	case "Connection", "Http2-Settings", "Keep-Alive", "Proxy", "Proxy-Authenticate", "Proxy-Authentication-Info",
		"Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// forged reports whether a name is spelled so that an upstream which turns header
// fields into variables (CGI) confuses it with a field that the proxy sets or
// removes: X_Forwarded_For, Content_Length, or one of request_headers. Clients may
// not send those.
func (h *Handler) forged(name string) bool {
	if field.Plain(name) {
		return false
	}
	if h.ours(name) {
		return true
	}
	canonical := http.CanonicalHeaderKey(field.Fold(name))
	return canonical == "Content-Length" || isConnectionLevel(canonical) || field.Claim(name)
}

// Strip removes connection-level fields from those of an answer, in place, and Server,
// which this program sets itself.
func Strip(l *field.Lines) {
	drop := named(*l)
	*l = slices.DeleteFunc(*l, func(one field.Line) bool {
		return EndsHere(one.Name) || names(drop, one.Name)
	})
}

// EndsHere reports whether Strip removes a field, by its name alone.
func EndsHere(name string) bool { return name == "Server" || isConnectionLevel(name) }

// CheckHeader returns an error wrapping upstream.ErrProtocol when a field of an
// answer has an invalid name, or a value with a control byte (RFC 9110, 5.5) that
// could make two fields of it further on.
func CheckHeader(l field.Lines) error {
	for i := range l {
		if !field.Token(l[i].Name) {
			return fmt.Errorf("%w: it sends a field with the name %.64q", upstream.ErrProtocol, l[i].Name)
		}
		if !field.Value(l[i].Value) {
			return fmt.Errorf("%w: it sends a control byte in the field %.64s", upstream.ErrProtocol, l[i].Name)
		}
	}
	return nil
}

// tunnels are protocols that no client may upgrade to through the proxy. Its further
// requests would reach the upstream without being checked here.
var tunnels = []string{"h2c", "h2", "http", "tls"}

// upgradeOf returns the Upgrade field to pass on, empty for none.
func upgradeOf(q *message.Request) string {
	if q.Major != 1 || q.Minor < 1 || q.Length != 0 || !q.Fields.Has("Upgrade") || !q.Fields.Lists("Connection", "upgrade") {
		return ""
	}
	var kept []string
	for protocol := range field.Members(q.Fields.Values("Upgrade")) {
		name, version, versioned := strings.Cut(protocol, "/")
		if !field.Token(name) || versioned && !field.Token(version) || slices.Contains(tunnels, strings.ToLower(name)) {
			continue
		}
		kept = append(kept, protocol)
	}
	return strings.Join(kept, ", ")
}

const (
	// pseudonym stands for this program in Via (RFC 9110, 7.6.3).
	pseudonym = "millrace"

	// maxVia is how often a request may have been here before: more than any
	// sensible chain of proxies has, and few enough that a loop costs little.
	maxVia = 8
)

// AppendVia adds this proxy to the Via of a message (RFC 9110, 7.6.3) that was
// received with a version of HTTP.
func AppendVia(l *field.Lines, major, minor int) {
	via := l.Join("Via")
	if via != "" {
		l.Delete("Via")
	}
	l.Add("Via", withUs(via, major, minor))
}

// withUs is a Via with this proxy in it.
func withUs(via string, major, minor int) string {
	us := "1.1 " + pseudonym
	switch {
	case major == 2 && minor == 0:
		us = "2.0 " + pseudonym
	case major != 1 || minor != 1:
		us = strconv.Itoa(major) + "." + strconv.Itoa(minor) + " " + pseudonym
	}
	if via == "" {
		return us
	}
	return via + ", " + us
}

// takesTrailers reports whether TE names trailers, with or without a weight.
func takesTrailers(l field.Lines) bool {
	for member := range field.Members(l.Values("Te")) {
		if name, _, _ := strings.Cut(member, ";"); strings.EqualFold(strings.TrimRight(name, " \t"), "trailers") {
			return true
		}
	}
	return false
}

// looping reports whether a request has come through this program too often, by its Via.
func looping(via string) bool {
	times := 0
	for member := range field.Members([]string{via}) {
		// received-protocol RWS received-by [ RWS comment ]
		if f := strings.Fields(member); len(f) >= 2 && f[1] == pseudonym {
			times++
		}
	}
	return times > maxVia
}

// fewerForwards counts Max-Forwards down (RFC 9110, 7.6.2); what is not a number
// stays as it is.
func fewerForwards(value string) string {
	n, err := strconv.ParseUint(value, 10, 31)
	if err != nil || n == 0 {
		return value
	}
	return strconv.FormatUint(n-1, 10)
}

// before is the X-Forwarded-Prefix of a trusted proxy, if it is a path.
func before(prefix string) string {
	if len(prefix) > maxName || !strings.HasPrefix(prefix, "/") {
		return ""
	}
	return strings.TrimRight(prefix, "/")
}
