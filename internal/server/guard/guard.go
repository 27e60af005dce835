// Package guard has the routes that need no job: they redirect a request or deny
// it, as a route of the config says.
package guard

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/wire/pages"
)

// The statuses that a Redirect and a Deny may use.
var (
	redirectStatuses = []int{301, 302, 303, 307, 308}
	denyStatuses     = []int{403, 404, 410, 451, 503}
)

// Redirect sends the client to another address.
type Redirect struct {
	// To is the target: an absolute URL (https://example.org/new) or a path
	// on the same host (/new). When both the route and To end in "/",
	// what follows the route in the request is appended. The request's query
	// is kept unless To brings its own; a "?" at the end drops it. {1} is what the first star of the route
	// or the first group of a rule's regex stands for, and {host}, {path}, {uri},
	// {query} and {scheme} are the request's. Required.
	To string `yaml:"to"`
	// Status is 301, 302, 303, 307 or 308. Default 308: permanent, and the
	// method and body stay as they were (RFC 9110, 15.4.9).
	Status int `yaml:"status"`
}

// Check returns what is wrong with the options, by the key it is wrong with.
func (d Redirect) Check() map[string]error {
	faults := map[string]error{}
	if err := checkTarget(d.To); err != nil {
		faults["to"] = err
	}
	if err := checkStatus(d.Status, redirectStatuses); err != nil {
		faults["status"] = err
	}
	return faults
}

func checkTarget(to string) error {
	if to == "" {
		return errors.New("redirect needs \"to\": a path like /new or an address like https://example.org/new")
	}
	// A backslash is a slash to browsers: /\example.org would leave the host.
	if strings.ContainsFunc(to, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' }) {
		return fmt.Errorf("%q holds a space, a backslash or a control character", to)
	}
	u, err := url.Parse(withoutPlaceholders(to))
	switch {
	case err != nil:
		return fmt.Errorf("%q is not an address: %w", to, errors.Unwrap(err))
	case strings.HasPrefix(to, "//"):
		return fmt.Errorf("%q names a host without a scheme: write https:%s", to, to)
	case strings.HasPrefix(to, "/"):
		return nil
	case strings.HasPrefix(to, "{scheme}://"), to[0] == '{' && !strings.HasPrefix(to, "{scheme}"):
		return nil
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%q is neither a path like /new nor an http or https address", to)
	case u.Hostname() == "":
		return fmt.Errorf("%q names no host", to)
	}
	return nil
}

// withoutPlaceholders puts letters where placeholders are: in a host, braces
// could not be.
func withoutPlaceholders(to string) string {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(to, "{")
		b.WriteString(before)
		_, after, closed := strings.Cut(rest, "}")
		if !ok || !closed {
			return b.String()
		}
		b.WriteString("x")
		to = after
	}
}

func checkStatus(status int, allowed []int) error {
	if status == 0 || slices.Contains(allowed, status) {
		return nil
	}
	var list strings.Builder
	for i, s := range allowed {
		switch {
		case i == len(allowed)-1:
			list.WriteString(" or ")
		case i > 0:
			list.WriteString(", ")
		}
		list.WriteString(strconv.Itoa(s))
	}
	return fmt.Errorf("status %d does not fit here: use %s", status, &list)
}

// Handler returns the handler for a route of the config. It must see the
// request's whole path, the route's prefix not stripped.
func (d Redirect) Handler(route string) http.Handler {
	status := cmp.Or(d.Status, http.StatusPermanentRedirect)
	subtree := strings.HasSuffix(route, "/") && strings.HasSuffix(d.To, "/") && !strings.ContainsAny(d.To, "?#")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to := d.To
		if subtree {
			to += remainder(r.URL, route)
		}
		if bare, dropped := strings.CutSuffix(to, "?"); dropped {
			to = bare
		} else {
			to = withQuery(to, r.URL.RawQuery)
		}
		redirect(w, to, status)
	})
}

// remainder is the escaped part of the path after the route. Leading slashes and
// backslashes are removed: with To "/" they would name another host (//evil.test).
func remainder(u *url.URL, route string) string {
	if u.Path == route[:len(route)-1] {
		return "" // a subtree's route covers its own name without the slash
	}
	rest, ok := strings.CutPrefix(u.EscapedPath(), (&url.URL{Path: route}).EscapedPath())
	if !ok { // the route itself came escaped in another way
		rest = (&url.URL{Path: strings.TrimPrefix(u.Path, route)}).EscapedPath()
		rest = strings.TrimPrefix(rest, "./") // added by EscapedPath before a colon
	}
	return strings.TrimLeft(rest, `/\`)
}

// withQuery adds the query to an address that has none, before its fragment.
func withQuery(to, query string) string {
	if query == "" || strings.Contains(to, "?") {
		return to
	}
	address, fragment, has := strings.Cut(to, "#")
	address += "?" + query
	if has {
		address += "#" + fragment
	}
	return address
}

// SendTo sends a client to an address, which is escaped but for bytes from 0x80 on.
func SendTo(w http.ResponseWriter, to string, status int) { redirect(w, to, status) }

// redirect sends a redirect without a body. http.Redirect would clean the path,
// and so change what the operator wrote.
func redirect(w http.ResponseWriter, to string, status int) {
	w.Header().Set("Location", escapeNonASCII(to))
	http.Error(w, strconv.Itoa(status)+" "+http.StatusText(status), status)
}

// escapeNonASCII percent-encodes a Location's bytes from 0x80 on (RFC 3986, 2):
// net/http allows them in a query.
func escapeNonASCII(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 }) {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		if s[i] < 0x80 {
			b.WriteByte(s[i])
		} else {
			fmt.Fprintf(&b, "%%%02X", s[i])
		}
	}
	return b.String()
}

// ToHTTPS returns a handler that sends every request to the same address under
// https with a 308. port is the TLS listener's; "" and "443" are left out of
// the address. A request without a valid Host gets 400, and one for an unknown
// host 404: a Location with an arbitrary Host could be used to poison caches and
// links. known gets the host without its port.
func ToHTTPS(port string, known func(host string) bool) http.Handler {
	suffix := ""
	if port != "" && port != "443" {
		suffix = ":" + port
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, ok := hostname(r.Host)
		uri := r.URL.RequestURI()
		if !ok || r.Method == http.MethodConnect || !strings.HasPrefix(uri, "/") {
			pages.Error(w, r, http.StatusBadRequest, "")
			return
		}
		if !known(host) {
			pages.Error(w, r, http.StatusNotFound, pages.NoSite)
			return
		}
		redirect(w, "https://"+host+suffix+uri, http.StatusPermanentRedirect)
	})
}

// hostname removes the port from a Host header (RFC 9110, 7.2) and reports
// whether the rest is valid in a URL: a DNS name or an IP address.
func hostname(host string) (name string, ok bool) {
	if strings.HasPrefix(host, "[") {
		end := strings.IndexByte(host, ']')
		if end < 0 || !portOrNothing(host[end+1:]) {
			return "", false
		}
		ip, err := netip.ParseAddr(host[1:end])
		return host[:end+1], err == nil && ip.Is6() && ip.Zone() == ""
	}
	name, port, has := strings.Cut(host, ":")
	if has && !portOrNothing(":"+port) {
		return "", false
	}
	const longestName = 253 // RFC 1035, 2.3.4, without the length bytes
	if name == "" || len(name) > longestName {
		return "", false
	}
	bad := strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
	})
	return name, !bad
}

func portOrNothing(s string) bool {
	if s == "" || s == ":" {
		return true
	}
	_, err := strconv.ParseUint(s[1:], 10, 16)
	return s[0] == ':' && err == nil
}

// Deny refuses a request.
type Deny struct {
	// Status is 403, 404, 410, 451 or 503. Default 403.
	Status int `yaml:"status"`
}

// Check returns what is wrong with the options, by the key it is wrong with.
func (d Deny) Check() map[string]error {
	if err := checkStatus(d.Status, denyStatuses); err != nil {
		return map[string]error{"status": err}
	}
	return nil
}

// Handler returns the handler that answers every request with the status.
func (d Deny) Handler() http.Handler {
	status := cmp.Or(d.Status, http.StatusForbidden)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pages.Error(w, r, status, "")
	})
}
