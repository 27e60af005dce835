package proxy

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"net/netip"
	"net/textproto"
	"strings"

	"millrace/internal/access/signin"
	"millrace/internal/route/headers"
	"millrace/internal/upstream"
	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
)

// Head makes q of a request of net/http, and sets the fields that this program adds to it
// for other servers: who has signed in, and the subject of the client's certificate.
// [Handler.Serve] adds its place in a trace.
func Head(q *message.Request, r *http.Request) {
	q.Of(r)
	ctx := r.Context()
	vouch(q)
	for name, values := range signin.VerifiedFields(ctx) {
		for _, value := range values {
			q.Set = append(q.Set, field.Line{Name: name, Value: value})
		}
	}
	q.ID = headers.KnownID(ctx)
}

// subjectField tells upstreams whom the client's certificate is for. It is a claim
// (see [field.Claim]), so clients cannot send it in any spelling.
const subjectField = "X-Ssl-Client-Subject"

// vouch adds it to the fields for other servers.
func vouch(q *message.Request) {
	if q.Subject != "" {
		q.Set = append(q.Set, field.Line{Name: subjectField, Value: subjectText(q.Subject)})
	}
}

// subjectText is a subject (RFC 4514) in characters that a field may have.
func subjectText(subject string) string {
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

// outgoing is a client's request as the upstream gets it.
type outgoing struct {
	upstream.Request
	from sender
	// value is valueOf, made once. It holds while the rules are applied.
	value func(variable string) string
	q     *message.Request
}

// fewFields is how many fields most requests have for the upstream.
const fewFields = 20

// Room is memory for a request to the upstream. The zero value is ready.
type Room struct {
	outgoing
	fields [fewFields]field.Line
}

// outgoing is for a new request.
func (r *Room) clear() *outgoing {
	r.outgoing = outgoing{Request: upstream.Request{Fields: r.fields[:0]}}
	return &r.outgoing
}

func newOutgoing() *outgoing { return new(Room).clear() }

// Outgoing makes the request that the upstream gets of a client's: without connection-level
// fields (RFC 9110, 7.6.1), with Forwarded, X-Forwarded-For, -Proto and -Host and Via, the
// fields of q.Set, and the Host that Options say (empty for the upstream's own). It has
// neither a body nor trailers; Length is the client's.
func (h *Handler) Outgoing(q *message.Request) *upstream.Request {
	o := newOutgoing()
	h.outgoing(q, o)
	return &o.Request
}

// outgoing is Outgoing in memory of the caller's. It reports false where the request must
// not be passed on: see [Handler.Refuse].
func (h *Handler) outgoing(q *message.Request, o *outgoing) bool {
	ok := h.collect(q, o)
	o.Fields = q.AppendSet(o.Fields)
	if h.rules != nil {
		if o.value == nil {
			o.value = o.valueOf
		}
		o.q = q
		h.rules.Apply(&o.Fields, o.value)
		o.q = nil
	}
	return ok
}

// Shared is Outgoing, before [Handler.Constant], for a request whose answer may go to other
// clients as well. Forwarded then has only the scheme and host of Asked, without the host
// where answers do not depend on it, nothing about the proxies in between, and nothing of
// q.Set, which is about who asks. It is made in room; nil: in memory of its own.
func (h *Handler) Shared(q *message.Request, hostCounts bool, room *Room) *upstream.Request {
	if room == nil {
		room = new(Room)
	}
	o := room.clear()
	h.collect(q, o)
	first := hop{proto: o.from.asked.proto, host: o.from.asked.host}
	if !hostCounts {
		first.host = ""
		o.Fields.Delete("X-Forwarded-Host")
	}
	o.Fields.Set("Forwarded", fromXFF(o.from.xff, first))
	return &o.Request
}

// Constant sets the fields of request_headers whose values do not depend on the
// request.
func (h *Handler) Constant(l *field.Lines) {
	if h.paths.strip != "" {
		l.Set("X-Forwarded-Prefix", h.paths.strip)
	}
	h.rules.Apply(l, func(string) string { return "" }) // without variables
}

// collect makes a request before the fields of q.Set and the operator's rules. It reports
// false where the request must not be passed on.
func (h *Handler) collect(q *message.Request, o *outgoing) (ok bool) {
	from := &o.from
	*from = h.senderOf(q)
	o.Request = upstream.Request{
		Method: q.Method, Length: q.Length, Fields: o.Fields[:0],
		Client: netip.AddrPortFrom(from.client, q.Port), Secure: q.Secure, // which are not sent: balancers, the queue and cookies go by them
	}
	if from.client != q.Peer {
		o.Client = netip.AddrPortFrom(from.client, 0)
	}
	o.Path, o.Query, ok = h.paths.moved(q.Path, q.Query)
	o.Asks = q.HasQuery || o.Query != ""
	switch h.host {
	case "", "upstream":
	case "client":
		o.Host = from.now.host
	default:
		o.Host = h.host
	}
	h.keepFields(q, o)
	o.Fields = append(o.Fields,
		field.Line{Name: "Forwarded", Value: from.forwarded}, field.Line{Name: "X-Forwarded-For", Value: from.xff},
		field.Line{Name: "X-Forwarded-Proto", Value: from.asked.proto}, field.Line{Name: "Via", Value: withUs(q.Fields.Join("Via"), q.Major, q.Minor)})
	if from.asked.host != "" {
		o.Fields.Add("X-Forwarded-Host", from.asked.host)
	}
	if strip := h.paths.strip; strip != "" {
		if from.trusted {
			strip = before(q.Fields.Only("X-Forwarded-Prefix")) + strip
		}
		o.Fields.Add("X-Forwarded-Prefix", strip)
	}
	return ok
}

// keepFields takes over those fields of a request that are for the upstream as they are.
func (h *Handler) keepFields(q *message.Request, o *outgoing) {
	drop, trailers, upgrades := named(q.Fields), false, false
	for i := range q.Fields {
		l := q.Fields[i]
		switch l.Name {
		case "Content-Length", "Host", "Via", "Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host":
			continue // they are made anew
		case "X-Forwarded-Prefix":
			if h.paths.strip != "" {
				continue
			}
		case "Expect":
			if q.Length == 0 {
				continue
			}
		case "Te":
			trailers = true
		case "Upgrade":
			upgrades = true
		case "Max-Forwards":
			if q.Method == http.MethodOptions || q.Method == http.MethodTrace {
				l.Value = fewerForwards(l.Value)
			}
		}
		if isConnectionLevel(l.Name) || h.forged(l.Name) || !o.from.trusted && field.Claim(l.Name) || q.Replaced(l.Name) || names(drop, l.Name) {
			continue
		}
		o.Fields = append(o.Fields, l)
	}
	if trailers && takesTrailers(q.Fields) {
		o.Fields.Add("Te", "trailers") // the only one that we can promise, too
	}
	if !upgrades {
		return
	}
	if up := upgradeOf(q); up != "" {
		o.Fields = append(o.Fields, field.Line{Name: "Connection", Value: "Upgrade"}, field.Line{Name: "Upgrade", Value: up})
	}
}

// valueOf is what a variable of request_headers stands for.
func (o *outgoing) valueOf(variable string) string {
	switch variable {
	case "client_ip":
		if o.from.client.IsValid() {
			return o.from.client.String()
		}
		return o.from.now.node
	case "host":
		return o.from.asked.host
	case "scheme":
		return o.from.asked.proto
	case "method":
		return o.q.Method
	case "path":
		return o.q.Path
	case "query":
		return o.q.Query
	case "uri":
		return o.q.URI()
	}
	if o.q.ID == "" {
		return rand.Text()
	}
	return o.q.ID
}

// sender is who sent a request.
type sender struct {
	trusted        bool       // the connection's other end is a proxy that is believed
	client         netip.Addr // whom that names, or the other end itself; the zero address on a UNIX socket
	now, asked     hop        // what the other end asks for, and what the first proxy was asked for
	forwarded, xff string     // the chains of proxies, up to here
}

func (h *Handler) senderOf(q *message.Request) sender {
	s := sender{client: q.Peer}
	var element string
	s.now, element = hopOf(q)
	s.asked = s.now
	if s.trusted = h.trust.Has(q.Peer); !s.trusted {
		s.forwarded, s.xff = element, s.now.node
		return s
	}
	s.forwarded, s.xff, s.asked = chains(claimsOf(q), s.now)
	s.client = h.clients.Named(q.Peer, s.xff)
	s.forwarded, s.xff = appendChain(s.forwarded, element), appendChain(s.xff, s.now.node)
	return s
}

// hopOf describes the request as it arrived, without the claims of proxies: who sent it, and
// for which scheme and host. element is that as an element of Forwarded; both share memory.
func hopOf(q *message.Request) (now hop, element string) {
	var room [192]byte // most fit into it
	b := append(room[:0], "unknown"...)
	if q.Peer.IsValid() {
		b = q.Peer.AppendTo(room[:0])
	}
	n, scheme := len(b), q.Scheme()
	host := field.NormalAuthority(scheme, q.Host)
	text := string(hop{string(b[:n]), host, scheme}.append(b))
	return hop{text[:n], host, scheme}, text[n:]
}

// Asked returns the scheme and host that the client asked for, as far as they are
// known here: from the connection, or from a trusted proxy's X-Forwarded-Proto,
// X-Forwarded-Host or Forwarded. The host has one spelling (see
// [field.NormalAuthority]). The upstream gets the same values in X-Forwarded-Proto and
// -Host.
func (h *Handler) Asked(q *message.Request) (scheme, host string) {
	first := hop{proto: q.Scheme()}
	first.host = field.NormalAuthority(first.proto, q.Host)
	if h.Trusts(q) {
		_, _, first = chains(claimsOf(q), first)
	}
	return first.proto, first.host
}

// Trusts reports whether a request comes from a proxy whose claims are believed.
func (h *Handler) Trusts(q *message.Request) bool { return h.trust.Has(q.Peer) }

// client is the address of the client: of the connection's other end, or what a trusted
// proxy says of its own client; of that one's claims nothing is believed unless it is
// trusted as well.
func (h *Handler) client(q *message.Request) netip.Addr {
	if !h.Trusts(q) {
		return q.Peer
	}
	return h.senderOf(q).client
}

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
