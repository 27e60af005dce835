package frame

import (
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
