package frame

import (
	"bufio"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/flate"
)

// tail is what a message's last block, an empty stored one, ends in, and what
// is left out on the wire (RFC 7692, 7.2.1); behind it an empty final block, by
// which the decompressor knows that it came to the end of a block.
const (
	tail    = "\x00\x00\xff\xff"
	theEnd  = "\x01\x00\x00\xff\xff"
	trailer = tail + theEnd
)

// deflater is the memory that compression works with.
type deflater struct {
	out []byte
	// windows are the compressors for windows of less than 32 KB, some 700 KB
	// each, made when they are needed.
	windows [maxWindow - minWindow]*flate.Writer
}

var deflaters = sync.Pool{New: func() any { return new(deflater) }}

// Write implements io.Writer.
func (d *deflater) Write(p []byte) (int, error) {
	d.out = append(d.out, p...)
	return len(p), nil
}

// Deflate appends the compressed form of a message to dst (RFC 7692, 7.2.1:
// ends in an empty stored block whose last four bytes are left out). Its
// working memory comes from a pool. It may be longer than the message.
func (p Params) Deflate(dst, message []byte) []byte {
	d := deflaters.Get().(*deflater)
	d.out = dst
	var err error
	if window := p.windowFor(len(message)); window == maxWindow {
		err = flate.StatelessDeflate(d, message, false, nil)
	} else {
		err = d.windowed(window, message)
	}
	if err != nil {
		panic("frame: compressing into memory failed: " + err.Error()) // nothing there can
	}
	dst = d.out[:len(d.out)-len(tail)]
	d.out = nil // it is not ours to keep
	deflaters.Put(d)
	return dst
}

// windowFor is the window that a message of so many bytes is compressed with:
// the greatest, too, if no match could reach out of the agreed one.
func (p Params) windowFor(size int) uint8 {
	if p.Window < minWindow || p.Window > maxWindow || size <= 1<<p.Window {
		return maxWindow
	}
	return p.Window
}

// windowed compresses with a window of less than 32 KB.
func (d *deflater) windowed(window uint8, message []byte) error {
	w := d.windows[window-minWindow]
	if w == nil {
		var err error
		if w, err = flate.NewWriterWindow(d, 1<<window); err != nil {
			return err
		}
		d.windows[window-minWindow] = w
	} else {
		w.Reset(d)
	}
	if _, err := w.Write(message); err != nil {
		return err
	}
	return w.Flush()
}

// inflater is the memory that decompression works with, some 50 KB.
type inflater struct {
	source  source
	buffer  *bufio.Reader
	inflate io.ReadCloser
	probe   [1]byte
}

// source reads a compressed message and the trailer.
type source struct {
	message []byte
	trailer string
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (n int, err error) {
	n = copy(p, s.message)
	s.message = s.message[n:]
	more := copy(p[n:], s.trailer)
	s.trailer = s.trailer[more:]
	if n+more == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n + more, nil
}

var inflaters = sync.Pool{New: func() any {
	i := new(inflater)
	i.buffer = bufio.NewReader(&i.source)
	i.inflate = flate.NewReader(i.buffer)
	return i
}}

const (
	// leastRoom is what a message's buffer begins with, at least: less is not
	// worth an allocation of its own.
	leastRoom = 512
	// guessedRatio is how much longer than its compressed form a message is
	// taken to be at first; text is two to five times as long.
	guessedRatio = 3
	// maxFinals is the most final blocks of a message. Each costs a new start
	// of up to 32 KB of copying, and needs two bytes. A sender has no reason
	// for more than one for each time it flushes.
	maxFinals = 64
)

// Inflate appends the message to dst. Beyond limit bytes of the message it
// stops at once with an *Error of code TooBig, so that a small bomb costs
// little: memory grows with what has come out, not with what may. What is no
// valid DEFLATE is an InvalidPayload. Blocks behind a final one go on at the
// next byte (RFC 7692, 7.2.1 allows final blocks at any place), 64 times at
// most. Nothing at all, which zlib makes of an empty message, is an empty
// message. With an error, what is returned is dst, maybe with more capacity.
func Inflate(dst, compressed []byte, limit int64) ([]byte, error) {
	if len(compressed) == 0 {
		return dst, nil
	}
	i := inflaters.Get().(*inflater)
	i.source = source{compressed, trailer}
	i.buffer.Reset(&i.source)
	whole, err := i.all(dst, limit)
	i.source = source{}
	inflaters.Put(i)
	if err != nil {
		return whole[:len(dst)], err
	}
	return whole, nil
}

// all reads one stream of blocks after the other.
func (i *inflater) all(dst []byte, limit int64) ([]byte, error) {
	start, size := len(dst), len(i.source.message)
	for finals := 0; ; finals++ {
		if finals > maxFinals {
			return dst, &Error{InvalidPayload, "the compressed message has too many final blocks"}
		}
		// What was decompressed is the window of what follows.
		if err := i.inflate.(flate.Resetter).Reset(i.buffer, dst[start:]); err != nil {
			return dst, &Error{InternalError, "the decompressor cannot start"}
		}
		var err error
		if dst, err = i.stream(dst, start, limit, size); err != nil {
			return dst, err
		}
		switch left := i.buffer.Buffered() + len(i.source.message) + len(i.source.trailer); {
		case left == 0, // the end that was put behind it
			left == len(theEnd),  // its last block was an empty one, and final
			left == len(trailer): // its last block was a final one, and nothing was put behind that
			return dst, nil
		case left < len(trailer):
			return dst, corrupt()
		}
	}
}

// stream reads up to the end of a final block. The message begins at start and
// was compressed to so many bytes.
func (i *inflater) stream(dst []byte, start int, limit int64, compressed int) ([]byte, error) {
	for {
		var n int
		var err error
		room := limit - int64(len(dst)-start)
		if room <= 0 {
			// Maybe this is just the end.
			n, err = i.inflate.Read(i.probe[:])
			if n > 0 {
				return dst, &Error{TooBig, "the message is too big when it is decompressed"}
			}
		} else {
			if len(dst) == cap(dst) {
				more := max(leastRoom, len(dst)-start)
				if len(dst) == start {
					more = max(leastRoom, guessedRatio*compressed)
				}
				dst = slices.Grow(dst, int(min(int64(more), room)))
			}
			space := dst[len(dst):cap(dst)]
			space = space[:min(int64(len(space)), room)]
			n, err = i.inflate.Read(space)
			dst = dst[:len(dst)+n]
		}
		switch {
		case errors.Is(err, io.EOF):
			return dst, nil
		case err != nil:
			return dst, corrupt()
		}
	}
}

func corrupt() error {
	return &Error{InvalidPayload, "the message is not compressed as it should be"}
}
