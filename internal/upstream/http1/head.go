package http1

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"

	"millrace/internal/wire/field"
)

// Framing says where the body of an answer ends.
type Framing int

// The framings.
const (
	// Empty means no body at all.
	Empty Framing = iota
	// Length is a body of as many bytes as the header says.
	Length
	// Chunks is a body that says itself where it ends.
	Chunks
	// UntilClose is everything until the connection ends.
	UntilClose
	// Switched is what comes when another protocol begins behind the header.
	Switched
)

// Head is what the header of an answer says about its body, and about what
// comes after it.
type Head struct {
	Framing Framing
	// Keep says that the server will take another request on the connection.
	Keep bool
}

// ReadHead reads the header of one answer, interim or final, of at most limit
// bytes, into resp: all of its fields but Request, Body and TLS. method is that
// of the request, "" for GET. used is how many bytes the header had.
//
// If nothing came before the source ended, the error is io.EOF.
func ReadHead(r *Reader, limit int, method string, resp *http.Response) (h Head, used int, err error) {
	lines, size, err := r.head(limit)
	if err != nil {
		return Head{}, 0, err
	}
	text := string(r.buf[r.r : r.r+size])
	r.r += size
	rest, err := statusLine(text, resp)
	if err != nil {
		return Head{}, size, err
	}
	if resp.Header, err = fields(rest, lines-2); err != nil {
		return Head{}, size, err
	}
	repairPragma(resp.Header)
	h, err = frame(method, resp)
	return h, size, err
}

// head waits until a whole header is buffered. lines are its lines, with the
// empty one at its end.
func (r *Reader) head(limit int) (lines, size int, err error) {
	for r.Buffered() == 0 {
		if err := r.fill(limit); err != nil {
			if err == io.ErrUnexpectedEOF { //nolint:errorlint // fill does not wrap it
				err = io.EOF
			}
			return 0, 0, err
		}
	}
	for at := 0; ; {
		unread := r.buf[r.r:r.w]
		n := bytes.IndexByte(unread[at:], '\n')
		if n < 0 {
			if len(unread) >= limit {
				return 0, 0, ErrTooMuch
			}
			if err := r.fill(limit); err != nil {
				return 0, 0, err
			}
			continue
		}
		lines++
		empty := n == 0 || n == 1 && unread[at] == '\r'
		if at += n + 1; at > limit {
			return 0, 0, ErrTooMuch
		}
		if empty {
			return lines, at, nil
		}
	}
}

// cutLine takes a line off, without its end.
func cutLine(text string) (line, rest string) {
	n := strings.IndexByte(text, '\n')
	line, rest = text[:n], text[n+1:]
	return strings.TrimSuffix(line, "\r"), rest
}

// statusLine reads "HTTP/1.1 200 OK" (RFC 9112, 4).
func statusLine(text string, resp *http.Response) (rest string, err error) {
	line, rest := cutLine(text)
	if len(line) < len("HTTP/1.1 200") || line[:7] != "HTTP/1." || line[8] != ' ' || len(line) > 12 && line[12] != ' ' {
		return "", fmt.Errorf("%w: the status line %.64q", ErrHead, line)
	}
	switch line[7] {
	case '1':
		resp.Proto, resp.ProtoMajor, resp.ProtoMinor = "HTTP/1.1", 1, 1
	case '0':
		resp.Proto, resp.ProtoMajor, resp.ProtoMinor = "HTTP/1.0", 1, 0
	default:
		return "", fmt.Errorf("%w: the version in %.64q", ErrHead, line)
	}
	resp.Status, resp.StatusCode = line[9:], 0
	for _, c := range []byte(line[9:12]) {
		if c < '0' || c > '9' {
			return "", fmt.Errorf("%w: the status in %.64q", ErrHead, line)
		}
		resp.StatusCode = resp.StatusCode*10 + int(c-'0')
	}
	if !field.Value(resp.Status) {
		return "", fmt.Errorf("%w: a control byte in the status line %.64q", ErrHead, line)
	}
	return rest, nil
}

// fields reads as many lines of a header or trailer, up to the empty one. Names
// become canonical; all values share text.
func fields(text string, lines int) (http.Header, error) {
	h := make(http.Header, max(lines, 0))
	values := make([]string, max(lines, 0))
	if text != "" && (text[0] == ' ' || text[0] == '\t') {
		return nil, fmt.Errorf("%w: it begins with a folded line", ErrHead)
	}
	for {
		var line string
		if line, text = cutLine(text); line == "" {
			return h, nil
		}
		colon := strings.IndexByte(line, ':')
		if colon < 0 {
			return nil, fmt.Errorf("%w: a line without a colon: %.64q", ErrHead, line)
		}
		if text[0] == ' ' || text[0] == '\t' { // there is always one more line
			line, text = unfold(line, text)
		}
		name, ok := canonical(line[:colon])
		if !ok {
			return nil, fmt.Errorf("%w: a field with the name %.64q", ErrHead, line[:colon])
		}
		value := trim(line[colon+1:])
		if !valid(value) {
			return nil, fmt.Errorf("%w: a control byte in the field %.64s", ErrHead, name)
		}
		if old := h[name]; old != nil {
			h[name] = append(old, value)
			continue
		}
		values[0] = value
		h[name], values = values[:1:1], values[1:]
	}
}

// unfold joins the lines that continue one (RFC 9112, 5.2) by single spaces.
func unfold(line, text string) (joined, rest string) {
	var b strings.Builder
	b.WriteString(trim(line))
	for text != "" && (text[0] == ' ' || text[0] == '\t') {
		line, text = cutLine(text)
		b.WriteByte(' ')
		b.WriteString(trim(line))
	}
	return b.String(), text
}

// trim removes spaces and tabs at both ends. A CR is neither.
func trim(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// valid reports whether a value has no control byte but the tab.
func valid(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// framing are the fields that say where a message ends (RFC 9112, 6). Nothing
// about them is repaired.
func framing(name string) bool {
	switch name {
	case "Connection", "Content-Length", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// canonical is the spelling of a name that [http.Header] uses.
func canonical(s string) (string, bool) {
	trimmed := strings.TrimRight(s, " ")
	upper, same := true, true
	for i := range len(trimmed) {
		c := trimmed[i]
		if !field.TokenByte(c) {
			return "", false
		}
		if upper && 'a' <= c && c <= 'z' || !upper && 'A' <= c && c <= 'Z' {
			same = false
		}
		upper = c == '-'
	}
	name := trimmed
	if !same {
		name = textproto.CanonicalMIMEHeaderKey(trimmed) // knows the usual ones
	}
	return name, trimmed != "" && (len(trimmed) == len(s) || !framing(name))
}

// repairPragma does as net/http does: Pragma: no-cache alone means
// Cache-Control: no-cache (RFC 7234, 5.4).
func repairPragma(h http.Header) {
	if p := h["Pragma"]; len(p) > 0 && p[0] == "no-cache" && h["Cache-Control"] == nil {
		h["Cache-Control"] = []string{"no-cache"}
	}
}

// frame decides where the body ends (RFC 9112, 6.3), and what of the fields
// about it stays in the header: as net/http leaves them.
func frame(method string, resp *http.Response) (Head, error) {
	h := resp.Header
	head := Head{Keep: keeps(resp)}
	chunked, err := transferCoding(resp)
	if err != nil {
		return head, err
	}
	length, said, err := contentLength(h)
	if err != nil {
		return head, err
	}
	head.Keep = head.Keep && (said == 0 || said == 1 && !chunked)
	bodiless := resp.StatusCode < 200 || resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified
	if chunked {
		resp.TransferEncoding = []string{"chunked"}
		if resp.Trailer, err = announced(h); err != nil {
			return head, err
		}
	}
	resp.ContentLength = 0
	if method == http.MethodHead {
		bodiless = true
		if resp.ContentLength = -1; said > 0 {
			resp.ContentLength = length
		}
	}
	switch {
	case resp.StatusCode == http.StatusSwitchingProtocols:
		head.Framing, head.Keep = Switched, false
	case bodiless:
	case chunked:
		delete(h, "Content-Length")
		head.Framing, resp.ContentLength = Chunks, -1
	case said > 0:
		if resp.ContentLength = length; length > 0 {
			head.Framing = Length
		}
	default:
		head.Framing, head.Keep, resp.ContentLength = UntilClose, false, -1
	}
	resp.Close = !head.Keep
	return head, nil
}

// keeps reports whether the connection goes on behind the answer (RFC 9112, 9.3).
func keeps(resp *http.Response) bool {
	connection := resp.Header["Connection"]
	if len(connection) == 0 {
		return resp.ProtoMinor > 0
	}
	closes := field.Has(connection, "close")
	if resp.ProtoMinor == 0 {
		return !closes && field.Has(connection, "keep-alive")
	}
	if closes {
		delete(resp.Header, "Connection")
	}
	return !closes
}

// transferCoding reads Transfer-Encoding: there is none, or it is chunked.
func transferCoding(resp *http.Response) (chunked bool, err error) {
	codings, ok := resp.Header["Transfer-Encoding"]
	if !ok {
		return false, nil
	}
	delete(resp.Header, "Transfer-Encoding")
	if resp.ProtoMinor == 0 || len(codings) != 1 || !strings.EqualFold(codings[0], "chunked") {
		return false, fmt.Errorf("%w: Transfer-Encoding %.64q in an answer of %s", ErrLength, codings, resp.Proto)
	}
	return true, nil
}

// contentLength reads Content-Length, and how often it was said: always the
// same, or there is none.
func contentLength(h http.Header) (length int64, said int, err error) {
	values := h["Content-Length"]
	if len(values) == 0 {
		return 0, 0, nil
	}
	for _, v := range values[1:] {
		if v != values[0] {
			return 0, 0, fmt.Errorf("%w: Content-Length %.64q", ErrLength, values)
		}
	}
	n, err := strconv.ParseUint(values[0], 10, 63)
	if err != nil {
		return 0, 0, fmt.Errorf("%w: Content-Length %.64q", ErrLength, values[0])
	}
	if len(values) > 1 {
		h["Content-Length"] = values[:1:1]
	}
	return int64(n), len(values), nil
}

// announced takes the field Trailer out: the names that the trailer will have.
func announced(h http.Header) (http.Header, error) {
	lines, ok := h["Trailer"]
	if !ok {
		return nil, nil
	}
	delete(h, "Trailer")
	var trailer http.Header
	for _, line := range lines {
		for name := range strings.SplitSeq(line, ",") {
			if name = trim(name); name == "" {
				continue
			}
			switch name = http.CanonicalHeaderKey(name); name {
			case "Transfer-Encoding", "Trailer", "Content-Length":
				return nil, fmt.Errorf("%w: %s in it", ErrTrailer, name)
			}
			if trailer == nil {
				trailer = http.Header{}
			}
			trailer[name] = nil
		}
	}
	return trailer, nil
}
