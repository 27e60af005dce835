package proxy

import (
	"slices"

	"millrace/internal/route/headers"
	"millrace/internal/wire/field"
)

// variables are what a value of request_headers may have.
var variables = []string{"client_ip", "host", "scheme", "method", "path", "query", "uri", "request_id"}

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
