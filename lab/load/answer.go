package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
)

// errBroken is the error of a connection that ended in mid-answer.
var errBroken = errors.New("the target closed the connection in mid-answer")

func errChanged(status int, body int64, first int, length int64) error {
	return fmt.Errorf("answered with status %d and %d bytes, where the path's first answer had status %d and %d bytes", status, body, first, length)
}

func errHeadTooLong() error { return malformed("its head is longer than %d bytes", maxHead) }

// maxHashed is how much of a body is hashed: more would cost the first answer
// of a huge file seconds, and a difference shows before.
const maxHashed = 16 << 20

// place is where in an answer the next byte stands.
type place uint8

const (
	inHead        place = iota
	inBody              // of left more bytes
	toEnd               // of a body that ends with the connection
	inSize              // of a chunk: its hexadecimal digits
	afterSize           // of a chunk, in white space
	inExtension         // of a chunk's size line, up to its CR
	atSizeLF            // of a chunk's size line
	inChunk             // of left more bytes
	atChunkCR           // behind a chunk
	atChunkLF           // behind a chunk
	inTrailer           // at the beginning of a line
	inTrailerLine       // further on in one
	atLastLF            // of the empty line that ends the trailers
	whole               // there is no next byte
)

// An answer is read piece by piece, as it comes off the wire. Its zero value
// awaits the first byte.
type answer struct {
	head    head
	at      place
	digits  uint8 // of a chunk's size so far
	interim uint8 // 1xx answers before this one
	lines   int   // bytes of this chunk line, or of all trailers
	left    int64 // bytes to come of the body or the chunk
	body    int64 // bytes of the body so far
	bytes   int64 // bytes of all so far
	kept    []byte
	sample  *sample // takes the body; nil for most

	bodyless           bool // it answers HEAD
	keepHead, keepBody bool // as text and content, for a step that looks into them
	text, content      []byte
}

// reset makes ready for the next answer.
func (a *answer) reset() { *a = answer{kept: a.kept[:0], text: a.text[:0], content: a.content[:0]} }

// sampled completes the path's first answer, if this was it.
func (a *answer) sampled() {
	if s := a.sample; s != nil {
		s.done = true
		s.Status, s.Length, s.Bytes = a.head.status, a.body, int(a.bytes)
	}
}

// feed takes the next bytes and returns how many of them belong to the answer:
// fewer than all only if it is whole. k is what is known of its path, and
// learns; first is where the path's first answer is kept, nil if another has
// that place.
func (a *answer) feed(p []byte, k *known, first *sample) (used int, err error) {
	for used < len(p) && a.at != whole && err == nil {
		var n int
		switch a.at {
		case inHead:
			n, err = a.feedHead(p[used:], k, first)
		case inBody, inChunk, toEnd:
			n = a.feedBody(p[used:])
		default:
			n, err = a.feedChunked(p[used:])
		}
		used += n
		a.bytes += int64(n)
	}
	return used, err
}

// end takes the end of the connection. It returns an error unless that makes
// the answer whole.
func (a *answer) end() error {
	if a.at == toEnd {
		a.at = whole
		return nil
	}
	return fmt.Errorf("%w, after %d bytes", errBroken, a.bytes)
}

// parse is parseHead, but that an answer to HEAD has no body.
func (a *answer) parse(p []byte) (head, error) {
	h, err := parseHead(p)
	if a.bodyless && h.status >= 200 {
		h.length, h.chunked, h.last = 0, false, h.closes
	}
	return h, err
}

// received is what was kept of it; nil: nothing.
func (a *answer) received() *received {
	if !a.keepHead && !a.keepBody {
		return nil
	}
	h := &received{body: a.content}
	if len(a.text) > 0 {
		h.head, _ = header(a.text) // that it can be read was seen when it came, or is as good as none
	}
	return h
}

// header reads the fields of a head.
func header(text []byte) (http.Header, error) {
	_, lines, _ := bytes.Cut(text, []byte{'\n'})
	head, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(lines))).ReadMIMEHeader()
	return http.Header(head), err
}

func (a *answer) feedHead(p []byte, k *known, first *sample) (int, error) {
	if len(a.kept) == 0 {
		if k.matches(p) {
			return k.head.size, a.frame(k.head, k.text, first)
		}
		h, err := a.parse(p)
		if err != nil {
			return 0, err
		}
		if h.size > 0 {
			return a.parsed(h, p[:h.size], k, first)
		}
	}
	// The head comes in pieces.
	before := len(a.kept)
	a.kept = append(a.kept, p[:min(len(p), maxHead+1-before)]...)
	if prefix := "HTTP/1."; string(a.kept[:min(len(a.kept), len(prefix))]) != prefix[:min(len(a.kept), len(prefix))] {
		return 0, malformed("it begins with %q", clip(a.kept))
	}
	if !headEnds(a.kept, before) {
		if len(a.kept) > maxHead {
			return 0, errHeadTooLong()
		}
		return len(p), nil
	}
	h, err := a.parse(a.kept)
	if err != nil {
		return 0, err
	}
	text := a.kept[:h.size]
	a.kept = a.kept[:0]
	if _, err = a.parsed(h, text, k, first); err != nil {
		return 0, err
	}
	return h.size - before, nil
}

// parsed takes a head that is not a known one.
func (a *answer) parsed(h head, text []byte, k *known, first *sample) (int, error) {
	if h.size > maxHead {
		return 0, errHeadTooLong()
	}
	if h.status < 200 {
		// RFC 9110, section 15.2. Switching protocols was not asked for.
		if a.interim++; h.status == http.StatusSwitchingProtocols || a.interim > maxInterim {
			return 0, malformed("status %d where a final answer was due", h.status)
		}
		return h.size, nil
	}
	k.learn(text, h)
	return h.size, a.frame(h, text, first)
}

// frame goes on behind the head.
func (a *answer) frame(h head, text []byte, first *sample) error {
	a.head = h
	switch {
	case h.chunked:
		a.at = inSize
	case h.length < 0:
		a.at = toEnd
	case h.length == 0:
		a.at = whole
	default:
		a.at, a.left = inBody, h.length
	}
	if a.keepHead {
		a.text = append(a.text[:0], text...)
	}
	if first != nil && !first.taken {
		a.sample = first
		return first.begin(text)
	}
	return nil
}

func (a *answer) feedBody(p []byte) int {
	if a.at != toEnd && int64(len(p)) > a.left {
		p = p[:a.left]
	}
	a.body += int64(len(p))
	if a.sample != nil {
		a.sample.add(p)
	}
	if a.keepBody && len(a.content) < maxHashed {
		a.content = append(a.content, p[:min(len(p), maxHashed-len(a.content))]...)
	}
	if a.at == toEnd {
		return len(p)
	}
	if a.left -= int64(len(p)); a.left == 0 {
		if a.at == inChunk {
			a.at = atChunkCR
		} else {
			a.at = whole
		}
	}
	return len(p)
}

// feedChunked takes what stands between chunks. RFC 9112, section 7.1. Lines
// end with CRLF and nothing else here (erratum 7633).
func (a *answer) feedChunked(p []byte) (int, error) {
	for i, c := range p {
		var ok bool
		switch a.at {
		case inSize, afterSize, inExtension, atSizeLF:
			ok = a.sizeLine(c)
		case atChunkCR:
			a.at, ok = atChunkLF, c == '\r'
		case atChunkLF:
			a.at, ok = inSize, c == '\n'
			a.digits, a.lines = 0, 0
		case inTrailer, inTrailerLine, atLastLF:
			ok = a.trailer(c)
		default: // whole, or in a chunk
			return i, nil
		}
		if !ok {
			return 0, malformed("broken chunks, at %q", clip(p[i:]))
		}
	}
	return len(p), nil
}

// sizeLine takes a byte of "1f4;extension\r\n".
func (a *answer) sizeLine(c byte) bool {
	if a.lines++; a.lines > maxChunkLine {
		return false
	}
	switch {
	case a.at == atSizeLF:
		if c != '\n' {
			return false
		}
		a.lines = 0
		if a.at = inChunk; a.left == 0 {
			a.at = inTrailer
		}
		return true
	case c == '\r':
		a.at = atSizeLF
		return a.digits > 0
	case a.at == inExtension:
		return c != '\n'
	}
	digit, ok := hex(c)
	switch {
	case c == ';':
		a.at = inExtension
		return a.digits > 0
	case c == ' ' || c == '\t': // 7.1.1: bad, but allowed
		a.at = afterSize
		return a.digits > 0
	case !ok || a.at == afterSize:
		return false
	}
	if a.digits++; a.digits == 1 {
		a.left = 0
	}
	a.left = a.left<<4 | int64(digit)
	return a.digits <= 15 // fits, and nobody sends more
}

func hex(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10, true
	}
	return 0, false
}

// trailer takes a byte of the lines behind the last chunk, up to an empty one.
// RFC 9112, section 7.1.2. They say nothing that is asked for here.
func (a *answer) trailer(c byte) bool {
	a.lines++
	switch {
	case a.lines > maxHead:
		return false
	case a.at == atLastLF:
		a.at = whole
		return c == '\n'
	case c == '\n' && a.at == inTrailerLine:
		a.at = inTrailer
	case c == '\r' && a.at == inTrailer:
		a.at = atLastLF
	case c == '\n':
		return false
	default:
		a.at = inTrailerLine
	}
	return true
}

// A sample is the first answer of a path, kept to be compared between arms.
type sample struct {
	taken  bool // an answer has begun to fill it
	done   bool // and that answer was complete
	hashed int64
	Answer
}

// FNV-1a, 64 bits: http://www.isthe.com/chongo/tech/comp/fnv/
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// begin takes the head of the answer.
func (s *sample) begin(text []byte) error {
	head, err := header(text)
	if err != nil {
		return malformed("its header: %v", err)
	}
	*s = sample{taken: true, Answer: Answer{Head: head, Hash: fnvOffset}}
	return nil
}

// add takes a piece of the body.
func (s *sample) add(p []byte) {
	p = p[:min(int64(len(p)), maxHashed-s.hashed)]
	s.hashed += int64(len(p))
	h := s.Hash
	for _, c := range p {
		h = (h ^ uint64(c)) * fnvPrime
	}
	s.Hash = h
}
