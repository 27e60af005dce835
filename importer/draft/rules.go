package draft

import (
	"net/netip"
	"slices"
	"strings"
)

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
