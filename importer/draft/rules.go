package draft

import (
	"net/netip"
	"slices"
	"strings"
)

// RemoveThis stands above a rule that closes a site.
const RemoveThis = "REMOVE THIS RULE when you have looked at: "

// Closed are rules that let nobody in until somebody has looked at what may have kept
// clients out.
func Closed(reasons []string) *Node {
	rules := List()
	for _, why := range reasons {
		rules.Add(Denied(403), RemoveThis+why)
	}
	return rules
}

// Denied refuses requests with a status.
func Denied(status int) *Node {
	deny := Map().Flow()
	if status != 403 {
		deny.Set("status", Number(status))
	}
	return Map().Set("deny", deny).Flow()
}

// NotImplemented answers for what was not translated.
func NotImplemented() *Node {
	return Map().Set("respond", Map().Set("status", Number(501)).Set("text", Text("not carried over")).Flow()).Flow()
}

// SetTrusted writes which proxies in front are trusted, and the field in which they name
// the client.
func SetTrusted(limits *Node, proxies []string, field string) {
	if len(proxies) == 0 {
		return
	}
	for i, p := range proxies {
		if network, err := netip.ParsePrefix(p); err == nil {
			proxies[i] = network.Masked().String()
		}
	}
	limits.Set("trusted_proxies", Texts(Unique(proxies)...))
	if field != "" && !strings.EqualFold(field, "X-Forwarded-For") {
		limits.Set("client_header", Text(field))
	}
}

// AppendNew appends a text that is not in the list.
func AppendNew(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// Unique is the list without what is empty, or stood in it before.
func Unique(list []string) (out []string) {
	for _, s := range list {
		if s != "" {
			out = AppendNew(out, s)
		}
	}
	return out
}
