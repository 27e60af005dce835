package headers

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// longestOrigin is how long an Origin may be: a host has 253 bytes at most
// (RFC 1035, 2.3.4).
const longestOrigin = 300

// origin is a scheme, host and port in normal form (Fetch Standard, 3.1; RFC
// 6454, 6.2). The zero value is "null", that of documents which have none.
type origin struct {
	scheme, host string // in lower case
	port         string // "" for the scheme's own
}

var errNotOrigin = errors.New("an origin is a scheme and a host, like https://blog.example")

func (o origin) String() string {
	switch {
	case o.scheme == "":
		return "null"
	case o.port == "":
		return o.scheme + "://" + o.host
	}
	return o.scheme + "://" + o.host + ":" + o.port
}

// below is the rule for all hosts below one: its origin's host.
type below struct {
	origin origin
	rule   int
}

// has reports whether o is below b at any depth. What is before the suffix has
// at least one label and ends in a dot, so evil-example.org is not below
// example.org, nor is that itself.
func (b below) has(o origin) bool {
	labels, ok := strings.CutSuffix(o.host, b.origin.host)
	return ok && len(labels) > 1 && strings.HasSuffix(labels, ".") && o.scheme == b.origin.scheme && o.port == b.origin.port
}

// parseOrigin reads an origin, and nothing that has more to it than one: no path, not
// even a slash, and no user.
func parseOrigin(s string) (o origin, err error) {
	if s == "null" {
		return origin{}, nil
	}
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || len(s) > longestOrigin || !validScheme(scheme) {
		return o, errNotOrigin
	}
	o.scheme = strings.ToLower(scheme)
	host := rest
	if i := strings.LastIndexByte(rest, ':'); i > strings.LastIndexByte(rest, ']') {
		host = rest[:i]
		if o.port, err = normalPort(o.scheme, rest[i+1:]); err != nil {
			return origin{}, err
		}
	}
	if o.host, err = normalHost(host); err != nil {
		return origin{}, err
	}
	return o, nil
}

// validScheme is RFC 3986, 3.1. Besides http and https, apps and extensions of
// browsers have their own.
func validScheme(s string) bool {
	for i := range len(s) {
		c := s[i] | 0x20
		if letter := c >= 'a' && c <= 'z'; !letter && (i == 0 || (s[i] < '0' || s[i] > '9') && strings.IndexByte("+-.", s[i]) < 0) {
			return false
		}
	}
	return s != ""
}

func normalPort(scheme, port string) (string, error) {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || port[0] == '+' {
		return "", fmt.Errorf("%q is not a port", port)
	}
	if n == 80 && scheme == "http" || n == 443 && scheme == "https" {
		return "", nil
	}
	return strconv.FormatUint(n, 10), nil
}

// normalHost checks and normalises a host name, which may end in a dot, or an
// address. A browser writes names of other alphabets in ASCII (xn--…), so
// that is how they are compared.
func normalHost(host string) (string, error) {
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, closed := strings.CutSuffix(inner, "]")
		addr, err := netip.ParseAddr(inner)
		if !closed || err != nil || !addr.Is6() || addr.Zone() != "" {
			return "", fmt.Errorf("%q is not an IPv6 address", host)
		}
		return "[" + addr.String() + "]", nil
	}
	label := 0
	for i := range len(host) {
		c := host[i]
		switch {
		case c == '.' && label > 0:
			label = 0
			continue
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
			label++
			continue
		case c >= 0x80:
			return "", fmt.Errorf("the host %q is not in ASCII: write it as browsers do, beginning with xn--", host)
		}
		return "", errNotOrigin
	}
	if host == "" {
		return "", errNotOrigin
	}
	return strings.ToLower(host), nil
}
