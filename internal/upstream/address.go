package upstream

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// address is one of Options.To.
type address struct {
	text   string // as it was written
	scheme string // http, https, h2c, unix; http and https for ws and wss
	host   string // host or host:port; localhost for a socket
	socket string // path of a UNIX socket, else ""
	prefix string // put before the request's path, escaped, without a last slash
}

// parseAddress reads one of Options.To.
func parseAddress(text string) (address, error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		path = strings.TrimPrefix(path, "//") // unix:///run/x.sock, as curl users write it
		if path == "" || strings.ContainsRune(path, 0) {
			return address{}, fmt.Errorf("%q names no socket: write unix:/run/api.sock", text)
		}
		return address{text: text, scheme: "unix", host: "localhost", socket: path}, nil
	}
	if !strings.Contains(text, "://") {
		return address{}, fmt.Errorf("%q is not an address: did you mean %q?", text, "http://"+guessHost(text))
	}
	u, err := url.Parse(text)
	if err != nil {
		return address{}, fmt.Errorf("%q is not an address: write http://127.0.0.1:5000", text)
	}
	scheme := u.Scheme
	switch scheme { // RFC 6455, 3: the same ports and ways
	case "ws":
		scheme = "http"
	case "wss":
		scheme = "https"
	}
	switch {
	case scheme != "http" && scheme != "https" && scheme != "h2c":
		return address{}, fmt.Errorf("%q: %q is not supported: use http://, https://, h2c:// or unix:/path", text, u.Scheme)
	case u.Hostname() == "":
		return address{}, fmt.Errorf("%q names no host: write %s://127.0.0.1:5000", text, u.Scheme)
	case u.User != nil:
		return address{}, fmt.Errorf("%q: an address must not have a name and password: let the client or a header rule send Authorization", u.Redacted())
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return address{}, fmt.Errorf("%q: an address ends with its path, without ? and #", text)
	}
	prefix := strings.TrimRight(u.EscapedPath(), "/")
	return address{text: text, scheme: scheme, host: u.Host, prefix: prefix}, nil
}

// guessHost turns "5000" and ":5000" into an address of this machine.
func guessHost(text string) string {
	text = strings.TrimPrefix(text, ":")
	if strings.Trim(text, "0123456789") == "" {
		return net.JoinHostPort("127.0.0.1", text)
	}
	return text
}

// urlScheme is what net/http calls the scheme: h2c and sockets are http with
// another protocol, or dialer.
func (a address) urlScheme() string {
	if a.scheme == "https" {
		return "https"
	}
	return "http"
}

// targetOf is the path of r exactly as it came in, with its escapes; URL keeps the
// query raw anyway. URL.EscapedPath would escape bytes that RFC 3986 does not
// allow, such as | and ", and so change the path.
func targetOf(r *http.Request) string {
	path := r.URL.EscapedPath()
	if raw := r.URL.RawPath; raw != "" && raw != path {
		if same, err := url.PathUnescape(raw); err == nil && same == r.URL.Path {
			path = raw
		}
	}
	switch {
	case path == "":
		path = "/"
	case path[0] != '/' && path != "*":
		path = "/" + path
	}
	return path
}

// sendable reports whether a part of a target keeps the request line in one
// piece: a space or line break would end it, or begin another request.
func sendable(part string) bool {
	for i := range len(part) {
		if part[i] <= ' ' || part[i] == 0x7f {
			return false
		}
	}
	return true
}

// check returns why a request cannot be sent; nil: it can.
func (q *Request) check() error {
	switch {
	case q.Method == http.MethodConnect:
		return errConnect
	case !sendable(q.Path), !sendable(q.Query), !strings.HasPrefix(q.Path, "/") && q.Path != "*":
		return errTarget
	}
	return nil
}

// urlFor is the URL that makes net/http send the target as it is, behind the prefix.
func (a address) urlFor(q *Request) url.URL {
	u := url.URL{Scheme: a.urlScheme(), Host: a.host, RawQuery: q.Query, ForceQuery: q.Asks && q.Query == ""}
	target := q.Path
	if target != "*" {
		target = a.prefix + target
	}
	if strings.HasPrefix(target, "//") {
		// net/http would read Opaque as a host. Path and RawPath do the same
		// unless there are bytes in it that RFC 3986 forbids; those get escaped.
		u.RawPath = target
		u.Path, _ = url.PathUnescape(target) // was valid when it was parsed
		return u
	}
	u.Opaque = target
	return u
}
