package lean

import (
	"bytes"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"millrace/internal/field"
)

// Verdict says what a look at the first bytes of a request tells.
type Verdict uint8

// The verdicts.
const (
	Refused Verdict = iota // not for us: net/http decides
	Short                  // right so far, but the head has not ended
	Whole                  // the head is complete
)

// methods are the ones that are served, with the space behind them.
var methods = [...]string{"GET ", "POST ", "HEAD ", "PUT ", "PATCH ", "DELETE "}

// methodOf finds the method that a request begins with.
func methodOf(head string) string {
	for _, m := range methods {
		if strings.HasPrefix(head, m) {
			return m[:len(m)-1]
		}
	}
	return ""
}

// End finds the end of the head at the start of b: n is its length when it is
// whole. It looks at nothing else but the method.
func End(b []byte) (n int, v Verdict) {
	v = Refused
	for _, m := range methods {
		k := min(len(m), len(b))
		if string(b[:k]) == m[:k] {
			v = Short
			break
		}
	}
	if v == Refused {
		return 0, Refused
	}
	if n = bytes.Index(b, []byte("\r\n\r\n")); n < 0 {
		return 0, Short
	}
	return n + 4, Whole
}

// mostFields is the most header fields of a request of ours.
const mostFields = 64

// New reads a complete head, as [End] found it. It returns nil for whatever
// net/http may see differently: it accepts "Name: value" in printable ASCII,
// each name once, one Host in lower case, at most one Content-Length, and
// nothing that changes how long the request is or what the connection becomes.
func New(head string) *Exchange {
	method := methodOf(head)
	if method == "" {
		return nil
	}
	target, rest, ok := strings.Cut(head[len(method)+1:], " ")
	if !ok || !strings.HasPrefix(rest, "HTTP/1.1\r\n") {
		return nil
	}
	x := &Exchange{method: method, target: target}
	if !x.parseTarget() || !x.parseFields(rest[len("HTTP/1.1\r\n"):]) {
		return nil
	}
	if x.length > 0 && (method == http.MethodGet || method == http.MethodHead) {
		return nil
	}
	return x
}

// parseTarget reads a target in origin form.
func (x *Exchange) parseTarget() bool {
	t := x.target
	if len(t) == 0 || t[0] != '/' {
		return false
	}
	n, simple := 0, len(t) < 2 || t[1] != '/'
	for ; n < len(t) && t[n] != '?'; n++ {
		switch targets[t[n]] {
		case strange:
			return false
		case encoded:
			simple = false
		}
	}
	for i := n; i < len(t); i++ {
		if targets[t[i]] == strange {
			return false
		}
	}
	if !simple {
		u, err := url.ParseRequestURI(t)
		if err != nil {
			return false
		}
		x.url = *u
		return true
	}
	x.url.Path = t[:n]
	if n < len(t) {
		x.url.RawQuery = t[n+1:]
		x.url.ForceQuery = x.url.RawQuery == ""
	}
	return true
}

// parseFields reads the header fields, up to the empty line.
func (x *Exchange) parseFields(rest string) bool {
	lines := strings.Count(rest, "\n") - 1
	if lines < 1 || lines > mostFields {
		return false
	}
	values := x.values[:]
	if lines > len(values) {
		values = make([]string, lines)
	}
	x.header = make(http.Header, lines)
	for i := range lines {
		end := strings.IndexByte(rest, '\n')
		if end < 2 || rest[end-1] != '\r' {
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
			if x.host != "" || !hostLike(value) {
				return false
			}
			x.host = value
			continue
		}
		if _, twice := x.header[name]; twice || !x.harmless(name, value) {
			return false
		}
		values[i] = value
		x.header[name] = values[i : i+1 : i+1]
	}
	_, pragma := x.header["Pragma"]
	_, control := x.header["Cache-Control"]
	return rest == "\r\n" && x.host != "" && (!pragma || control) // net/http makes the one of the other
}

// harmless takes the length of the body, and refuses what else has a say in
// where the request ends and in what becomes of the connection.
func (x *Exchange) harmless(name, value string) bool {
	switch name {
	case "Content-Length":
		n, ok := decimal(value)
		x.length = n
		return ok
	case "Connection":
		return value == "keep-alive"
	case "Transfer-Encoding", "Trailer", "Te", "Upgrade", "Expect", "Http2-Settings", "Proxy-Connection":
		return false
	}
	return true
}

// decimal reads a length of at most 18 digits, without anything around them
// (RFC 9110, 8.6).
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

// printable reports whether s is printable ASCII.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func hostLike(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '.', c == ':', c == '[', c == ']':
		default:
			return false
		}
	}
	return true
}

// What a byte of a target is.
const (
	strange = iota // no such target is ours
	plain          // stands for itself, and net/url writes it so
	encoded        // of the path: net/url decides
)

var targets = targetTable()

func targetTable() (t [256]uint8) {
	for c := 0x21; c < 0x7f; c++ {
		switch {
		case c == '#':
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._~$&+,/:;=@", byte(c)) >= 0:
			t[c] = plain
		default:
			t[c] = encoded
		}
	}
	return t
}
