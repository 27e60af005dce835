package proxy

import (
	"crypto/rand"
	"net/netip"

	"millrace/internal/lane"
	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
)

// sender is who sent a request that a loop forwards. It holds what trust, peer and
// AskedHTTP find out about an http.Request.
type sender struct {
	trusted        bool       // the connection's other end is a proxy that is believed
	client         netip.Addr // whom that names, or the other end itself; the zero address on a UNIX socket
	now, asked     hop        // what the other end asks for, and what the first proxy was asked for
	forwarded, xff string     // the chains of a trusted proxy
}

func (h *Handler) senderOf(q *lane.ForwardRequest) sender {
	peer := q.Head.Peer
	s := sender{client: peer, now: hop{node: "unknown", proto: q.Head.Scheme()}}
	if peer.IsValid() {
		s.now.node = peer.String()
	}
	s.now.host = field.NormalAuthority(s.now.proto, q.Head.Host)
	s.asked = s.now
	if s.trusted = h.trust.names(peer); s.trusted {
		s.forwarded, s.xff, s.asked = chains(claimsOf(q.Head), s.now)
		s.client = h.clients.Named(peer, s.xff)
	}
	return s
}

// claimsOf is claimsIn for a request in which each name stands once.
func claimsOf(head *message.Request) claims {
	return claims{head.Value("Forwarded"), head.Value("X-Forwarded-For"), head.Value("X-Forwarded-Host"), head.Value("X-Forwarded-Proto")}
}

// outgoing is the request that the upstream gets: its target, and its fields, which
// rules may change.
type outgoing struct {
	to     target
	fields field.Lines
	// value is valueOf, made once. It holds while the rules are applied.
	value func(variable string) string
	q     *lane.ForwardRequest
	from  *sender
}

// request writes the request as Outgoing and the pool would. collect has made its
// fields.
func (p *passage) request(q *lane.ForwardRequest, from *sender) ([]byte, error) {
	h, head := p.handler, q.Head
	host := h.host
	switch host {
	case "upstream":
		host = ""
	case "client":
		host = from.now.host
	}
	to := &p.out.to
	lines := p.Lines(host, to.path, to.query, to.asks, head.Length)
	lines.Method = head.Method
	b, err := lines.AppendStart(q.Out)
	if err != nil {
		return nil, err
	}
	fields := p.out.fields
	nameless := h.rules != nil && fields.First("User-Agent") == ""
	for _, l := range fields {
		if nameless && l.Name == "User-Agent" {
			continue // see http1.Request
		}
		b = appendLine(b, field.Spelling(l.Name), l.Value)
	}
	b = from.appendChains(b)
	b = append(b, "Via: "...)
	if via := head.Value("Via"); via != "" {
		b = append(append(b, via...), ", "...)
	}
	version := "1.1 "
	if q.Head.Major == 2 {
		version = "2.0 "
	}
	b = append(append(b, version...), pseudonym+"\r\n\r\n"...)
	return append(b, q.Body...), nil
}

// collect makes the fields of the request, except Forwarded, X-Forwarded-For and Via,
// which rules cannot change.
func (o *outgoing) collect(h *Handler, q *lane.ForwardRequest, from *sender) {
	head, strip := q.Head, h.paths.strip
	o.fields = o.fields[:0]
	for _, l := range head.Fields {
		switch l.Name {
		case "Content-Length", "Via", "Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host":
			continue
		case "X-Forwarded-Prefix":
			if strip != "" {
				continue
			}
		}
		if !q.Head.Replaced(l.Name) && !isConnectionLevel(l.Name) && !h.forged(l.Name) && (from.trusted || !field.Claim(l.Name)) {
			o.fields = append(o.fields, l)
		}
	}
	o.fields.Add("X-Forwarded-Proto", from.asked.proto)
	if from.asked.host != "" {
		o.fields.Add("X-Forwarded-Host", from.asked.host)
	}
	if strip != "" {
		if claimed := head.Value("X-Forwarded-Prefix"); from.trusted && claimed != "" {
			strip = before([]string{claimed}) + strip
		}
		o.fields.Add("X-Forwarded-Prefix", strip)
	}
	for _, l := range q.Head.Set {
		if l.Value != "" {
			o.fields = append(o.fields, l)
		}
	}
	if h.rules == nil {
		return
	}
	if !o.fields.Has("User-Agent") {
		o.fields.Add("User-Agent", "") // as outgoingHeader has it, for the rules
	}
	o.q, o.from = q, from
	h.rules.Apply(&o.fields, o.value)
	o.q, o.from = nil, nil
}

// valueOf is what a variable stands for.
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
		return o.q.Head.Method
	case "path":
		return o.q.Head.Path
	case "query":
		return o.q.Head.Query
	}
	if o.q.Head.ID == "" {
		return rand.Text()
	}
	return o.q.Head.ID
}

// appendChains appends Forwarded and X-Forwarded-For.
func (s *sender) appendChains(b []byte) []byte {
	b = append(b, "Forwarded: "...)
	if s.forwarded == "" {
		b = s.now.append(b)
	} else {
		b = append(b, appendChain(s.forwarded, s.now.forwarded())...)
	}
	b = append(b, "\r\nX-Forwarded-For: "...)
	if s.xff == "" {
		b = append(b, s.now.node...)
	} else {
		b = append(b, appendChain(s.xff, s.now.node)...)
	}
	return append(b, "\r\n"...)
}
