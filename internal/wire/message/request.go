// Package message has the head of a request in one form, whichever protocol it came by.
// Rules, jobs and the requests to servers behind this one are made from it.
//
//	Parse          reads HTTP/1.1, a strict subset (request.go)
//	Assemble, Add  make it of the fields of HTTP/2 (request.go)
//	Of             makes it of a request of net/http (http.go)
//	HTTP           makes a request of net/http of it, for handlers (http.go)
package message

import (
	"net/http"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"

	"millrace/internal/wire/field"
	"millrace/internal/wire/netset"
)

// Request is the head of a request: as its client sent it, how it came, and what this
// program has found out about it. What Parse and Assemble accept is plain: each name
// stands once. [Of] keeps what net/http has read, such as several lines of a name.
type Request struct {
	Method, Target, Host string
	// Path and Query are the parts of Target. HasQuery: there is a question mark
	// between them, even if Query is empty.
	Path, Query string
	HasQuery    bool
	// Simple says that nothing in Path is encoded, and that net/url would write it just
	// so: "/a/b.html", not "/a%20b" or "//a".
	Simple bool
	// Length is the length of the body in bytes.
	Length int64
	// Upgrades says that the client asks for an upgrade to the protocol WebSocket.
	Upgrades bool
	// Fields are the fields besides Host. Lines of one name stand in the order in which
	// they came.
	Fields field.Lines
	// Major and Minor are the version of HTTP by which it came.
	Major, Minor int

	// Secure: it came over TLS. Subject is that of the client's certificate (RFC 4514); "":
	// none was proved.
	Secure  bool
	Subject string
	// Peer is the address of the connection's other end, the zero one for a UNIX socket,
	// and Port its port; 0: it is not known.
	Peer netip.Addr
	Port uint16

	// ID is its id, for rules and other servers; "": it has none.
	ID string
	// Set replaces fields of the same names on the way to other servers; one without a
	// value only removes them. Whoever is signed in is named there.
	Set []field.Line
	// Marks are like Set, and say nothing about who asks: the request's id, and its place
	// in a trace. A request whose answer is for everyone has them as well.
	Marks []field.Line

	inline [fewFields]field.Line
	parts  int // how many further parts of a Cookie have come over HTTP/2
}

// maxFields is the most header fields that Parse accepts.
const maxFields = 64

// fewFields is how many header fields are stored in the request itself.
const fewFields = 12

// methods are those that Parse accepts, each with the space behind it.
var methods = [...]string{"GET ", "POST ", "HEAD ", "PUT ", "PATCH ", "DELETE "}

// methodOf returns the method at the start of a head, "" for one that is not served.
func methodOf(head string) string {
	for _, m := range methods {
		if strings.HasPrefix(head, m) {
			return m[:len(m)-1]
		}
	}
	return ""
}

// Parse parses a complete head, as [End] has found it. It returns false for what net/http must
// serve. It accepts "Name: value" in printable ASCII, each name once, one Host in lower
// case, at most one Content-Length, an upgrade to WebSocket, and no other field that says
// how long the request is or what becomes of the connection.
func (h *Request) Parse(text string) bool {
	h.Method = methodOf(text)
	if h.Method == "" {
		return false
	}
	target, rest, ok := strings.Cut(text[len(h.Method)+1:], " ")
	if !ok || !strings.HasPrefix(rest, "HTTP/1.1\r\n") {
		return false
	}
	h.Target, h.Host, h.Length, h.Upgrades, h.Major, h.Minor = target, "", 0, false, 1, 1
	if h.Fields == nil {
		h.Fields = h.inline[:]
	}
	h.Fields = h.Fields[:0]
	if !h.parseTarget() || !h.parseFields(rest[len("HTTP/1.1\r\n"):]) {
		return false
	}
	return h.Length == 0 || h.Method != http.MethodGet && h.Method != http.MethodHead
}

// Value returns the value of a field by its canonical name, "" for none.
func (h *Request) Value(name string) string { return h.Fields.First(name) }

// Proto returns the version, as net/http writes it.
func (h *Request) Proto() string {
	switch {
	case h.Major == 3:
		return "HTTP/3.0"
	case h.Major == 2:
		return "HTTP/2.0"
	case h.Minor == 0:
		return "HTTP/1.0"
	}
	return "HTTP/1.1"
}

// Scheme returns "http" or "https", as the client has used it.
func (h *Request) Scheme() string {
	if h.Secure {
		return "https"
	}
	return "http"
}

// Client returns who sent the request: the connection's other end, or whom it names if it
// is a proxy that is believed; the zero address on a UNIX socket.
func (h *Request) Client(f *netset.Finder) netip.Addr {
	if !f.Trusts(h.Peer) {
		return h.Peer
	}
	return f.Named(h.Peer, h.Fields.Join(f.Header()))
}

// Replaced reports whether Set or Marks has a field.
func (h *Request) Replaced(name string) bool {
	is := func(l field.Line) bool { return l.Name == name }
	return slices.ContainsFunc(h.Set, is) || slices.ContainsFunc(h.Marks, is)
}

// AppendSet appends the fields of Set and Marks that have a value.
func (h *Request) AppendSet(to []field.Line) []field.Line {
	for _, added := range [...][]field.Line{h.Set, h.Marks} {
		for _, l := range added {
			if l.Value != "" {
				to = append(to, l)
			}
		}
	}
	return to
}

// Simple reports whether [Request.Simple] would be true for a path.
func Simple(path string) bool {
	if len(path) == 0 || path[0] != '/' || len(path) > 1 && path[1] == '/' {
		return false
	}
	for i := range len(path) {
		if Class[path[i]]&SimpleByte == 0 {
			return false
		}
	}
	return true
}

// parseTarget parses a target in origin form.
func (h *Request) parseTarget() bool {
	t := h.Target
	if len(t) == 0 || t[0] != '/' {
		return false
	}
	n := 0
	h.Simple = len(t) < 2 || t[1] != '/'
	for ; n < len(t) && t[n] != '?'; n++ {
		switch c := Class[t[n]]; {
		case c&TargetByte == 0:
			return false
		case c&SimpleByte == 0:
			h.Simple = false
		}
	}
	if !all(t[n:], TargetByte) {
		return false
	}
	h.Path, h.Query, h.HasQuery = t[:n], "", n < len(t)
	if h.HasQuery {
		h.Query = t[n+1:]
	}
	return true
}

// parseFields parses the header fields up to the empty line.
func (h *Request) parseFields(rest string) bool {
	pragma, control, names, upgrade := false, false, false, false
	for rest != "\r\n" {
		end := strings.IndexByte(rest, '\n')
		if end < 2 || rest[end-1] != '\r' || len(h.Fields) >= maxFields {
			return false
		}
		line := rest[:end-1]
		rest = rest[end+1:]
		colon := strings.IndexByte(line, ':')
		if colon <= 0 || colon+2 >= len(line) || line[colon+1] != ' ' {
			return false
		}
		name, value := line[:colon], line[colon+2:]
		name, ok := canonical(name)
		if !ok || value[0] == ' ' || value[len(value)-1] == ' ' || !printable(value) {
			return false
		}
		if name == "Host" {
			if h.Host != "" || !all(value, HostByte) {
				return false
			}
			h.Host = value
			continue
		}
		for i := range h.Fields {
			if h.Fields[i].Name == name {
				return false
			}
		}
		if !h.harmless(name, value) {
			return false
		}
		switch name {
		case "Pragma":
			pragma = true
		case "Cache-Control":
			control = true
		case "Connection":
			names = value != "keep-alive"
		case "Upgrade":
			upgrade = true
		}
		h.Fields = append(h.Fields, field.Line{Name: name, Value: value})
	}
	h.Upgrades = upgrade
	if names != upgrade || upgrade && (h.Method != http.MethodGet || h.Length != 0) {
		return false
	}
	return h.Host != "" && (!pragma || control) // net/http would add a Cache-Control to a lone Pragma
}

// harmless sets Length, and refuses other fields that say where the request ends or what
// becomes of the connection.
func (h *Request) harmless(name, value string) bool {
	switch name {
	case "Content-Length":
		n, ok := decimal(value)
		h.Length = n
		return ok
	case "Connection":
		return value == "keep-alive" || value == "Upgrade" || value == "upgrade" || value == "keep-alive, Upgrade"
	case "Upgrade":
		return strings.EqualFold(value, "websocket")
	case "Te":
		return value == "trailers" && h.Major == 2 // Firefox sends it with every request
	case "Transfer-Encoding", "Trailer", "Expect", "Http2-Settings", "Proxy-Connection":
		return false
	}
	return true
}

// decimal parses a length of 1 to 18 digits, and nothing else (RFC 9110, 8.6).
func decimal(s string) (n int64, ok bool) {
	if len(s) == 0 || len(s) > 18 {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, true
}

// Assemble begins the head of a GET or HEAD over HTTP/2 from its pseudo-header fields (RFC
// 9113, 8.3.1). Add appends its other fields. Both return false for what net/http must
// serve, as [Request.Parse] does.
func (h *Request) Assemble(method, target, authority string) bool {
	if method != http.MethodGet && method != http.MethodHead || authority == "" || !all(authority, HostByte) {
		return false
	}
	h.Method, h.Target, h.Host, h.Length, h.Upgrades, h.parts, h.Major, h.Minor = method, target, authority, 0, false, 0, 2, 0
	if h.Fields == nil {
		h.Fields = h.inline[:]
	}
	h.Fields = h.Fields[:0]
	return h.parseTarget()
}

// Add appends a field, whose name is in lower case. A Cookie may come in parts (RFC 9113,
// 8.2.3), which are joined.
func (h *Request) Add(name, value string) bool {
	if len(h.Fields) >= maxFields || value == "" || value[0] == ' ' || value[len(value)-1] == ' ' || !printable(value) {
		return false
	}
	for i := range len(name) {
		if Class[name[i]]&(TokenByte|UpperByte) != TokenByte {
			return false
		}
	}
	name = textproto.CanonicalMIMEHeaderKey(name)
	for i := range h.Fields {
		if l := &h.Fields[i]; l.Name == name {
			if name != "Cookie" {
				return false
			}
			if h.parts++; h.parts >= maxFields { // a part may be one byte of HPACK, and each copies all before it
				return false
			}
			l.Value += "; " + value
			return true
		}
	}
	switch name {
	case "Host", "Content-Length", "Connection", "Keep-Alive", "Upgrade":
		return false
	}
	if !h.harmless(name, value) {
		return false
	}
	h.Fields = append(h.Fields, field.Line{Name: name, Value: value})
	return true
}
