package load

import (
	"bytes"
	"errors"
	"fmt"
)

const (
	// maxHead bounds the head of an answer, and what trails a chunked one: as
	// much as servers' largest header buffers, far more than any answer needs.
	maxHead = 64 << 10
	// maxChunkLine bounds the line before a chunk with its extensions.
	maxChunkLine = 4 << 10
	// maxInterim bounds the 1xx answers before the real one.
	maxInterim = 16
)

// errMalformed is what all errors of the parser wrap.
var errMalformed = errors.New("the target answered with what is not HTTP/1.1")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errMalformed, fmt.Sprintf(format, args...))
}

// A head is what matters of the head of an answer.
type head struct {
	size    int   // bytes, with the empty line
	status  int   // 100…999
	length  int64 // of the body; -1 where the head does not say
	chunked bool
	closes  bool // it says that the connection ends after it
	last    bool // the connection ends after this answer, said or not
}

// parseHead parses a head that begins p. Its size is 0 while p does not hold
// the whole of it.
func parseHead(p []byte) (head, error) {
	end := bytes.IndexByte(p, '\n')
	if end < 0 {
		return head{}, nil
	}
	h := head{length: -1}
	minor, err := h.statusLine(cutCR(p[:end]))
	if err != nil {
		return head{}, err
	}
	var f fields
	for at := end + 1; ; at += end + 1 {
		if end = bytes.IndexByte(p[at:], '\n'); end < 0 {
			return head{}, nil
		}
		line := cutCR(p[at : at+end])
		if len(line) == 0 {
			h.size = at + end + 1
			break
		}
		if err := f.add(line); err != nil {
			return head{}, err
		}
	}
	return h.framed(&f, minor)
}

func cutCR(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\r' {
		return line[:n-1]
	}
	return line
}

// statusLine parses "HTTP/1.x NNN reason". RFC 9112, section 4.
func (h *head) statusLine(line []byte) (minor byte, err error) {
	if len(line) < 12 || string(line[:7]) != "HTTP/1." || line[7]&^1 != '0' || line[8] != ' ' || len(line) > 12 && line[12] != ' ' {
		return 0, malformed("its first line is %q", clip(line))
	}
	for _, c := range line[9:12] {
		if c < '0' || c > '9' {
			return 0, malformed("its first line is %q", clip(line))
		}
		h.status = h.status*10 + int(c-'0')
	}
	if h.status < 100 {
		return 0, malformed("its first line is %q", clip(line))
	}
	return line[7] - '0', nil
}

// clip keeps what is quoted in an error short.
func clip(p []byte) []byte { return p[:min(len(p), 60)] }

// fields are those header fields that say where an answer ends.
type fields struct {
	length    int64 // Content-Length
	lengths   bool  // there was one
	encodings int   // Transfer-Encoding fields
	chunked   bool  // the (one) transfer coding is chunked
	close     bool  // Connection: close
	keep      bool  // Connection: keep-alive
	framing   bool  // the field before was one of these, and may not be folded
	seen      bool  // there was a field before
}

// add takes one field line. RFC 9112, section 5.
func (f *fields) add(line []byte) error {
	if line[0] == ' ' || line[0] == '\t' { // 5.2: obsolete folding
		if f.framing || !f.seen {
			return malformed("a folded line where none may be: %q", clip(line))
		}
		return nil
	}
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 {
		return malformed("a header line without a name: %q", clip(line))
	}
	if bytes.IndexByte(line, '\r') >= 0 { // RFC 9112, 2.2: others may see a line's end in it
		return malformed("a carriage return within a header line: %q", clip(line))
	}
	f.seen, f.framing = true, true
	// The length of a name tells most fields from the three that matter.
	switch name := line[:colon]; {
	case colon == len("content-length") && is(name, "content-length"):
		return f.contentLength(trim(line[colon+1:]))
	case colon == len("transfer-encoding") && is(name, "transfer-encoding"):
		f.encodings++
		f.chunked = is(trim(line[colon+1:]), "chunked")
	case colon == len("connection") && is(name, "connection"):
		for option := range bytes.SplitSeq(line[colon+1:], []byte{','}) {
			option = trim(option)
			f.close = f.close || is(option, "close")
			f.keep = f.keep || is(option, "keep-alive")
		}
	default:
		f.framing = false
		for _, c := range name {
			if !token[c] {
				return malformed("a header line without a proper name: %q", clip(line))
			}
		}
	}
	return nil
}

// contentLength takes a Content-Length. Several are one if they agree. RFC
// 9110, section 8.6.
func (f *fields) contentLength(value []byte) error {
	var n int64
	for _, c := range value {
		if c < '0' || c > '9' || n > 1<<58 {
			return malformed("a Content-Length of %q", clip(value))
		}
		n = n*10 + int64(c-'0')
	}
	if len(value) == 0 || f.lengths && n != f.length {
		return malformed("a Content-Length of %q, or two that differ", clip(value))
	}
	f.length, f.lengths = n, true
	return nil
}

// framed decides how the body is delimited. RFC 9112, section 6.3.
func (h head) framed(f *fields, minor byte) (head, error) {
	// 6.1: HTTP/1.0 has no transfer codings.
	if f.encodings > 0 && (minor == 0 || f.encodings > 1 || !f.chunked) {
		return head{}, malformed("a Transfer-Encoding that is not chunked alone, or in HTTP/1.0")
	}
	h.closes = f.close || minor == 0 && !f.keep
	h.last = h.closes
	switch {
	case h.status < 200 || h.status == 204 || h.status == 304:
		h.length = 0
	case f.encodings > 0:
		h.chunked = true // and a Content-Length beside it does not count
	case f.lengths:
		h.length = f.length
	default:
		h.last = true // the body ends with the connection
	}
	return h, nil
}

// token are the bytes of a header field's name. RFC 9110, section 5.6.2.
var token = func() (t [256]bool) {
	for c := '0'; c <= 'z'; c++ {
		t[c] = c <= '9' || c >= 'a' || c >= 'A' && c <= 'Z'
	}
	for _, c := range "!#$%&'*+-.^_`|~" {
		t[c] = true
	}
	return t
}()

// is compares with a lower-case ASCII word, whatever the case.
func is(p []byte, word string) bool {
	if len(p) != len(word) {
		return false
	}
	for i, c := range p {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != word[i] {
			return false
		}
	}
	return true
}

func trim(p []byte) []byte {
	for len(p) > 0 && (p[0] == ' ' || p[0] == '\t') {
		p = p[1:]
	}
	for len(p) > 0 && (p[len(p)-1] == ' ' || p[len(p)-1] == '\t') {
		p = p[:len(p)-1]
	}
	return p
}

// headEnds reports whether p, of which the bytes before from were looked at
// already, holds the empty line that ends a head.
func headEnds(p []byte, from int) bool {
	for at := max(from-2, 0); ; {
		i := bytes.IndexByte(p[at:], '\n')
		if i < 0 {
			return false
		}
		at += i + 1
		if at < len(p) && p[at] == '\n' || at+1 < len(p) && p[at] == '\r' && p[at+1] == '\n' {
			return true
		}
	}
}

// known is the latest head that a path was answered with: its bytes, and what
// they mean. A head that begins with the very same bytes means the same; that
// comparison is all the parsing most answers need, and it cannot be wrong. The
// head changes when its Date does, once a second, and is then parsed again.
type known struct {
	text  []byte
	head  head
	whole int // size of head and body, if a Content-Length says so and the connection goes on; else -1
}

func (k *known) learn(text []byte, h head) {
	k.text, k.head, k.whole = append(k.text[:0], text...), h, -1
	if h.length >= 0 && !h.last && h.length < 1<<31 {
		k.whole = h.size + int(h.length)
	}
}

// matches reports whether p begins with the known head.
func (k *known) matches(p []byte) bool {
	return len(k.text) > 0 && len(p) >= len(k.text) && string(p[:len(k.text)]) == string(k.text)
}
