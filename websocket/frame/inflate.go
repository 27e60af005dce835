package frame

import (
	"bufio"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/flate"
)

// inflater is the memory that decompression works with, some 50 KB.
type inflater struct {
	source  source
	buffer  *bufio.Reader
	inflate io.ReadCloser
	flat    flat
	probe   [1]byte
}

// source reads a compressed message and the trailer.
type source struct {
	message []byte   // what is left of the part that is read
	parts   [][]byte // and those behind it
	trailer string
	pause   func(read int) error // called before more is read; nil: never
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (n int, err error) {
	if len(s.message) == 0 && len(s.parts) > 0 { // none is empty
		s.message, s.parts = s.parts[0], s.parts[1:]
	}
	if s.pause != nil {
		if err := s.pause(min(len(p), len(s.message))); err != nil {
			return 0, err
		}
	}
	n = copy(p, s.message)
	s.message = s.message[n:]
	if len(s.parts) > 0 {
		return n, nil
	}
	more := copy(p[n:], s.trailer)
	s.trailer = s.trailer[more:]
	if n+more == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n + more, nil
}

// left is how much has not been read.
func (s *source) left() int {
	n := len(s.message) + len(s.trailer)
	for _, part := range s.parts {
		n += len(part)
	}
	return n
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
	i.flat = flat{dst: dst, start: len(dst), guess: guessedRatio * len(compressed), limit: limit}
	err := i.run(&i.flat, source{message: compressed, trailer: trailer}, limit)
	whole := i.flat.dst
	i.flat = flat{}
	inflaters.Put(i)
	if err != nil {
		return whole[:len(dst)], err
	}
	return whole, nil
}

// run decompresses into o, at most limit bytes.
func (i *inflater) run(o output, from source, limit int64) error {
	i.source = from
	i.buffer.Reset(&i.source)
	err := i.all(o, limit)
	i.source = source{}
	return err
}

// output is where a message goes.
type output interface {
	// space is where the next bytes go; it is not empty.
	space() ([]byte, error)
	// wrote takes note of n bytes that were put there.
	wrote(n int)
	// window is what was written last, 32 KB of it if there are so many.
	window() []byte
}

// flat is an output in one piece, which grows.
type flat struct {
	dst          []byte
	start, guess int
	limit        int64
}

func (o *flat) space() ([]byte, error) {
	if size := len(o.dst) - o.start; len(o.dst) == cap(o.dst) {
		more := max(leastRoom, size)
		if size == 0 {
			more = max(leastRoom, o.guess)
		}
		o.dst = slices.Grow(o.dst, int(min(int64(more), o.limit-int64(size))))
	}
	return o.dst[len(o.dst):cap(o.dst)], nil
}

func (o *flat) wrote(n int)    { o.dst = o.dst[:len(o.dst)+n] }
func (o *flat) window() []byte { return o.dst[o.start:] }

// all reads one stream of blocks after the other.
func (i *inflater) all(o output, room int64) error {
	for finals := 0; ; finals++ {
		if finals > maxFinals {
			return &Error{InvalidPayload, "the compressed message has too many final blocks"}
		}
		// What was decompressed is the window of what follows.
		if err := i.inflate.(flate.Resetter).Reset(i.buffer, o.window()); err != nil {
			return &Error{InternalError, "the decompressor cannot start"}
		}
		var err error
		if room, err = i.stream(o, room); err != nil {
			return err
		}
		switch left := i.buffer.Buffered() + i.source.left(); {
		case left == 0, // the end that was put behind it
			left == len(theEnd),  // its last block was an empty one, and final
			left == len(trailer): // its last block was a final one, and nothing was put behind that
			return nil
		case left < len(trailer):
			return corrupt()
		}
	}
}

// stream reads up to the end of a final block, and returns how much room is left.
func (i *inflater) stream(o output, room int64) (int64, error) {
	for {
		space := i.probe[:] // maybe this is just the end
		if room > 0 {
			var err error
			if space, err = o.space(); err != nil {
				return room, err
			}
			space = space[:min(int64(len(space)), room)]
		}
		n, err := i.inflate.Read(space)
		if n > 0 {
			if room <= 0 {
				return 0, &Error{TooBig, "the message is too big when it is decompressed"}
			}
			room -= int64(n)
			o.wrote(n)
		}
		if err == nil {
			continue
		}
		if errors.Is(err, io.EOF) {
			return room, nil
		}
		if own, ok := errors.AsType[*Error](err); ok { // of source.pause
			return room, own
		}
		return room, corrupt()
	}
}

func corrupt() error {
	return &Error{InvalidPayload, "the message is not compressed as it should be"}
}
