package fill

import (
	"context"
	"io"
	"os"
	"sync"
	"sync/atomic"
)

// overflowBuffer is how much WriteTo reads from a overflow at once.
const overflowBuffer = 64 << 10

// overflowBuffers are those of readers that write overflowed bytes.
var overflowBuffers = sync.Pool{New: func() any { return new([overflowBuffer]byte) }}

// Reader is one reader of a Body, for one goroutine. When its context has
// ended, it gives nothing more.
type Reader struct {
	b     *Body
	ctx   context.Context
	flush func()
	pos   atomic.Int64 // the window's writer looks at it

	// Of b.mu:
	closed     bool
	linked     bool
	next, prev *Reader
	unwatch    func() bool // ends the watch over ctx; nil without one
}

// part waits until there is something at the reader's position: bytes in
// memory, or a number of overflowed ones. before, if not nil, is called once before
// it waits.
func (r *Reader) part(before func()) (mem []byte, overflowed int64, err error) {
	b := r.b
	for {
		if err := r.ctx.Err(); err != nil {
			return nil, 0, err
		}
		pos := r.pos.Load()
		b.mu.Lock()
		switch {
		case r.closed:
			err = os.ErrClosed
		case pos < b.overflowed:
			overflowed = b.overflowed - pos
		case pos < b.size && pos >= b.start:
			mem = b.view(pos)
		case pos < b.size: // dropped by watch just now
			err = r.ctx.Err()
		case b.ended && b.err != nil:
			err = b.err
		case b.ended:
			err = io.EOF
		}
		if mem != nil || overflowed > 0 || err != nil {
			b.mu.Unlock()
			return mem, overflowed, err
		}
		if before != nil {
			b.mu.Unlock()
			before()
			before = nil
			continue
		}
		if b.more == nil {
			b.more = make(chan struct{})
		}
		more := b.more
		b.mu.Unlock()
		select {
		case <-more:
		case <-r.ctx.Done():
		}
	}
}

// advance moves the position. The writer of a window may wait for it: either it
// sees the new position after having made the body a window, or we see here
// that it has.
func (r *Reader) advance(n int) {
	r.pos.Add(int64(n))
	if r.b.window.Load() {
		r.b.mu.Lock()
		wake(&r.b.room)
		r.b.mu.Unlock()
	}
}

// Read implements io.Reader; after the last byte it returns io.EOF, or ErrBroken.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	mem, overflowed, err := r.part(nil)
	if err != nil {
		return 0, err
	}
	n := copy(p, mem)
	if overflowed > 0 {
		n, err = r.b.readOverflow(p[:min(int64(len(p)), overflowed)], r.pos.Load())
	}
	r.advance(n)
	return n, err
}

// WriteTo implements io.WriterTo without a copy of what is held in memory. flush, if set
// by Flush, is called whenever the reader has caught up with the writer.
func (r *Reader) WriteTo(w io.Writer) (total int64, err error) {
	var buffer *[overflowBuffer]byte
	defer func() {
		if buffer != nil {
			overflowBuffers.Put(buffer)
		}
	}()
	for {
		p, overflowed, err := r.part(r.flush)
		if err == io.EOF { //nolint:errorlint // an ErrBroken may wrap it
			return total, nil
		}
		if err == nil && overflowed > 0 {
			if buffer == nil {
				buffer = overflowBuffers.Get().(*[overflowBuffer]byte)
			}
			var n int
			n, err = r.b.readOverflow(buffer[:min(overflowBuffer, overflowed)], r.pos.Load())
			p = buffer[:n]
		}
		if err != nil {
			return total, err
		}
		n, err := w.Write(p)
		r.advance(n)
		total += int64(n)
		if err == nil && n < len(p) {
			err = io.ErrShortWrite
		}
		if err != nil {
			return total, err
		}
	}
}

// Flush is called by WriteTo before it waits for more, also before the first byte.
func (r *Reader) Flush(f func()) { r.flush = f }

// Close gives the reader up. A second call does nothing.
func (r *Reader) Close() error {
	b := r.b
	b.mu.Lock()
	if r.closed {
		b.mu.Unlock()
		return nil
	}
	r.closed = true
	b.unlink(r)
	b.open--
	var release func()
	if b.open == 0 {
		release, b.release = b.release, nil
	}
	unwatch := r.unwatch
	b.mu.Unlock()
	if unwatch != nil {
		unwatch()
	}
	if release != nil {
		release()
	}
	return nil
}
