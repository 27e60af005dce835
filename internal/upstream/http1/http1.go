// Package http1 is the client's half of HTTP/1.1 (RFC 9112) as functions on
// bytes: what a request looks like on the wire, and what a server's bytes mean.
// It knows no network, no time and no other request: package upstream has the
// connections.
//
// # What is refused
//
// A server is trusted less than net/http trusts it: what could be read in two
// ways is read in none. Where the two differ, this is the stricter one:
//
//   - The version is HTTP/1.0 or HTTP/1.1, followed by one space and three
//     digits. net/http takes HTTP/2.0 and HTTP/0.9, more spaces, and +20.
//   - A reason phrase has no control bytes.
//   - Spaces between a field's name and its colon are removed (RFC 9112, 5.1);
//     before the colon of a field on which the framing hangs they are an error,
//     as they are in the middle of a name. net/http keeps them in the name.
//   - Transfer-Encoding in an answer of HTTP/1.0 is an error (RFC 9112, 6.1).
//     net/http ignores it, and passes the chunks on as if they were content.
//   - Transfer-Encoding with Content-Length ends the connection behind the
//     answer, and so does a Content-Length that was said more than once.
//   - A chunk has at most 2^62 bytes, and a trailer is held to the rules of a header.
//
// What both allow: lines of the header that end in a bare LF, folded lines (the
// fold becomes a space, or nothing at the end of a value), the same Content-Length several times, empty reasons.
package http1

import (
	"errors"
	"io"
)

// The ways in which bytes are not an answer. Each is wrapped with what was seen.
var (
	ErrHead    = errors.New("malformed header")
	ErrTooMuch = errors.New("its header is too large")
	ErrLength  = errors.New("its length cannot be told")
	ErrChunk   = errors.New("malformed chunk")
	ErrTrailer = errors.New("malformed trailer")
)

// BufferSize is how much a Reader reads at once, in bytes: nearly every header,
// and small answers as a whole.
const BufferSize = 8 << 10

// Reader holds what was read from a server and not used yet. It reads only when
// it is asked for more than it has.
type Reader struct {
	// Source is where bytes come from. A Read may return fewer than asked for.
	Source io.Reader

	buf  []byte
	r, w int // buf[r:w] is unread
}

// Use makes r read into buf, of which nothing is kept. It must be called while
// r is empty.
func (r *Reader) Use(buf []byte) { r.buf, r.r, r.w = buf, 0, 0 }

// Release takes the buffer out, with the bytes that are unread.
func (r *Reader) Release() (buf, unread []byte) {
	buf, unread = r.buf, r.buf[r.r:r.w]
	r.buf, r.r, r.w = nil, 0, 0
	return buf, unread
}

// Buffered is how many bytes were read and not used, without a look at the source.
func (r *Reader) Buffered() int { return r.w - r.r }

// Space is where the next bytes may be put by someone who has them from the
// source; Filled says how many were.
func (r *Reader) Space() []byte { return r.buf[r.w:] }

// Filled takes n bytes in that were put into Space.
func (r *Reader) Filled(n int) { r.w += n }

// Read implements io.Reader: what is buffered, or else one Read of the source
// past the buffer.
func (r *Reader) Read(to []byte) (int, error) {
	if r.r == r.w {
		return r.Source.Read(to)
	}
	n := copy(to, r.buf[r.r:r.w])
	r.r += n
	return n, nil
}

// fill reads more behind what is unread, which it may move, and grows the
// buffer up to most bytes where that is full. An end counts as unexpected.
func (r *Reader) fill(most int) error {
	switch {
	case r.r == r.w:
		r.r, r.w = 0, 0
	case r.w == len(r.buf) && r.r > 0:
		r.w = copy(r.buf, r.buf[r.r:r.w])
		r.r = 0
	}
	if r.w == len(r.buf) {
		if len(r.buf) >= most {
			return ErrTooMuch
		}
		larger := make([]byte, min(4*len(r.buf), most))
		copy(larger, r.buf[:r.w])
		r.buf = larger
	}
	n, err := r.Source.Read(r.buf[r.w:])
	r.w += n
	switch {
	case n > 0:
		return nil
	case err == nil:
		return io.ErrNoProgress
	case err == io.EOF:
		return io.ErrUnexpectedEOF
	}
	return err
}
