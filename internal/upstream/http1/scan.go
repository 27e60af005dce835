package http1

import (
	"net/http"
	"strings"

	"millrace/internal/wire/field"
)

// Answer is the head of a plain answer. Its strings are parts of the text that
// was scanned, as long as their names were canonical.
type Answer struct {
	Status int
	// Lines are its fields, names canonical, in the order in which they came.
	Lines []field.Line
	// Body is how many bytes follow.
	Body int64
}

// Scanned is what [Scan] finds.
type Scanned int

// The findings.
const (
	// Partial means that the head has not ended, and is plain so far.
	Partial Scanned = iota
	// Plain means that a holds all of the head.
	Plain
	// Other means that the answer is one for [ReadHead].
	Other
)

// mostLines is how many fields a plain answer has at most.
const mostLines = 64

// Scan reads the head at the start of text into a, if it is one that [ReadHead]
// and everybody else can read in one way only: a final answer of HTTP/1.1 with
// at most one Content-Length, which says how long the body is, and nothing else
// that has a say in where it ends or in what becomes of the connection. size is
// how many bytes the head has. method is that of the request.
func Scan(text, method string, a *Answer) (size int, s Scanned) {
	a.Lines, a.Body, a.Status = a.Lines[:0], 0, 0
	line, rest, s := crlfLine(text)
	if s != Plain {
		return 0, s
	}
	if !a.statusLine(line) {
		return 0, Other
	}
	sized := false
	for {
		if line, rest, s = crlfLine(rest); s != Plain {
			return 0, s
		}
		if line == "" {
			break
		}
		name, value, ok := plainField(line)
		if !ok || len(a.Lines) == mostLines {
			return 0, Other
		}
		switch name {
		case "Content-Length":
			if a.Body, ok = plainLength(value); !ok || sized {
				return 0, Other
			}
			sized = true
		case "Connection":
			if value != "keep-alive" {
				return 0, Other
			}
		case "Transfer-Encoding", "Trailer", "Upgrade", "Pragma":
			return 0, Other
		}
		a.Lines = append(a.Lines, field.Line{Name: name, Value: value})
	}
	switch {
	case method == http.MethodHead, a.Status == http.StatusNoContent, a.Status == http.StatusNotModified:
		a.Body = 0
	case !sized:
		return 0, Other
	}
	return len(text) - len(rest), Plain
}

// Response is the answer as [ReadHead] has it, but for its status's reason and its
// body. It shares a's strings.
func (a *Answer) Response() *http.Response {
	h := make(http.Header, len(a.Lines))
	values := make([]string, len(a.Lines))
	for i := range a.Lines {
		l := &a.Lines[i]
		if old := h[l.Name]; old != nil {
			h[l.Name] = append(old, l.Value)
			continue
		}
		values[0] = l.Value
		h[l.Name], values = values[:1:1], values[1:]
	}
	return &http.Response{StatusCode: a.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h, ContentLength: a.Body}
}

// crlfLine takes a line off that ends as it should.
func crlfLine(text string) (line, rest string, s Scanned) {
	n := strings.IndexByte(text, '\n')
	switch {
	case n < 0:
		return "", text, Partial
	case n == 0 || text[n-1] != '\r':
		return "", text, Other
	}
	return text[:n-1], text[n+1:], Plain
}

// statusLine reads "HTTP/1.1 200 OK" (RFC 9112, 4).
func (a *Answer) statusLine(line string) bool {
	const begin = "HTTP/1.1 "
	if len(line) < len(begin)+4 || line[:len(begin)] != begin || line[len(begin)+3] != ' ' || !valid(line) {
		return false
	}
	for _, c := range []byte(line[len(begin) : len(begin)+3]) {
		if c < '0' || c > '9' {
			return false
		}
		a.Status = a.Status*10 + int(c-'0')
	}
	return a.Status >= 200 && a.Status <= 599
}

// plainField reads "Name: value" without anything around either.
func plainField(line string) (name, value string, ok bool) {
	colon := strings.IndexByte(line, ':')
	if colon <= 0 || line[len(line)-1] == ' ' || line[colon-1] == ' ' || line[0] == ' ' {
		return "", "", false
	}
	if name, ok = canonical(line[:colon]); !ok {
		return "", "", false
	}
	value = trim(line[colon+1:])
	return name, value, value != "" && valid(value)
}

// plainLength reads a length as it is written.
func plainLength(s string) (n int64, ok bool) {
	if len(s) == 0 || len(s) > 18 || s[0] == '0' && len(s) > 1 {
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
