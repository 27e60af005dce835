package lane

import (
	"bytes"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http2/hpack"

	"millrace/internal/wire/message"
)

// verdict is the result of parsing what has come of a request.
type verdict uint8

const (
	refused verdict = iota // not hot: others serve it
	short                  // fine so far, but the head is not complete
	matched
)

// span is a part of the connection's read buffer.
type span struct{ from, to uint16 }

// maxHead is the longest request head that the lane reads: the size of net/http's read
// buffer, into which it reads. Spans need it to be below 64 KiB.
const maxHead = 4096

// request is a request that match has accepted. Its spans refer to the buffer that it was
// matched in.
type request struct {
	headOnly bool // HEAD
	path     span
	query    span // after the question mark; empty without one
	hasQuery bool
	headers  [numKept]span // values of the kept headers; {0,0}: absent
	repeated uint32        // kept headers that came more than once, by their ids: headers has the first
	unknown  bool          // there are headers that no list has

	// The fields, where another parser has read them: HTTP/2's, or HTTP/3's.
	fields []hpack.HeaderField
	header http.Header
}

// match parses the request head at the start of b. It accepts a strict subset of what
// net/http accepts: GET or HEAD, origin-form, HTTP/1.1, one Host, a path as browsers spell it
// (pathEnd), no header that lookupHeader refuses or that has to do with framing, no body. n is the
// length of the head when it matched. It is a pure function of b and allocates nothing.
func match(b []byte, r *request) (n int, v verdict) {
	if len(b) > maxHead {
		b = b[:maxHead]
	}
	n, v = matchRequestLine(b, r)
	if v != matched {
		return 0, v
	}
	r.headers, r.repeated, r.unknown = [numKept]span{}, 0, false
	for {
		end := bytes.IndexByte(b[n:], '\n')
		if end < 0 {
			return 0, shortIf(len(b) < maxHead && message.Text(bytes.TrimSuffix(b[n:], []byte{'\r'})))
		}
		if end == 0 || b[n+end-1] != '\r' {
			return 0, refused
		}
		if end == 1 {
			return n + 2, finish(b, r)
		}
		if !matchField(b, n, n+end-1, r) {
			return 0, refused
		}
		n += end + 1
	}
}

func shortIf(ok bool) verdict {
	if ok {
		return short
	}
	return refused
}

// matchRequestLine reads "GET /path?query HTTP/1.1\r\n" (RFC 9112, 3).
func matchRequestLine(b []byte, r *request) (n int, v verdict) {
	const get, head, proto = "GET /", "HEAD /", " HTTP/1.1\r\n"
	switch {
	case bytes.HasPrefix(b, []byte(get)):
		r.headOnly, n = false, len(get)-1
	case bytes.HasPrefix(b, []byte(head)):
		r.headOnly, n = true, len(head)-1
	default:
		return 0, shortIf(isPrefix(b, get) || isPrefix(b, head))
	}
	start := n
	if n = pathEnd(b, n); escapeBegins(b[n:]) {
		return 0, shortIf(len(b) < maxHead)
	}
	r.path, r.query, r.hasQuery = span{uint16(start), uint16(n)}, span{}, false
	if n < len(b) && b[n] == '?' {
		n++
		start = n
		for n < len(b) && message.Class[b[n]]&message.TargetByte != 0 {
			n++
		}
		r.query, r.hasQuery = span{uint16(start), uint16(n)}, true
	}
	if rest := b[n:]; len(rest) < len(proto) {
		return 0, shortIf(len(b) < maxHead && isPrefix(rest, proto))
	} else if string(rest[:len(proto)]) != proto {
		return 0, refused
	}
	return n + len(proto), matched
}

// pathEnd returns where the path ends that goes on at b[n]. It accepts the bytes that may stand
// in a path, and percent-encoded those that may not, in capitals, as in "/gr%C3%BC%C3%9Fe%201".
// That is what browsers send, and there is no other such spelling of the same path: %41, %2F,
// %2e and %c3 are for others.
func pathEnd(b []byte, n int) int {
	for ; n < len(b); n++ {
		if message.Class[b[n]]&message.PathByte != 0 {
			continue
		}
		if b[n] != '%' || n+2 >= len(b) {
			break
		}
		high, low := hexDigit(b[n+1]), hexDigit(b[n+2])
		c := high<<4 | low
		if high > 15 || low > 15 || c < 0x20 || c == 0x7f || message.Class[c]&message.PathByte != 0 {
			break
		}
		n += 2
	}
	return n
}

// escapeBegins reports whether b is the beginning of a percent-encoded byte, but not all of it.
func escapeBegins(b []byte) bool {
	return len(b) == 1 && b[0] == '%' || len(b) == 2 && b[0] == '%' && hexDigit(b[1]) <= 15
}

// hexDigit returns the value of a digit, in capitals; above 15 for any other byte.
func hexDigit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 0xff
}

// isPrefix reports whether b is the beginning of want, but not all of it.
func isPrefix(b []byte, want string) bool { return len(b) < len(want) && string(b) == want[:len(b)] }

// matchField parses the header line b[from:to], as RFC 9112, 5.1 has it: a name, a colon,
// and a value with blanks around it or none. Without a value it accepts only headers that are
// not kept.
func matchField(b []byte, from, to int, r *request) bool {
	line := b[from:to]
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 {
		return false
	}
	id := lookupHeader(line[:colon])
	if id == hdrRefuse {
		return false
	}
	begin, end := colon+1, len(line)
	for begin < end && blank(line[begin]) {
		begin++
	}
	for begin < end && blank(line[end-1]) {
		end--
	}
	value := line[begin:end]
	if !message.Printable(value) && !message.Text(value) {
		return false
	}
	if id < numKept {
		if len(value) == 0 || r.has(id) && !r.repeat(id) {
			return false
		}
		if !r.repeats(id) {
			r.headers[id] = span{uint16(from + begin), uint16(from + end)}
		}
		return true
	}
	switch id {
	case hdrHarmless:
		return true
	case hdrUnknown:
		r.unknown = true
		return true
	case hdrConnection:
		return string(value) == "keep-alive" || string(value) == "Keep-Alive"
	case hdrTE:
		return string(value) == "trailers"
	}
	return false
}

func blank(c byte) bool { return c == ' ' || c == '\t' }

// repeat notes that a kept header comes once more. It refuses where one is all that a request
// may have, and where all of them together decide.
func (r *request) repeat(id headerID) bool {
	switch id {
	case hdrHost, hdrIfNoneMatch, hdrIfModifiedSince, hdrRange, hdrIfRange, hdrAvailableDictionary, hdrSecFetchSite:
		return false
	}
	r.repeated |= 1 << id
	return true
}

// repeats reports whether a kept header came more than once. What depends on such a header must
// not depend on its first value alone. id may also be hdrRefuse, for no header.
func (r *request) repeats(id headerID) bool { return id < numKept && r.repeated&(1<<id) != 0 }

// hasField reports whether a request has a field with a name, which is canonical.
func (r *request) hasField(b []byte, name string) bool {
	switch {
	case r.fields != nil:
		return slices.ContainsFunc(r.fields, func(f hpack.HeaderField) bool { return strings.EqualFold(f.Name, name) })
	case r.header != nil:
		return r.header[name] != nil
	}
	for n := bytes.IndexByte(b, '\n') + 1; ; {
		line, _, more := bytes.Cut(b[n:], []byte{'\n'})
		if !more || len(line) <= 1 { // the empty line
			return false
		}
		if len(line) > len(name) && line[len(name)] == ':' && strings.EqualFold(view(line[:len(name)]), name) {
			return true
		}
		n += len(line) + 1
	}
}

// finish checks what is only known at the end of the head.
func finish(b []byte, r *request) verdict {
	host := r.value(b, hdrHost)
	if len(host) == 0 { // RFC 9112, 3.2: exactly one, and not empty
		return refused
	}
	for _, c := range host {
		if message.Class[c]&message.HostByte == 0 {
			return refused
		}
	}
	if r.has(hdrAvailableDictionary) && r.has(hdrSecFetchSite) && string(r.value(b, hdrSecFetchSite)) != "same-origin" {
		return refused // net/http decides whether another origin may use a dictionary (RFC 9842, 9.3)
	}
	return matched
}

func (r *request) value(b []byte, id headerID) []byte {
	s := r.headers[id]
	return b[s.from:s.to]
}

func (r *request) has(id headerID) bool { return r.headers[id].to != 0 }
