package config

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// unixPrefix marks the path of a UNIX socket among addresses.
const unixPrefix = "unix:"

// longestSocket is how long a UNIX socket's path may be (sun_path of Linux is
// 108 bytes with the final NUL; other systems have 104).
const longestSocket = 103

// Address is where a listener is: a TCP host and port, or a UNIX socket.
type Address struct {
	Host string // "" is every interface, 0.0.0.0 that for IPv4, :: for IPv6
	Port int    // 0 lets the system choose
	Unix string // the socket's path, instead of both
}

// ParseAddress reads host:port, :port and unix:/path.
func ParseAddress(s string) (Address, error) {
	if path, ok := strings.CutPrefix(s, unixPrefix); ok {
		switch {
		case path == "":
			return Address{}, fmt.Errorf("%q names no socket: write unix:/path", s)
		case len(path) > longestSocket:
			return Address{}, fmt.Errorf("the socket's path has %d bytes, more than the %d that systems allow", len(path), longestSocket)
		}
		return Address{Unix: path}, nil
	}
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return Address{}, fmt.Errorf("%q is not an address: it has no port", s)
	}
	host, port := s[:i], s[i+1:]
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return Address{}, fmt.Errorf("%q is not an address: the port must be a number up to 65535", s)
	}
	if inner, ok := strings.CutPrefix(host, "["); ok && strings.HasSuffix(inner, "]") {
		ip, err := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		if err != nil || !ip.Is6() {
			return Address{}, fmt.Errorf("%q is not an address: %s is not an IPv6 address", s, host)
		}
		return Address{Host: ip.String(), Port: int(n)}, nil
	}
	if strings.ContainsAny(host, ":[]/ \t@?#") || strings.HasPrefix(host, ".") {
		return Address{}, fmt.Errorf("%q is not an address: write host:port", s)
	}
	return Address{Host: host, Port: int(n)}, nil
}

// addressHint says what was probably meant by something that is not an address.
func addressHint(s string) string {
	const forms = "host:port, :port (every interface) or unix:/path"
	_, portOnly := strconv.ParseUint(s, 10, 16)
	ip, notIP := netip.ParseAddr(s)
	rest, scheme := strings.CutPrefix(s, "http://")
	switch {
	case portOnly == nil:
		return fmt.Sprintf("did you mean \"127.0.0.1:%s\" (this machine) or \":%s\" (every interface)?", s, s)
	case notIP == nil && ip.Is6():
		return fmt.Sprintf("did you mean \"[%s]:8080\"?", s)
	case scheme:
		return fmt.Sprintf("did you mean %q?", strings.TrimSuffix(rest, "/"))
	case strings.HasPrefix(s, "https://"):
		return "addresses for HTTPS belong into tls.listen (--tls-listen), without https://"
	case strings.HasPrefix(s, "/") || strings.HasPrefix(s, "./"):
		return fmt.Sprintf("did you mean \"unix:%s\"?", s)
	case !strings.Contains(s, ":") && s != "":
		return fmt.Sprintf("did you mean \"%s:8080\"?", s)
	}
	return forms
}

// CheckAddress is nil for an address that a listener can have; the error's
// text ends in what to write instead.
func CheckAddress(s string) error {
	if _, err := ParseAddress(s); err != nil {
		return fmt.Errorf("%w; %s", err, addressHint(s))
	}
	return nil
}

// String is the address as a config has it.
func (a Address) String() string {
	if a.Unix != "" {
		return unixPrefix + a.Unix
	}
	host := a.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(a.Port)
}

// overlaps reports whether the system would refuse the one after the other.
func (a Address) overlaps(b Address) bool {
	if a.Unix != "" || b.Unix != "" {
		return a.Unix == b.Unix
	}
	if a.Port != b.Port || a.Port == 0 {
		return false
	}
	x, y := a.family(), b.family()
	return a.Host == b.Host || x == every || y == every ||
		x == every4 && (y == one4 || y == every4) || y == every4 && x == one4 ||
		x == every6 && (y == one6 || y == every6) || y == every6 && x == one6
}

// What an address covers.
const (
	every = iota // every interface, IPv4 and IPv6
	every4
	every6
	one4
	one6
	name
)

func (a Address) family() int {
	ip, err := netip.ParseAddr(a.Host)
	ip = ip.Unmap()
	switch {
	case a.Host == "":
		return every
	case err != nil:
		return name
	case ip.Is4() && ip.IsUnspecified():
		return every4
	case ip.IsUnspecified():
		return every6
	case ip.Is4():
		return one4
	}
	return one6
}
