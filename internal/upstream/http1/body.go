package http1

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"

	"millrace/internal/wire/field"
)

const (
	// maxLine is the longest line that begins a chunk, in bytes; net/http has the same.
	maxLine = 4096
	// maxTrailer is the largest trailer, in bytes; net/http has the same.
	maxTrailer = 4096
	// maxExcess is how many bytes more than freeExcess for each chunk, and twice
	// the content, may be spent on framing: extensions are for nobody, and a
	// server must not keep us busy with them. net/http has the same.
	maxExcess  = 16 << 10
	freeExcess = 16
	// maxChunk is the largest chunk, in bytes: sizes are added up.
	maxChunk = 1 << 62
)

// Body reads the body behind a head. At its end it returns io.EOF, and
// nothing of what comes behind it was used. Any other end is an error, and the
// connection of no more use.
type Body struct {
	from    *Reader
	framing Framing
	left    int64 // of the body, or of the chunk
	inside  bool  // a chunk's content was begun: its end must come
	excess  int64
	head    *Head // whose trailer comes with the chunks
	err     error
}

// Begin makes b the body of an answer whose head was read last. At the end of chunks
// it puts the trailer into h.
func (b *Body) Begin(from *Reader, h *Head) {
	*b = Body{from: from, framing: h.Framing, head: h}
	switch h.Framing {
	case Empty:
		b.err = io.EOF
	case Length:
		b.left = h.Length
	}
}

// Start looks at the line that begins the first of the chunks, if it is buffered, so that
// a malformed one is an error of the answer, of which nothing was passed on yet.
func (b *Body) Start() error {
	line, ok := b.from.line()
	if !ok {
		return nil
	}
	before := b.excess
	switch size, err := b.begin(line); {
	case err != nil:
		b.err = err
	case size == 0: // the trailer may have to be waited for
		b.excess = before
	default:
		b.from.r += len(line)
		b.left, b.inside = size, true
	}
	return b.err
}

// Whole reports whether all of the body is buffered, so that reading it asks
// the source for nothing.
func (b *Body) Whole() bool {
	return b.framing == Empty || b.framing == Length && b.left <= int64(b.from.Buffered())
}

// Ready reports whether Read has something to return without asking the source.
func (b *Body) Ready() bool {
	unread := b.from.buf[b.from.r:b.from.w]
	if b.err != nil || b.framing != Chunks || b.left > 0 {
		return b.err != nil || len(unread) > 0
	}
	if b.inside {
		unread = unread[min(len("\r\n"), len(unread)):]
	}
	line := bytes.IndexByte(unread, '\n')
	return line >= 0 && line+1 < len(unread)
}

// Left is how many bytes of a body that is Whole were not read yet.
func (b *Body) Left() int64 { return b.left }

// Read implements io.Reader.
func (b *Body) Read(to []byte) (n int, err error) {
	if b.err != nil {
		return 0, b.err
	}
	if len(to) == 0 {
		return 0, nil
	}
	switch b.framing {
	case Length:
		n, b.err = b.content(to)
		if b.left == 0 && b.err == nil {
			b.err = io.EOF
		}
	case Chunks:
		n, b.err = b.chunks(to)
	default:
		n, b.err = b.from.Read(to)
	}
	return n, b.err
}

// content reads what is left, as far as one Read gets.
func (b *Body) content(to []byte) (int, error) {
	if int64(len(to)) > b.left {
		to = to[:b.left]
	}
	n, err := b.from.Read(to)
	b.left -= int64(n)
	if err == io.EOF { //nolint:errorlint // io.Reader says that io.EOF is not wrapped
		err = io.ErrUnexpectedEOF
		if b.left == 0 {
			err = nil
		}
	}
	return n, err
}

// chunks reads content out of as many chunks as are there, and asks the source
// for more only while it has nothing to return.
func (b *Body) chunks(to []byte) (n int, err error) {
	for len(to) > 0 {
		if b.left > 0 {
			if n > 0 && b.from.Buffered() == 0 {
				return n, nil
			}
			m, err := b.content(to)
			n += m
			to = to[m:]
			if err != nil {
				return n, err
			}
			continue
		}
		line, ok := b.from.line()
		switch {
		case !ok && n > 0:
			return n, nil
		case !ok:
			if err := b.from.fillLine(); err != nil {
				return n, err
			}
			continue
		}
		if b.inside { // the line that ends a chunk's content
			if string(line) != "\r\n" {
				return n, fmt.Errorf("%w: it is longer than it says", ErrChunk)
			}
			b.inside = false
			b.from.r += len(line)
			continue
		}
		if n > 0 && line[0] == '0' && !b.from.starts("0\r\n\r\n") {
			return n, nil // the last one: its trailer may have to be waited for
		}
		size, err := b.begin(line)
		if err != nil {
			return n, err
		}
		b.from.r += len(line)
		if b.left, b.inside = size, true; size == 0 {
			return n, b.end()
		}
	}
	return n, nil
}

// line is the next line with its end, if all of it is buffered.
func (r *Reader) line() ([]byte, bool) {
	unread := r.buf[r.r:r.w]
	if n := bytes.IndexByte(unread[:min(len(unread), maxLine)], '\n'); n >= 0 {
		return unread[:n+1], true
	}
	return nil, false
}

// starts reports whether text is what comes next, and buffered.
func (r *Reader) starts(text string) bool {
	unread := r.buf[r.r:r.w]
	return len(unread) >= len(text) && string(unread[:len(text)]) == text
}

// fillLine reads more of a line, which must not get longer than maxLine.
func (r *Reader) fillLine() error {
	if r.Buffered() >= maxLine {
		return fmt.Errorf("%w: its line is too long", ErrChunk)
	}
	return r.fill(max(maxLine, len(r.buf)))
}

// begin reads the line that begins a chunk: its size in hexadecimal digits, and
// extensions, of which only the length counts (RFC 9112, 7.1).
func (b *Body) begin(line []byte) (size int64, err error) {
	b.excess += int64(len(line))
	text, ok := bytes.CutSuffix(line, []byte("\r\n"))
	if !ok || bytes.IndexByte(text, '\r') >= 0 {
		return 0, fmt.Errorf("%w: its line does not end in CR and LF", ErrChunk)
	}
	digits := bytes.TrimRight(text, " \t")
	if n := bytes.IndexByte(digits, ';'); n >= 0 {
		digits = digits[:n]
	}
	for _, c := range digits {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, fmt.Errorf("%w: the size %.32q", ErrChunk, digits)
		}
		if size = size<<4 | int64(c); size > maxChunk {
			return 0, fmt.Errorf("%w: the size %.32q", ErrChunk, digits)
		}
	}
	if len(digits) == 0 || len(digits) > 16 {
		return 0, fmt.Errorf("%w: the size %.32q", ErrChunk, digits)
	}
	b.excess = max(0, b.excess-freeExcess-2*min(size, maxExcess))
	if b.excess > maxExcess {
		return 0, fmt.Errorf("%w: more is said about chunks than is in them", ErrChunk)
	}
	return size, nil
}

// end reads the trailer behind the last chunk, and returns io.EOF.
func (b *Body) end() error {
	lines, size, err := b.from.trailer()
	if err != nil {
		return err
	}
	text := string(b.from.buf[b.from.r : b.from.r+size])
	b.from.r += size
	if lines == 1 {
		return io.EOF
	}
	trailer := http.Header{}
	for {
		var l field.Line
		if l, text, err = NextField(text); err != nil {
			return errors.Join(ErrTrailer, err)
		}
		if l.Name == "" {
			break
		}
		trailer[l.Name] = append(trailer[l.Name], l.Value)
	}
	maps.Copy(b.head.Trailer, trailer)
	return io.EOF
}

// trailer waits until a whole trailer is buffered, which may be the empty line alone.
func (r *Reader) trailer() (lines, size int, err error) {
	for at := 0; ; {
		unread := r.buf[r.r:r.w]
		n := bytes.IndexByte(unread[at:], '\n')
		if n < 0 {
			if len(unread) >= maxTrailer {
				return 0, 0, fmt.Errorf("%w: it is too large", ErrTrailer)
			}
			if err := r.fill(max(maxTrailer, len(r.buf))); err != nil {
				return 0, 0, err
			}
			continue
		}
		lines++
		empty := n == 1 && unread[at] == '\r'
		if n == 0 {
			return 0, 0, fmt.Errorf("%w: its last line does not end in CR and LF", ErrTrailer)
		}
		if at += n + 1; at > maxTrailer {
			return 0, 0, fmt.Errorf("%w: it is too large", ErrTrailer)
		}
		if empty {
			return lines, at, nil
		}
	}
}
