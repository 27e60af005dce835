package http1

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/wire/field"
)

// ErrRequest means that a request cannot be written down without becoming
// another one.
var ErrRequest = errors.New("the request cannot be sent")

// Request is the head of a request as it goes out.
type Request struct {
	// Method is sent as it is; "": GET.
	Method string
	// Prefix and Path are the target's path, Query what follows a question mark,
	// with nothing in them that could end a line: neither spaces nor control bytes.
	Prefix, Path, Query string
	// Ask says that there is a question mark, even before an empty Query.
	Ask bool
	// Host is the value of the field Host, in ASCII.
	Host string
	// Fields are the others. Those that frame the message, and Host, are said by this
	// package alone: such fields are dropped, and a User-Agent without a value.
	Fields field.Lines
	// Body is how long the body is, in bytes: 0 for none, -1 for chunks.
	Body int64
	// Trailer names the fields behind the chunks.
	Trailer http.Header
	// Close says that no other request will come on the connection.
	Close bool
}

// Append appends the head with the empty line behind it. Nothing that could end a line
// is written but where one ends.
func (q *Request) Append(b []byte) ([]byte, error) {
	b, err := q.appendStart(b)
	if err != nil {
		return b, err
	}
	for i := range q.Fields {
		l := &q.Fields[i]
		if ours(l.Name) || l.Value == "" && l.Name == "User-Agent" {
			continue // no User-Agent: the client does not name itself
		}
		if b, err = appendField(b, l.Name, l.Value); err != nil {
			return b, err
		}
	}
	return append(b, "\r\n"...), nil
}

// appendStart appends the request line, Host, and what frames the message. The other
// fields, and an empty line, come behind that.
func (q *Request) appendStart(b []byte) ([]byte, error) {
	method := q.Method
	switch {
	case method == "":
		method = http.MethodGet
	case !field.Token(method):
		return b, fmt.Errorf("%w: its method is %.64q", ErrRequest, method)
	}
	if !hostable(q.Host) {
		return b, fmt.Errorf("%w: its host is %.64q", ErrRequest, q.Host)
	}
	b = append(b, method...)
	b = append(b, ' ')
	b = append(b, q.Prefix...)
	b = append(b, q.Path...)
	if q.Ask || q.Query != "" {
		b = append(b, '?')
		b = append(b, q.Query...)
	}
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, withoutZone(q.Host)...)
	b = append(b, "\r\n"...)
	if q.Close && !q.Fields.Has("Connection") {
		b = append(b, "Connection: close\r\n"...)
	}
	switch {
	case q.Body > 0, q.Body == 0 && (method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch):
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, q.Body, 10)
		b = append(b, "\r\n"...)
	case q.Body < 0:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
		return appendAnnounced(b, q.Trailer)
	}
	return b, nil
}

// ours reports whether appendStart writes this field itself, so that the request's own is
// dropped.
func ours(name string) bool {
	switch len(name) {
	case len("Host"):
		return strings.EqualFold(name, "Host")
	case len("Trailer"):
		return strings.EqualFold(name, "Trailer")
	case len("Content-Length"):
		return strings.EqualFold(name, "Content-Length")
	case len("Transfer-Encoding"):
		return strings.EqualFold(name, "Transfer-Encoding")
	}
	return false
}

// appendField appends a line, with the name as its standard spells it.
func appendField(b []byte, name, value string) ([]byte, error) {
	if !token(name) {
		return b, fmt.Errorf("%w: it has a field with the name %.64q", ErrRequest, name)
	}
	name = field.Spelling(name)
	if !valid(value) {
		return b, fmt.Errorf("%w: a control byte in the field %.64s", ErrRequest, name)
	}
	b = append(b, name...)
	b = append(b, ": "...)
	b = append(b, trim(value)...)
	return append(b, "\r\n"...), nil
}

func token(s string) bool {
	for i := range len(s) {
		if !field.TokenByte(s[i]) {
			return false
		}
	}
	return s != ""
}

// appendAnnounced appends the field Trailer.
func appendAnnounced(b []byte, trailer http.Header) ([]byte, error) {
	if len(trailer) == 0 {
		return b, nil
	}
	names := make([]string, 0, len(trailer))
	for name := range trailer {
		switch name {
		case "Transfer-Encoding", "Trailer", "Content-Length":
			return b, fmt.Errorf("%w: %s in its trailer", ErrRequest, name)
		}
		if !token(name) {
			return b, fmt.Errorf("%w: %.64q in its trailer", ErrRequest, name)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	b = append(b, "Trailer: "...)
	b = append(b, strings.Join(names, ",")...)
	return append(b, "\r\n"...), nil
}

// hostable reports whether s may be the value of Host: a name or an address with what
// RFC 3986, 3.2.2 allows, and a port.
func hostable(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("-._~:[]%!$&'()*+,;=", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// withoutZone removes the zone of an IPv6 address, which means something on
// this machine only (RFC 6874, 3).
func withoutZone(host string) string {
	if !strings.HasPrefix(host, "[") {
		return host
	}
	end := strings.LastIndexByte(host, ']')
	zone := strings.IndexByte(host, '%')
	if end < 0 || zone < 0 || zone > end {
		return host
	}
	return host[:zone] + host[end:]
}

// ChunkRoom is how many bytes a chunk's size and its line end take at most,
// before its content.
const ChunkRoom = 16 + 2

// Chunk frames the content b[ChunkRoom:ChunkRoom+n] as a chunk, in place, and
// returns it: b must have room for two bytes behind it. n is at least 1.
func Chunk(b []byte, n int) []byte {
	var digits [16]byte
	size := strconv.AppendUint(digits[:0], uint64(n), 16)
	begin := ChunkRoom - 2 - len(size)
	copy(b[begin:], size)
	b[ChunkRoom-2], b[ChunkRoom-1] = '\r', '\n'
	b[ChunkRoom+n], b[ChunkRoom+n+1] = '\r', '\n'
	return b[begin : ChunkRoom+n+2]
}

// AppendLastChunk appends the end of a body in chunks, with its trailer.
func AppendLastChunk(b []byte, trailer http.Header) ([]byte, error) {
	b = append(b, "0\r\n"...)
	for name, values := range trailer {
		for _, value := range values {
			var err error
			if b, err = appendField(b, name, value); err != nil {
				return b, err
			}
		}
	}
	return append(b, "\r\n"...), nil
}
