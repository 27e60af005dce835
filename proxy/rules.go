package proxy

import (
	"net/http"
	"net/netip"
	"slices"

	"millrace/internal/route/headers"
	"millrace/internal/wire/field"
	"millrace/internal/wire/netset"
)

// variables are what a value of request_headers may have.
var variables = []string{"client_ip", "host", "scheme", "method", "path", "query", "request_id"}

// mayChange says why a field of requests is not the operator's to change.
func mayChange(name string, _ headers.Op) string {
	switch {
	case name == "Host":
		return `it is set by "host"`
	case name == "Content-Length" || name == "Expect" || isConnectionLevel(name):
		return "it belongs to the connection"
	case name == "Forwarded" || name == "X-Forwarded-For" || name == "Via":
		return "it says which proxies a request has passed"
	}
	return ""
}

// newRules returns what is wrong by the key it is wrong with.
func newRules(o Options) (*headers.Rules, map[string]error) {
	rules, wrong := headers.Compile(o.RequestHeaders, mayChange, variables)
	faults := map[string]error{}
	for key, err := range wrong {
		faults["request_headers."+key] = err
	}
	return rules, faults
}

// changedBy are the fields that rules are for, folded.
func changedBy(rules *headers.Rules) (names []string) {
	for _, name := range rules.Names() {
		names = append(names, field.Fold(name))
	}
	return names
}

// ours reports whether a field, in any spelling, is one of request_headers.
func (h *Handler) ours(name string) bool {
	return len(h.changed) > 0 && slices.Contains(h.changed, field.Fold(name))
}

// Varies reports whether request_headers tell the upstream who asks.
func (o *Options) Varies() bool {
	rules, _ := newRules(*o)
	return rules.Varies()
}

// applyRules changes the header of an outgoing request. Fields in any other
// spelling than a rule's were removed already.
func (h *Handler) applyRules(header http.Header, r *http.Request) {
	h.rules.Apply(field.Map(header), func(variable string) string {
		switch variable {
		case "client_ip":
			return h.clientIP(r)
		case "host":
			_, host := h.AskedHTTP(r)
			return host
		case "scheme":
			scheme, _ := h.AskedHTTP(r)
			return scheme
		case "method":
			return r.Method
		case "path":
			return r.URL.EscapedPath()
		case "query":
			return r.URL.RawQuery
		}
		return headers.ID(r.Context())
	})
}

// remote is the client's address and port as balancers, the queue's turns and the
// PROXY protocol go by them. Behind a trusted proxy the port is not known, and 0.
func (h *Handler) remote(r *http.Request) string {
	if h.trust.Empty() {
		return r.RemoteAddr
	}
	client, err := netip.ParseAddr(h.clientIP(r))
	if err != nil || client == netset.Peer(r.RemoteAddr) {
		return r.RemoteAddr
	}
	return netip.AddrPortFrom(client, 0).String()
}

// clientIP is the address of the client: of the connection, or what a trusted
// proxy says of its own client; of that one's claims nothing is believed
// unless it is trusted as well.
func (h *Handler) clientIP(r *http.Request) string {
	p := h.trust.peerOf(r)
	node := p.received(r).node
	if !p.trusted {
		return node
	}
	_, xff, _ := chains(claimsIn(r.Header), p.received(r))
	if client := h.clients.Named(p.addr, xff); client.IsValid() {
		return client.String()
	}
	return node
}
