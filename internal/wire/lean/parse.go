package lean

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
)

// Verdict is the result of End.
type Verdict uint8

// The verdicts.
const (
	Refused Verdict = iota // not in the subset: for net/http
	Short                  // fine so far, but the head is not complete
	Whole                  // the head is complete
)

// methods are those that are served, each with the space behind it.
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

// End finds the end of the head at the start of b. n is its length if it is Whole. Of its
// content it checks only the method.
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
		if bytes.Contains(b, []byte("\n\n")) || bytes.Contains(b, []byte("\n\r\n")) { // net/http takes this for the end (RFC 9112, 2.2)
			return 0, Refused
		}
		return 0, Short
	}
	return n + 4, Whole
}

// maxFields is the most header fields that Parse accepts.
const maxFields = 64

// New parses a complete head, as [End] has found it. It returns nil if net/http must serve
// the request: see [Head.Parse].
func New(head string) *Exchange {
	var h Head
	if !h.Parse(head) {
		return nil
	}
	return h.Exchange()
}

// Exchange makes an exchange of a parsed head; nil if its target is not valid.
func (h *Head) Exchange() *Exchange {
	x := &Exchange{method: h.Method, target: h.Target, host: h.Host, length: h.Length}
	if !h.locate(&x.url) {
		return nil
	}
	x.header = h.header(x.values[:])
	return x
}

// header makes a map of the fields. values is memory for their values, if that suffices.
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

// locate stores the URL of the target in its argument. It returns false if there is none.
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

// printable reports whether s is printable ASCII.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// hostLike reports whether s has only the bytes of a host in lower case and a port.
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

// Classes of the bytes of a target.
const (
	strange = iota // Parse refuses the target
	plain          // stands for itself, and net/url writes it so
	encoded        // in a path net/url must parse it
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
