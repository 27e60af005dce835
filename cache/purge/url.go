package purge

import (
	"errors"
	"fmt"
	"strings"

	"millrace/internal/wire/field"
)

// place is where an object is, in the form that is compared.
type place struct {
	url  string // scheme://host/path?query
	bare string // the same without scheme://
	name string // of the host
	port string // also when it is the scheme's; "" if neither is known
}

// placeOf does not allocate for a URL that is in its normal form already.
func placeOf(o *Object) place {
	p := cut(o.URL)
	at := place{url: o.URL}
	if !p.is(o.URL) {
		at.url = p.join()
	}
	at.bare = at.url
	if p.scheme != "" {
		at.bare = at.url[len(p.scheme)+len("://"):]
	}
	host := p.host
	if o.Host != "" {
		host = field.Lower(o.Host)
	}
	at.name, at.port = cutPort(host)
	if at.port == "" {
		at.port = defaultPort(p.scheme)
	}
	return at
}

// parts are the pieces of a URL in their normal form.
type parts struct {
	scheme string // in lower case; "" if not known
	host   string // in lower case, with its port unless that is the scheme's
	path   string // from the path on, without a fragment; begins with "/"
}

// cut takes a URL apart. It never fails: check tells what is wrong with a
// selector, and an object's URL is what a request could be answered for.
func cut(url string) parts {
	scheme, after := cutScheme(url)
	after, _, _ = strings.Cut(after, "#")
	host, rest := after, "/"
	if i := strings.IndexAny(after, "/?"); i >= 0 {
		host, rest = after[:i], after[i:]
		if rest[0] == '?' {
			rest = "/" + rest
		}
	}
	host = field.Lower(host)
	name, port := cutPort(host)
	if scheme == "" { // a well-known port tells it
		switch port {
		case "80":
			scheme = "http"
		case "443":
			scheme = "https"
		}
	}
	if (port == "" || port == defaultPort(scheme)) && (host == "" || host[0] == '[' || !strings.Contains(name, ":")) {
		host = name // one that makes no sense is left for check
	}
	return parts{scheme, host, rest}
}

func (p *parts) join() string {
	if p.scheme == "" {
		return p.host + p.path
	}
	return p.scheme + "://" + p.host + p.path
}

// is reports whether join would give just that.
func (p *parts) is(url string) bool {
	if p.scheme != "" {
		after, ok := strings.CutPrefix(url, p.scheme)
		if !ok {
			return false
		}
		if url, ok = strings.CutPrefix(after, "://"); !ok {
			return false
		}
	}
	after, ok := strings.CutPrefix(url, p.host)
	return ok && after == p.path
}

// check says what is wrong with a URL in a selector.
func (p *parts) check(url string) error {
	if p.scheme != "" && p.scheme != "http" && p.scheme != "https" {
		return fmt.Errorf("%q is neither http nor https", url)
	}
	if p.host == "" {
		return fmt.Errorf("%q has no host: write https://example.com/path, or example.com/path for http and https", url)
	}
	if err := checkHost(p.host); err != nil {
		return fmt.Errorf("%q: %w", url, err)
	}
	return nil
}

func checkHost(host string) error {
	if host == "" {
		return errors.New("an empty host")
	}
	for i := range len(host) {
		if c := host[i]; c >= 0x80 {
			return fmt.Errorf("host %q is not ASCII: write it as requests do, with xn--", host)
		}
	}
	if strings.ContainsAny(host, "/?#@\\* ") {
		return fmt.Errorf("%q is not a host", host)
	}
	name, port := cutPort(host)
	if strings.Contains(name, ":") && !strings.HasPrefix(name, "[") {
		return fmt.Errorf("host %q: write an IPv6 address in brackets, [::1]", host)
	}
	if name == "" || strings.Trim(port, "0123456789") != "" || strings.HasSuffix(host, ":") {
		return fmt.Errorf("%q is not host:port", host)
	}
	return nil
}

// cutScheme finds the scheme before "://", in lower case. Wildcards may be part
// of it; anything else, like a = or a /, makes it part of a query.
func cutScheme(url string) (scheme, after string) {
	before, after, found := strings.Cut(url, "://")
	if !found || before == "" {
		return "", strings.TrimPrefix(url, "//")
	}
	for i := range len(before) {
		if c := before[i] | 0x20; (c < 'a' || c > 'z') && before[i] != '*' && before[i] != '?' {
			return "", url
		}
	}
	return field.Lower(before), after
}

// cutPort takes host:port apart; an IPv6 address keeps its brackets.
func cutPort(host string) (name, port string) {
	i := strings.LastIndexByte(host, ':')
	if i < 0 || strings.IndexByte(host[i:], ']') >= 0 {
		return host, ""
	}
	return host[:i], host[i+1:]
}

func defaultPort(scheme string) string {
	switch scheme {
	case "http":
		return "80"
	case "https":
		return "443"
	}
	return ""
}
