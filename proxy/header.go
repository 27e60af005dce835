package proxy

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/access/signin"
	"millrace/internal/observe/trace"
	"millrace/internal/upstream"
	"millrace/internal/wire/field"
)

// connectionLevel are the fields that end with a connection (RFC 9110, 7.6.1
// and 11.7), that framing makes anew (RFC 9112, 6), or that are harmful to pass
// on: Proxy becomes the variable HTTP_PROXY in CGI programs. In order.
var connectionLevel = []string{
	"Connection",
	"Http2-Settings",
	"Keep-Alive",
	"Proxy",
	"Proxy-Authenticate",
	"Proxy-Authentication-Info",
	"Proxy-Authorization",
	"Proxy-Connection",
	"Te",
	"Trailer",
	"Transfer-Encoding",
	"Upgrade",
}

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
func named(h http.Header) []string {
	lines := h["Connection"]
	if len(lines) == 0 || len(lines) == 1 && lines[0] == "keep-alive" {
		return nil // as nearly always; that field is removed anyway
	}
	var names []string
	for name := range field.Members(lines) {
		name = field.Fold(name)
		if canonical := http.CanonicalHeaderKey(name); protected(canonical) || isConnectionLevel(canonical) {
			continue
		}
		if len(names) == maxNamed {
			return names
		}
		names = append(names, name)
	}
	return names
}

// protected reports whether a field, whose name is canonical, may neither be
// removed by a sender nor set by a trailer.
func protected(name string) bool {
	if _, found := slices.BinarySearch(endToEnd, name); found || field.Claim(name) {
		return true
	}
	return slices.ContainsFunc(endToEndPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

func isConnectionLevel(name string) bool {
	switch name[:min(1, len(name))] {
	case "C", "H", "K", "P", "T", "U": // nothing else begins one, and most fields do otherwise
		_, found := slices.BinarySearch(connectionLevel, name)
		return found
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

// StripHTTP removes connection-level fields from a response's header, and
// Server, which this program sets itself.
func StripHTTP(h http.Header) {
	if drop := named(h); len(drop) > 0 {
		for name := range h {
			if slices.Contains(drop, field.Fold(name)) {
				delete(h, name)
			}
		}
	}
	for name := range h {
		if name == "Server" || isConnectionLevel(name) {
			delete(h, name)
		}
	}
}

// CheckHeaderHTTP returns an error wrapping upstream.ErrProtocol when a field of a
// response has an invalid name, or a value with a control byte (RFC 9110, 5.5) that
// could make two fields of it further on.
func CheckHeaderHTTP(h http.Header) error {
	for name, values := range h {
		if !field.Token(name) {
			return fmt.Errorf("%w: it sends a field with the name %.64q", upstream.ErrProtocol, name)
		}
		for _, v := range values {
			if !field.Value(v) {
				return fmt.Errorf("%w: it sends a control byte in the field %.64s", upstream.ErrProtocol, name)
			}
		}
	}
	return nil
}

// tunnels are protocols that no client may upgrade to through the proxy. Its further
// requests would reach the upstream without being checked here.
var tunnels = []string{"h2c", "h2", "http", "tls"}

// upgradeOf returns the Upgrade field to pass on, empty for none.
func upgradeOf(r *http.Request) string {
	if r.ProtoMajor != 1 || r.ProtoMinor < 1 || r.ContentLength != 0 || !field.Has(r.Header["Connection"], "upgrade") {
		return ""
	}
	var kept []string
	for protocol := range field.Members(r.Header["Upgrade"]) {
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

// AppendViaHTTP adds this proxy to the Via of a message (RFC 9110, 7.6.3) that was
// received with a version of HTTP.
func AppendViaHTTP(h http.Header, major, minor int) {
	via := "1.1 " + pseudonym
	if major != 1 || minor != 1 {
		via = strconv.Itoa(major) + "." + strconv.Itoa(minor) + " " + pseudonym
	}
	if old := h["Via"]; len(old) > 0 {
		via = strings.Join(old, ", ") + ", " + via
	}
	h["Via"] = []string{via}
}

// takesTrailers reports whether TE names trailers, with or without a weight.
func takesTrailers(te []string) bool {
	for member := range field.Members(te) {
		if name, _, _ := strings.Cut(member, ";"); strings.EqualFold(strings.TrimRight(name, " \t"), "trailers") {
			return true
		}
	}
	return false
}

// looping reports whether a request has come through this program too often, by the
// lines of its Via.
func looping(via ...string) bool {
	times := 0
	for member := range field.Members(via) {
		// received-protocol RWS received-by [ RWS comment ]
		if f := strings.Fields(member); len(f) >= 2 && f[1] == pseudonym {
			times++
		}
	}
	return times > maxVia
}

// OutgoingHTTP returns a clone of r for the upstream: without connection-level fields
// (RFC 9110, 7.6.1), with Forwarded, X-Forwarded-For, -Proto and -Host and Via,
// and the Host that Options say (empty for the upstream's own); and with the request's
// id and place in a trace, where it has them. Its body is r's.
// Trailers of the body are announced but not passed on; Serve does.
func (h *Handler) OutgoingHTTP(r *http.Request) *http.Request {
	out := h.outgoing(r)
	maps.Copy(out.Header, signin.VerifiedFields(r.Context()))
	trace.From(r.Context()).Inject(out.Header)
	if h.rules != nil {
		h.applyRules(out.Header, r)
	}
	return out
}

// outgoing is Outgoing before the operator's rules.
func (h *Handler) outgoing(r *http.Request) *http.Request {
	u := *r.URL
	u.Scheme, u.Host, u.User, u.Opaque = h.first.Scheme, h.first.Host, nil, ""
	if h.paths.changes() {
		h.paths.outgoing(&u)
	}
	out := (&http.Request{
		Method: r.Method, URL: &u, Header: h.outgoingHeader(r),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: r.ContentLength, RemoteAddr: h.remote(r), TLS: r.TLS, // which are not sent: balancers, the queue and cookies go by them
	}).WithContext(r.Context())
	if r.ContentLength != 0 {
		out.Body = r.Body // otherwise nil, so that the request may be repeated
	}
	switch h.host {
	case "", "upstream":
	case "client":
		out.Host = peer{}.received(r).host
	default:
		out.Host = h.host
	}
	return out
}

func (h *Handler) outgoingHeader(r *http.Request) http.Header {
	header := make(http.Header, len(r.Header)+8)
	peer := h.trust.peerOf(r)
	drop := named(r.Header)
	for name, values := range r.Header {
		switch {
		case isConnectionLevel(name), h.forged(name), !peer.trusted && field.Claim(name):
		case len(drop) > 0 && slices.Contains(drop, field.Fold(name)):
		case name == "Content-Length", name == "Host", name == "Expect" && r.ContentLength == 0: // the request's own fields say it
		case name == "Max-Forwards" && (r.Method == http.MethodOptions || r.Method == http.MethodTrace):
			header[name] = fewerForwards(values)
		default:
			header[name] = slices.Clip(values) // an Add must not write into r's
		}
	}
	if takesTrailers(r.Header["Te"]) {
		header["Te"] = []string{"trailers"} // the only one that we can promise, too
	}
	if up := upgradeOf(r); up != "" {
		header["Connection"], header["Upgrade"] = []string{"Upgrade"}, []string{up}
	}
	if _, ok := header["User-Agent"]; !ok {
		header["User-Agent"] = []string{""} // keeps net/http from adding its own
	}
	peer.forward(header, r)
	if strip := h.paths.strip; strip != "" {
		header["X-Forwarded-Prefix"] = []string{before(header["X-Forwarded-Prefix"]) + strip}
	}
	if subject := subjectOf(r); subject != "" {
		header[subjectField] = []string{subject}
	}
	AppendViaHTTP(header, r.ProtoMajor, r.ProtoMinor)
	return header
}

// subjectField tells upstreams whom the client's certificate is for. It is a claim
// (see package fieldname), so clients cannot send it in any spelling.
const subjectField = "X-Ssl-Client-Subject"

// subjectOf is the subject of the client's certificate (RFC 4514), in characters
// that a field may have; empty where none was proved.
func subjectOf(r *http.Request) string {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.PeerCertificates) == 0 {
		return ""
	}
	subject := r.TLS.PeerCertificates[0].Subject.String()
	var b strings.Builder
	for i := range len(subject) {
		if c := subject[i]; c < 0x20 || c > 0x7e {
			fmt.Fprintf(&b, "\\%02X", c) // RFC 4514, 2.4
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// fewerForwards counts Max-Forwards down (RFC 9110, 7.6.2); what is not a number
// stays as it is.
func fewerForwards(values []string) []string {
	n, err := strconv.ParseUint(strings.Join(values, ","), 10, 31)
	if err != nil || n == 0 {
		return values
	}
	return []string{strconv.FormatUint(n-1, 10)}
}

// before is the X-Forwarded-Prefix of a trusted proxy, if it is a path.
func before(prefix []string) string {
	if len(prefix) != 1 || len(prefix[0]) > maxName || !strings.HasPrefix(prefix[0], "/") {
		return ""
	}
	return strings.TrimRight(prefix[0], "/")
}
