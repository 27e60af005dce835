package match

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"millrace/internal/wire/message"
)

// Asked is a request as rules see it.
type Asked struct {
	Head *message.Request
	// Path and Query are what rules have made of the request's; the path is decoded.
	Path, Query string
	// Moved: they are not those of Head.
	Moved bool
}

// Of returns what a handler is asked for.
func Of(r *http.Request) *Asked {
	a := &Asked{Head: new(message.Request), Path: r.URL.Path, Query: r.URL.RawQuery}
	a.Head.Of(r)
	return a
}

// Move gives the request another path and query.
func (a *Asked) Move(path, query string) {
	if path != a.Path || query != a.Query {
		a.Path, a.Query, a.Moved = path, query, true
	}
}

// URI returns path and query as they are sent.
func (a *Asked) URI() string {
	if !a.Moved {
		return a.Head.URI()
	}
	return (&url.URL{Path: a.Path, RawQuery: a.Query}).RequestURI()
}

// Host is the name or address in a Host field, without the port, in lower case; ""
// where something else stands there, which must not become part of a path or address.
func Host(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if !isHost(host) {
		return ""
	}
	return host
}

// isHost reports whether s is made of what names and addresses of hosts are.
func isHost(s string) bool {
	return s != "" && s != "." && s != ".." && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && !strings.ContainsRune("-._:[]", c)
	})
}

// addressBy is who sent a request, as a [Scope] finds it; nil: the connection's other end.
type addressBy func(*message.Request) netip.Addr

func (by addressBy) of(a *Asked) netip.Addr {
	if by == nil {
		return a.Head.Peer
	}
	return by(a.Head)
}
