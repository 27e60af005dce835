package lean

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
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
		if bytes.Contains(b, []byte("\n\n")) || bytes.Contains(b, []byte("\n\r\n")) { // an end for net/http (RFC 9112, 2.2)
			return 0, Refused
		}
		return 0, Short
	}
	return n + 4, Whole
}

// maxFields is the most header fields of a request of ours.
const maxFields = 64

// New makes a request of a complete head, as [End] found it. It returns nil for
// whatever net/http may see differently: see [Head.Parse].
func New(head string) *Exchange {
	var h Head
	if !h.Parse(head) {
		return nil
	}
	return h.Exchange()
}

// Exchange makes a request of a head that was parsed; nil if its target is none.
func (h *Head) Exchange() *Exchange {
	x := &Exchange{method: h.Method, target: h.Target, host: h.Host, length: h.Length}
	if !h.locate(&x.url) {
		return nil
	}
	x.header = h.header(x.values[:])
	return x
}

// header makes the fields a map, with room for its values.
func (h *Head) header(values []string) http.Header {
	if len(h.Lines) > len(values) {
		values = make([]string, len(h.Lines))
	}
	header := make(http.Header, len(h.Lines))
	for i := range h.Lines {
		values[i] = h.Lines[i].Value
		header[h.Lines[i].Name] = values[i : i+1 : i+1]
	}
	return header
}

// locate makes the URL of the target.
func (h *Head) locate(to *url.URL) bool {
	if !h.Simple {
		u, err := url.ParseRequestURI(h.Target)
		if err != nil {
			return false
		}
		*to = *u
		return true
	}
	to.Path, to.RawQuery = h.Path, h.Query
	to.ForceQuery = h.HasQuery && h.Query == ""
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
