package remote

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
)

// longestName is the longest path that is asked for.
const longestName = 2048

// nameOf turns a request's path into the name of a file. ok is false for what
// is none: dot segments, empty ones, backslashes, control characters, and
// slashes that were percent-encoded. The query has no part in it.
func nameOf(u *url.URL) (name string, ok bool) {
	raw := strings.ToLower(u.RawPath)
	if strings.Contains(raw, "%2f") || strings.Contains(raw, "%5c") {
		return "", false
	}
	name = strings.TrimPrefix(u.Path, "/")
	return name, validName(name)
}

func validName(name string) bool {
	bad := func(c rune) bool { return c < ' ' || c == 0x7f || c == '\\' }
	return name != "." && len(name) <= longestName && fs.ValidPath(name) && !strings.ContainsFunc(name, bad)
}

// url is where a name's file is.
func (s *Source) url(name string) *url.URL {
	u := *s.base
	u.Path, u.RawPath = path.Join("/", u.Path, name), ""
	return &u
}

// base reads From.
func (o Options) base() (*url.URL, error) {
	u, err := url.Parse(o.From)
	switch {
	case err != nil:
		return nil, errors.New("it cannot be read: write https://pictures.example.org/archive")
	case u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "":
		return nil, errors.New("not a web address: write https://pictures.example.org/archive")
	case u.User != nil:
		return nil, errors.New("an address with a password is not supported: let the host know this machine by its address")
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return nil, errors.New("a path is appended to it, so it cannot have a query or a fragment")
	case u.RawPath != "" || u.Path != "" && !fs.ValidPath(strings.Trim(u.Path, "/")) && u.Path != "/":
		return nil, errors.New("its path has empty, dotted or encoded parts: write it plainly")
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil && !o.Private && !public(a) {
		return nil, fmt.Errorf("%s is a private address: add private: true if that is meant", a)
	}
	return u, nil
}

// host is one that may be asked.
type host struct {
	name  string // in lower case; of all names below it, if below is set
	port  string // "": the usual one of the scheme
	below bool
}

// parseHost reads an entry of Options.Hosts.
func parseHost(text string) (host, error) {
	h := host{name: strings.ToLower(text)}
	if name, port, err := net.SplitHostPort(h.name); err == nil {
		h.name, h.port = name, port
	}
	h.name, h.below = strings.CutPrefix(h.name, "*.")
	h.name = strings.Trim(h.name, "[]")
	bad := func(c rune) bool {
		return c <= ' ' || c == '/' || c == '*' || c == '@' || c == '?' || c == '#' || c == 0x7f
	}
	_, err := netip.ParseAddr(h.name)
	_, noPort := strconv.ParseUint(h.port, 10, 16)
	if h.name == "" || h.port != "" && noPort != nil || strings.ContainsFunc(h.name, bad) || err != nil && strings.Contains(h.name, ":") {
		return host{}, fmt.Errorf("%q is not a host: write a name, like img.example.org, img.example.org:8443 or *.example.org", text)
	}
	return h, nil
}

func usualPort(scheme string) string {
	if scheme == "https" {
		return "443"
	}
	return "80"
}

func (h host) matches(u *url.URL) bool {
	usual := usualPort(u.Scheme)
	if cmp.Or(h.port, usual) != cmp.Or(u.Port(), usual) {
		return false
	}
	name := strings.ToLower(u.Hostname())
	if h.below {
		return strings.HasSuffix(name, "."+h.name)
	}
	return name == h.name
}

// allowed says why a URL that a redirect leads to may not be asked for.
func (s *Source) allowed(u *url.URL) error {
	switch {
	case u.Scheme != "https" && (u.Scheme != "http" || s.base.Scheme == "https"):
		return fmt.Errorf("%w: to the scheme %q", errRedirect, u.Scheme)
	case u.User != nil:
		return fmt.Errorf("%w: with a password", errRedirect)
	}
	for _, h := range s.hosts {
		if h.matches(u) {
			return nil
		}
	}
	return fmt.Errorf("%w: to %s, which is not among the hosts; add it to hosts if that is meant", errRedirect, u.Host)
}
