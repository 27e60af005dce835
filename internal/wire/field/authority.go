package field

// This file has the one spelling of the host and port that a request names, so
// that what is compared, and what is passed on, are the same.

import (
	"strings"
)

// NormalAuthority is a Host field of a request for a scheme in its one spelling (RFC
// 9110, 4.2.3; RFC 3986, 3.2.2): in lower case, without the scheme's own port
// or an empty one, and without the dot that ends an absolute name. Otherwise it
// stays as it is: what is not a host does not become one.
func NormalAuthority(scheme, host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && oneName(host[:i]) {
		switch port := host[i+1:]; {
		case port == "", port == "80" && scheme == "http", port == "443" && scheme == "https":
			host = host[:i]
		}
	}
	return Lower(withoutDot(host)) // only ASCII has two cases in a host (RFC 4343)
}

// oneName reports whether a port may stand behind s: colons are in brackets.
func oneName(s string) bool {
	return strings.IndexByte(s, ':') < 0 || s[0] == '[' && s[len(s)-1] == ']'
}

// withoutDot cuts off the dot that ends an absolute name. Two dots end no name.
func withoutDot(host string) string {
	name, port, found := strings.Cut(host, ":")
	if len(name) < 2 || name[len(name)-1] != '.' || name[len(name)-2] == '.' || found && name[0] == '[' {
		return host
	}
	if name = name[:len(name)-1]; !found {
		return name
	}
	return name + ":" + port
}
