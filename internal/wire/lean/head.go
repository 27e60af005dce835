package lean

import (
	"net/http"
	"net/textproto"
	"strings"

	"millrace/internal/wire/field"
)

// Head is the head of a request that Parse has accepted. Its strings are parts of the text
// that was parsed.
type Head struct {
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
	// Lines are the fields besides Host in the order in which they came, each name once.
	Lines []field.Line

	inline [fewFields]field.Line
	parts  int // how many further parts of a Cookie have come over HTTP/2
}

// Parse parses a complete head, as [End] has found it. It returns false for what net/http must
// serve. It accepts "Name: value" in printable ASCII, each name once, one Host in lower
// case, at most one Content-Length, an upgrade to WebSocket, and no other field that says
// how long the request is or what becomes of the connection.
func (h *Head) Parse(text string) bool {
	h.Method = methodOf(text)
	if h.Method == "" {
		return false
	}
	target, rest, ok := strings.Cut(text[len(h.Method)+1:], " ")
	if !ok || !strings.HasPrefix(rest, "HTTP/1.1\r\n") {
		return false
	}
	h.Target, h.Host, h.Length, h.Upgrades = target, "", 0, false
	if h.Lines == nil {
		h.Lines = h.inline[:]
	}
	h.Lines = h.Lines[:0]
	if !h.parseTarget() || !h.parseFields(rest[len("HTTP/1.1\r\n"):]) {
		return false
	}
	return h.Length == 0 || h.Method != http.MethodGet && h.Method != http.MethodHead
}

// Value returns the value of a field by its canonical name, "" for none.
func (h *Head) Value(name string) string {
	for i := range h.Lines {
		if h.Lines[i].Name == name {
			return h.Lines[i].Value
		}
	}
	return ""
}

// Simple reports whether [Head.Simple] would be true for a path.
func Simple(path string) bool {
	if len(path) == 0 || path[0] != '/' || len(path) > 1 && path[1] == '/' {
		return false
	}
	for i := range len(path) {
		if c := path[i]; c == '?' || targets[c] == strange || targets[c] == encoded {
			return false
		}
	}
	return true
}

// parseTarget parses a target in origin form.
func (h *Head) parseTarget() bool {
	t := h.Target
	if len(t) == 0 || t[0] != '/' {
		return false
	}
	n := 0
	h.Simple = len(t) < 2 || t[1] != '/'
	for ; n < len(t) && t[n] != '?'; n++ {
		switch targets[t[n]] {
		case strange:
			return false
		case encoded:
			h.Simple = false
		}
	}
	for i := n; i < len(t); i++ {
		if targets[t[i]] == strange {
			return false
		}
	}
	h.Path, h.Query, h.HasQuery = t[:n], "", n < len(t)
	if h.HasQuery {
		h.Query = t[n+1:]
	}
	return true
}

// parseFields parses the header fields up to the empty line.
func (h *Head) parseFields(rest string) bool {
	pragma, control, names, upgrade := false, false, false, false
	for rest != "\r\n" {
		end := strings.IndexByte(rest, '\n')
		if end < 2 || rest[end-1] != '\r' || len(h.Lines) >= maxFields {
			return false
		}
		line := rest[:end-1]
		rest = rest[end+1:]
		colon := strings.IndexByte(line, ':')
		if colon <= 0 || colon+2 >= len(line) || line[colon+1] != ' ' {
			return false
		}
		name, value := line[:colon], line[colon+2:]
		if value[0] == ' ' || value[len(value)-1] == ' ' || !printable(value) || !field.Token(name) {
			return false
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		if name == "Host" {
			if h.Host != "" || !hostLike(value) {
				return false
			}
			h.Host = value
			continue
		}
		for i := range h.Lines {
			if h.Lines[i].Name == name {
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
		h.Lines = append(h.Lines, field.Line{Name: name, Value: value})
	}
	h.Upgrades = upgrade
	if names != upgrade || upgrade && (h.Method != http.MethodGet || h.Length != 0) {
		return false
	}
	return h.Host != "" && (!pragma || control) // net/http would add a Cache-Control to a lone Pragma
}

// harmless sets Length, and refuses other fields that say where the request ends or what
// becomes of the connection.
func (h *Head) harmless(name, value string) bool {
	switch name {
	case "Content-Length":
		n, ok := decimal(value)
		h.Length = n
		return ok
	case "Connection":
		return value == "keep-alive" || value == "Upgrade" || value == "upgrade" || value == "keep-alive, Upgrade"
	case "Upgrade":
		return strings.EqualFold(value, "websocket")
	case "Transfer-Encoding", "Trailer", "Te", "Expect", "Http2-Settings", "Proxy-Connection":
		return false
	}
	return true
}
