package proxy

import (
	"net/netip"
	"net/textproto"
	"strings"

	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
)

const (
	// maxChain is the longest Forwarded or X-Forwarded-For that is passed on, in
	// bytes, enough for about 30 proxies. The oldest entries are dropped first.
	maxChain = 2048

	// maxHops is how many entries of a chain are translated to the other field.
	maxHops = 32

	// maxName bounds X-Forwarded-Host: a host name has 253 bytes, a port 6.
	maxName = 260
)

// hop is one entry of a chain of proxies: who asked for what.
type hop struct {
	node, host, proto string // node as in X-Forwarded-For
}

// claims are the forwarding fields that a request has brought.
type claims struct {
	forwarded, xff string // all lines of Forwarded and X-Forwarded-For
	host, proto    string // of X-Forwarded-Host and -Proto; "" where there is not just one line
}

func claimsOf(q *message.Request) claims {
	l := &q.Fields
	return claims{l.Join("Forwarded"), l.Join("X-Forwarded-For"), l.Only("X-Forwarded-Host"), l.Only("X-Forwarded-Proto")}
}

// chains reads the forwarding fields of a trusted proxy. It also returns what the
// first proxy of the chain was asked for, if that is known.
//
// Both kinds of fields always agree: an upstream that reads Forwarded must see the same
// client as one that reads X-Forwarded-For. So what a trusted proxy says in
// one is translated into the other.
func chains(c claims, now hop) (forwarded, xff string, first hop) {
	forwarded, xff = c.forwarded, c.xff
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
	if validHost(c.host) {
		first.host = c.host
	}
	if validProto(c.proto) {
		first.proto = strings.ToLower(c.proto)
	}
	first.host = field.NormalAuthority(first.proto, first.host)
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

// fromXFF translates an X-Forwarded-For into a Forwarded. The first entry also gets
// host and scheme of X-Forwarded-Host and -Proto, if these are present.
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
	var space [128]byte // most fit into it
	return string(h.append(space[:0]))
}

// append is forwarded, behind b.
func (h hop) append(b []byte) []byte {
	node := h.node
	if strings.Contains(node, ":") {
		node = "[" + node + "]" // RFC 7239, 6: IPv6
	}
	b = field.AppendQuote(append(b, "for="...), node)
	if h.host != "" {
		b = field.AppendQuote(append(b, ";host="...), h.host)
	}
	if h.proto != "" {
		b = field.AppendQuote(append(b, ";proto="...), h.proto)
	}
	return b
}

// validHost reports whether s can be a Host. It rejects lists, and bytes that could
// break out of a header field, a URL or a page.
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
// is longer than maxChain. A malformed list (an unclosed quote) is dropped.
func appendChain(chain, element string) string {
	if !field.Closed(chain) {
		return element
	}
	for excess := len(chain) + len(", ") + len(element) - maxChain; excess > 0; {
		before, after, more := field.Cut(chain, ',')
		if !more {
			return element
		}
		excess -= len(before) + 1
		chain = after
	}
	if chain = textproto.TrimString(chain); chain == "" {
		return element
	}
	return chain + ", " + element
}

// parseForwarded reads the last maxHops elements of a Forwarded. Unknown
// parameters are skipped; ok is false when it is malformed.
func parseForwarded(s string) (hops []hop, ok bool) {
	if s == "" {
		return nil, true
	}
	ok = field.Closed(s)
	for more := true; more && ok; {
		var element string
		element, s, more = field.Cut(s, ',')
		var h hop
		if h, ok = parseHop(element); len(hops) == maxHops {
			hops = append(hops[:0], hops[1:]...)
		}
		hops = append(hops, h)
	}
	return hops, ok
}

// parseHop reads an element of a Forwarded; an empty one is allowed, and
// parameters may be empty, too (RFC 9110, 5.6.1.2).
func parseHop(element string) (h hop, ok bool) {
	h = hop{node: "unknown"}
	for more := true; more; {
		var pair string
		pair, element, more = field.Cut(element, ';')
		if pair = textproto.TrimString(pair); pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		value, ok := field.Unquote(value)
		if !ok || !field.Token(name) {
			return h, false
		}
		switch strings.ToLower(name) {
		case "for":
			h.node = cleanNode(value)
		case "host":
			h.host = value
		case "proto":
			h.proto = value
		}
	}
	return h, true
}
