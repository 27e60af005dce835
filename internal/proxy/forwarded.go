package proxy

import (
	"net/http"
	"net/netip"
	"strings"

	"golang.org/x/net/http/httpguts"
)

const (
	// maxChain is the longest Forwarded or X-Forwarded-For that is passed on, in
	// bytes; the oldest entries go first. Room for some 30 proxies.
	maxChain = 2048

	// maxHops is how many entries of a chain are translated to the other field.
	maxHops = 32

	// maxName bounds X-Forwarded-Host: a host name has 253 bytes, a port 6.
	maxName = 260
)

// trust are the clients whose claims are believed.
type trust struct {
	networks []netip.Prefix
	unix     bool
}

// peer is who sent a request to us.
type peer struct {
	addr    netip.Addr // invalid for a UNIX socket
	trusted bool
}

func (t trust) peerOf(r *http.Request) peer {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return peer{trusted: t.unix && (r.RemoteAddr == "" || r.RemoteAddr[0] == '@' || r.RemoteAddr[0] == '/')}
	}
	p := peer{addr: ap.Addr().Unmap().WithZone("")}
	for _, n := range t.networks {
		if n.Contains(p.addr) {
			p.trusted = true
			break
		}
	}
	return p
}

// claims says whether a request's field claims to know the client, or what it
// asked for, better than we do. Programs behind a gateway interface cannot tell
// X_Forwarded_For from X-Forwarded-For (RFC 3875, 4.1.18), so neither do we.
func claims(name string) bool {
	switch name[0] {
	case 'F', 'T', 'X', 'f', 't', 'x':
	default:
		return false
	}
	name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
	switch name {
	case "forwarded", "true-client-ip",
		"x-real-ip", "x-client-ip", "x-cluster-client-ip",
		"x-original-url", "x-rewrite-url", "x-original-host", "x-host", "x-http-host-override":
		return true
	}
	return name == "x-forwarded" || strings.HasPrefix(name, "x-forwarded-")
}

// hop is one entry of a chain of proxies: who asked for what.
type hop struct {
	node, host, proto string // node as in X-Forwarded-For
}

// forward writes the forwarding fields of a request into the header that goes
// to the upstream, which holds the client's own only if it is trusted.
//
// Both kinds always agree: an upstream that reads Forwarded must not see another
// client than one that reads X-Forwarded-For, so what a trusted proxy says in
// one is translated into the other.
func (p peer) forward(header http.Header, r *http.Request) {
	now := hop{node: "unknown", host: r.Host, proto: "http"}
	if p.addr.IsValid() {
		now.node = p.addr.String()
	}
	if r.TLS != nil {
		now.proto = "https"
	}
	var forwarded, xff string
	first := now
	if p.trusted {
		forwarded, xff, first = chains(header, now)
	}
	header["Forwarded"] = []string{appendChain(forwarded, now.forwarded())}
	header["X-Forwarded-For"] = []string{appendChain(xff, now.node)}
	header["X-Forwarded-Proto"] = []string{first.proto}
	delete(header, "X-Forwarded-Host")
	if first.host != "" {
		header["X-Forwarded-Host"] = []string{first.host}
	}
}

// chains reads what a trusted proxy says, and what the first of the chain was
// asked for, where that is known.
func chains(header http.Header, now hop) (forwarded, xff string, first hop) {
	forwarded = strings.Join(header["Forwarded"], ", ")
	xff = strings.Join(header["X-Forwarded-For"], ", ")
	hops, ok := parseForwarded(forwarded)
	if !ok {
		forwarded, hops = "", nil
	}
	first = now
	if len(hops) > 0 && validHost(hops[0].host) {
		first.host = hops[0].host
	}
	if len(hops) > 0 && validProto(hops[0].proto) {
		first.proto = strings.ToLower(hops[0].proto)
	}
	if v := header["X-Forwarded-Host"]; len(v) == 1 && validHost(v[0]) {
		first.host = v[0]
	}
	if v := header["X-Forwarded-Proto"]; len(v) == 1 && validProto(v[0]) {
		first.proto = strings.ToLower(v[0])
	}
	switch {
	case forwarded == "" && xff != "":
		forwarded = fromXFF(xff, first)
	case xff == "" && len(hops) > 0:
		nodes := make([]string, len(hops))
		for i, h := range hops {
			nodes[i] = h.node
		}
		xff = strings.Join(nodes, ", ")
	}
	return forwarded, xff, first
}

// fromXFF makes a Forwarded of an X-Forwarded-For. Its first entry is what the
// client asked for, as far as X-Forwarded-Host and -Proto tell.
func fromXFF(xff string, first hop) string {
	nodes := strings.Split(xff, ",")
	whole := len(nodes) <= maxHops
	nodes = nodes[max(0, len(nodes)-maxHops):]
	elements := make([]string, len(nodes))
	for i, node := range nodes {
		h := hop{node: cleanNode(strings.TrimSpace(node))}
		if i == 0 && whole {
			h.host, h.proto = first.host, first.proto
		}
		elements[i] = h.forwarded()
	}
	return strings.Join(elements, ", ")
}

// cleanNode is an address without its port, or unknown.
func cleanNode(s string) string {
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return a.Unmap().WithZone("").String()
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap().WithZone("").String()
	}
	return "unknown"
}

// forwarded is the hop as an element of Forwarded (RFC 7239, 4).
func (h hop) forwarded() string {
	node := h.node
	if strings.Contains(node, ":") {
		node = "[" + node + "]" // RFC 7239, 6: IPv6
	}
	s := "for=" + quoted(node)
	if h.host != "" {
		s += ";host=" + quoted(h.host)
	}
	if h.proto != "" {
		s += ";proto=" + quoted(h.proto)
	}
	return s
}

// quoted is a token, or a quoted-string where s is none (RFC 9110, 5.6.4).
func quoted(s string) string {
	if httpguts.ValidHeaderFieldName(s) {
		return s
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	b.WriteByte('"')
	return b.String()
}

// validHost says whether s can be a Host: what could break out of a field, a
// URL or a page is not in it. A list is no host.
func validHost(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("-._~:[]%", c) >= 0:
		default:
			return false
		}
	}
	return s != "" && len(s) <= maxName
}

func validProto(s string) bool { return strings.EqualFold(s, "http") || strings.EqualFold(s, "https") }

// appendChain appends an element to a list and drops the oldest ones while it
// is longer than maxChain. What is no list (a quote without an end) is dropped.
func appendChain(chain, element string) string {
	if chain == "" {
		return element
	}
	excess := len(chain) + len(", ") + len(element) - maxChain
	from := 0
	if rest := splitQuoted(chain, ',', func(_ string, end int) bool {
		if from < excess {
			from = end + 1
		}
		return true
	}); !rest {
		return element
	}
	if from >= len(chain) {
		return element
	}
	chain = strings.Trim(chain[from:], " \t")
	if chain == "" {
		return element
	}
	return chain + ", " + element
}

// splitQuoted calls f with every part of s between separators outside quoted
// strings, and where it ends, until f says false. It returns false when a quoted
// string has no end.
func splitQuoted(s string, sep byte, f func(part string, end int) bool) bool {
	start, inside := 0, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			inside = !inside
		case c == '\\' && inside:
			i++
		case c == sep && !inside:
			if !f(s[start:i], i) {
				return true
			}
			start = i + 1
		}
	}
	if inside {
		return false
	}
	f(s[start:], len(s))
	return true
}

// parseForwarded reads the last maxHops elements of a Forwarded. Parameters that
// we do not know are skipped; ok is false when it is malformed.
func parseForwarded(s string) (hops []hop, ok bool) {
	if s == "" {
		return nil, true
	}
	wellFormed := true
	ok = splitQuoted(s, ',', func(element string, _ int) bool {
		h := hop{node: "unknown"}
		closed := splitQuoted(element, ';', func(pair string, _ int) bool {
			name, value, found := strings.Cut(strings.Trim(pair, " \t"), "=")
			if !found {
				wellFormed = wellFormed && name == "" // an empty element is allowed (RFC 9110, 5.6.1.2)
				return true
			}
			value, fine := unquote(value)
			wellFormed = wellFormed && fine && httpguts.ValidHeaderFieldName(name)
			switch strings.ToLower(name) {
			case "for":
				h.node = cleanNode(value)
			case "host":
				h.host = value
			case "proto":
				h.proto = value
			}
			return true
		})
		wellFormed = wellFormed && closed
		hops = append(hops, h)
		if len(hops) > maxHops {
			hops = append(hops[:0], hops[1:]...)
		}
		return wellFormed
	})
	return hops, ok && wellFormed
}

// unquote reads a token or a quoted-string.
func unquote(s string) (string, bool) {
	if len(s) < 2 || s[0] != '"' {
		return s, httpguts.ValidHeaderFieldName(s)
	}
	if s[len(s)-1] != '"' {
		return "", false
	}
	s = s[1 : len(s)-1]
	if strings.IndexByte(s, '\\') < 0 {
		return s, strings.IndexByte(s, '"') < 0
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			return "", false
		case '\\':
			if i++; i == len(s) {
				return "", false
			}
		}
		b.WriteByte(s[i])
	}
	return b.String(), true
}
