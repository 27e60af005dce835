package http1

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/bits"
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
	// Length is a body of as many bytes as the head says.
	Length
	// Chunks is a body that says itself where it ends.
	Chunks
	// UntilClose is everything until the connection ends.
	UntilClose
	// Switched is what comes when another protocol begins behind the head.
	Switched
)

// Head is the head of an answer.
type Head struct {
	Status int
	// Minor is that of its version, HTTP/1.0 or HTTP/1.1.
	Minor int
	// Fields are its header, names canonical, in the order in which they came.
	// Content-Length stands there once. Where the body comes in chunks there is
	// neither that nor Transfer-Encoding, nor Trailer.
	Fields field.Lines
	// Length is that of the body, in bytes; -1: it is not known. For HEAD it is what
	// the head says.
	Length int64
	// Trailer has the names of the fields that are to come behind the chunks, and
	// all of them once the body has ended; nil: none can come.
	Trailer http.Header

	Framing Framing
	// Keep says that the server will take another request on the connection.
	Keep bool
}

// Body is how many bytes the body has behind the head; -1: it is not known.
func (h *Head) Body() int64 {
	switch h.Framing {
	case Empty:
		return 0
	case Length:
		return h.Length
	}
	return -1
}

// errPartial means that a head does not end in the text.
var errPartial = errors.New("there is more to come")

// ReadHead reads the head of one answer, interim or final, of at most limit bytes.
// method is that of the request, "" for GET. used is how many bytes the head had.
//
// If nothing came before the source ended, the error is io.EOF.
func ReadHead(r *Reader, limit int, method string, h *Head) (used int, err error) {
	lines, size, err := r.head(limit)
	if err != nil {
		return 0, err
	}
	text := string(r.buf[r.r : r.r+size])
	r.r += size
	if cap(h.Fields) < lines {
		h.Fields = make(field.Lines, 0, lines)
	}
	_, err = h.parse(text, method)
	return size, err
}

// Scanned is what [Scan] finds.
type Scanned int

// The findings.
const (
	// Partial means that the head has not ended, and is plain so far.
	Partial Scanned = iota
	// Plain means that all of the head is there.
	Plain
	// Other means that somebody must wait for the answer, or that it is none: it is
	// one for [ReadHead].
	Other
)

// Scan reads the head at the start of text into h, which shares its memory, if it is that
// of a final answer that says how long it is and after which the connection goes on.
// size is how many bytes the head has. method is that of the request.
func Scan(text, method string, h *Head) (size int, s Scanned) {
	size, err := h.parse(text, method)
	switch {
	case err == errPartial: //nolint:errorlint // parse does not wrap it
		return 0, Partial
	case err != nil, h.Status < 200, !h.Keep, h.Body() < 0:
		return 0, Other
	}
	return size, Plain
}

// ScanSwitched is Scan for the answer that another protocol begins behind. Plain means that
// it is one.
func ScanSwitched(text, method string, h *Head) (size int, s Scanned) {
	size, err := h.parse(text, method)
	switch {
	case err == errPartial: //nolint:errorlint // parse does not wrap it
		return 0, Partial
	case err != nil, h.Framing != Switched:
		return 0, Other
	}
	return size, Plain
}

// head waits until a whole head is buffered. lines are its lines, with the
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

// parse reads the head at the start of text, of which h's strings are parts. The error is
// errPartial where the head does not end there.
func (h *Head) parse(text, method string) (size int, err error) {
	*h = Head{Fields: h.Fields[:0]}
	line, rest, ok := cutLine(text)
	if !ok {
		return 0, errPartial
	}
	if err := h.statusLine(line); err != nil {
		return 0, err
	}
	var f framed
	for {
		var l field.Line
		if l, rest, err = NextField(rest); err != nil {
			return 0, err
		}
		if l.Name == "" {
			break
		}
		keep, err := f.note(&l)
		if err != nil {
			return 0, err
		}
		if keep {
			h.Fields = append(h.Fields, l)
		}
	}
	if f.pragma == 1 && !f.control { // as net/http does (RFC 7234, 5.4)
		h.Fields.Add("Cache-Control", "no-cache")
	}
	return len(text) - len(rest), h.frame(method, &f)
}

// cutLine takes a line off, without its end.
func cutLine(text string) (line, rest string, ok bool) {
	n := strings.IndexByte(text, '\n')
	if n < 0 {
		return "", text, false
	}
	line, rest = text[:n], text[n+1:]
	return strings.TrimSuffix(line, "\r"), rest, true
}

// statusLine reads "HTTP/1.1 200 OK" (RFC 9112, 4).
func (h *Head) statusLine(line string) error {
	if len(line) < len("HTTP/1.1 200") || line[:7] != "HTTP/1." || line[8] != ' ' || len(line) > 12 && line[12] != ' ' {
		return fmt.Errorf("%w: the status line %.64q", ErrHead, line)
	}
	if line[7] != '0' && line[7] != '1' {
		return fmt.Errorf("%w: the version in %.64q", ErrHead, line)
	}
	h.Minor = int(line[7] - '0')
	for _, c := range []byte(line[9:12]) {
		if c < '0' || c > '9' {
			return fmt.Errorf("%w: the status in %.64q", ErrHead, line)
		}
		h.Status = h.Status*10 + int(c-'0')
	}
	if !valid(line) {
		return fmt.Errorf("%w: a control byte in the status line %.64q", ErrHead, line)
	}
	return nil
}

// NextField takes the next line off a head or a trailer, with those that continue it. Its
// name is canonical; none means that the head has ended. The error is errPartial where
// that is not known yet.
func NextField(text string) (l field.Line, rest string, err error) {
	line, rest, ok := cutLine(text)
	switch {
	case !ok || line != "" && rest == "":
		return l, text, errPartial
	case line == "":
		return l, rest, nil
	case line[0] == ' ' || line[0] == '\t':
		return l, text, fmt.Errorf("%w: it begins with a folded line", ErrHead)
	}
	colon := strings.IndexByte(line, ':')
	if colon < 0 {
		return l, text, fmt.Errorf("%w: a line without a colon: %.64q", ErrHead, line)
	}
	if rest[0] == ' ' || rest[0] == '\t' {
		if line, rest, err = unfold(line, rest); err != nil {
			return l, text, err
		}
	}
	if l.Name, ok = canonical(line[:colon]); !ok {
		return l, text, fmt.Errorf("%w: a field with the name %.64q", ErrHead, line[:colon])
	}
	if l.Value = trim(line[colon+1:]); !valid(l.Value) {
		return l, text, fmt.Errorf("%w: a control byte in the field %.64s", ErrHead, l.Name)
	}
	return l, rest, nil
}

// unfold joins the lines that continue one (RFC 9112, 5.2) by single spaces.
func unfold(line, text string) (joined, rest string, err error) {
	var b strings.Builder
	b.WriteString(trim(line))
	for text != "" && (text[0] == ' ' || text[0] == '\t') {
		var ok bool
		if line, text, ok = cutLine(text); !ok {
			return "", text, errPartial
		}
		b.WriteByte(' ')
		b.WriteString(trim(line))
	}
	if text == "" {
		return "", text, errPartial
	}
	return b.String(), text, nil
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

// valid reports whether a value has no control byte but the tab. It looks at eight bytes
// at a time (Warren, Hacker's Delight, 6-1).
func valid(s string) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; len(s) >= 8; s = s[8:] {
		x := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 | uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		del := x ^ 0x7f*ones
		for odd := ((x-' '*ones)&^x | (del-ones)&^del) & tops; odd != 0; odd &= odd - 1 {
			if control(byte(x >> (bits.TrailingZeros64(odd) - 7))) {
				return false
			}
		}
	}
	for i := range len(s) {
		if control(s[i]) {
			return false
		}
	}
	return true
}

func control(c byte) bool { return c < ' ' && c != '\t' || c == 0x7f }

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

// framed is what the fields of a head say about the body, and what comes after it.
type framed struct {
	lengths, codings, connections int    // how many lines there are of each
	length, coding                string // the value of the first
	closes, keeps                 bool   // what Connection has
	trailer, control              bool   // there is a Trailer, a Cache-Control
	pragma                        int    // the first one is no-cache: 1, another: 2
}

// note takes in a field, and reports whether it stays in the header as it is.
func (f *framed) note(l *field.Line) (stays bool, err error) {
	switch l.Name {
	case "Content-Length": // always the same, or there is none
		if f.lengths++; f.lengths == 1 {
			f.length = l.Value
		} else if l.Value != f.length {
			return false, fmt.Errorf("%w: Content-Length %.64q and %.64q", ErrLength, f.length, l.Value)
		}
		return f.lengths == 1, nil
	case "Transfer-Encoding":
		f.codings++
		f.coding = l.Value
		return false, nil
	case "Connection":
		f.connections++
		value := []string{l.Value}
		f.closes = f.closes || field.Has(value, "close")
		f.keeps = f.keeps || field.Has(value, "keep-alive")
	case "Trailer":
		f.trailer = true
	case "Cache-Control":
		f.control = true
	case "Pragma":
		if f.pragma == 0 {
			if f.pragma = 2; l.Value == "no-cache" {
				f.pragma = 1
			}
		}
	}
	return true, nil
}

// frame decides where the body ends (RFC 9112, 6.3), and what of the fields
// about it stays in the header: as net/http leaves them.
func (h *Head) frame(method string, f *framed) error {
	h.keep(f)
	chunked, length := f.codings > 0, int64(0)
	if chunked && (h.Minor == 0 || f.codings != 1 || !strings.EqualFold(f.coding, "chunked")) {
		return fmt.Errorf("%w: Transfer-Encoding %.64q in an answer of HTTP/1.%d", ErrLength, f.coding, h.Minor)
	}
	if f.lengths > 0 {
		n, err := strconv.ParseUint(f.length, 10, 63)
		if err != nil {
			return fmt.Errorf("%w: Content-Length %.64q", ErrLength, f.length)
		}
		length = int64(n)
	}
	h.Keep = h.Keep && (f.lengths == 0 || f.lengths == 1 && !chunked)
	if chunked && f.trailer {
		if err := h.announced(); err != nil {
			return err
		}
	}
	bodiless := h.Status < 200 || h.Status == http.StatusNoContent || h.Status == http.StatusNotModified
	if method == http.MethodHead {
		bodiless = true
		if h.Length = -1; f.lengths > 0 {
			h.Length = length
		}
	}
	switch {
	case h.Status == http.StatusSwitchingProtocols:
		h.Framing, h.Keep = Switched, false
	case bodiless:
	case chunked:
		h.Fields.Delete("Content-Length")
		if h.Framing, h.Length = Chunks, -1; h.Trailer == nil {
			h.Trailer = http.Header{} // not all announce them
		}
	case f.lengths > 0:
		if h.Length = length; length > 0 {
			h.Framing = Length
		}
	default:
		h.Framing, h.Keep, h.Length = UntilClose, false, -1
	}
	return nil
}

// keep decides whether the connection goes on behind the answer (RFC 9112, 9.3).
func (h *Head) keep(f *framed) {
	switch {
	case f.connections == 0:
		h.Keep = h.Minor > 0
	case h.Minor == 0:
		h.Keep = !f.closes && f.keeps
	default:
		h.Keep = !f.closes
	}
}

// announced takes the field Trailer out: the names that the trailer will have.
func (h *Head) announced() error {
	lines := h.Fields.Values("Trailer")
	h.Fields.Delete("Trailer")
	h.Trailer = http.Header{}
	for name := range field.Members(lines) {
		switch name = http.CanonicalHeaderKey(name); name {
		case "Transfer-Encoding", "Trailer", "Content-Length":
			return fmt.Errorf("%w: %s in it", ErrTrailer, name)
		}
		h.Trailer[name] = nil
	}
	return nil
}
