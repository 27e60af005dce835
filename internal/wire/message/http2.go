package message

import (
	"net/http"
	"net/textproto"

	"millrace/internal/wire/field"
)

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
