package fill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// smallestChunk is the least that is allocated for a body of unknown
	// length: most answers of APIs fit.
	smallestChunk = 512
	// largestChunk ends the doubling of chunks: more would hold memory that may
	// never be filled, less would make more of them.
	largestChunk = 1 << 20
	// windowChunk is the most that a window's chunk has. Readers free it as a
	// whole, so a smaller one moves more evenly.
	windowChunk = 64 << 10
	// windowChunks is how many chunks a window has at least, so that readers
	// and writer can work at the same time.
	windowChunks = 8
)

// Overflow is what a body that is too large for memory is written to; a store.Writer is
// one.
type Overflow interface {
	io.Writer
	io.ReaderAt // of what was written so far
}

// BodyOptions bound a Body.
type BodyOptions struct {
	Expected int64 // Content-Length, -1 when unknown
	Memory   int64 // bytes held in memory; above it the body goes to Overflow
	// Overflow is called once when the body outgrows Memory, or at once when
	// Expected does. nil, or an error, also a later one of its Write: the body
	// becomes a window that moves with its slowest reader, can only be joined
	// as long as it has not moved, and will not be Whole.
	Overflow func() (Overflow, error)
	// Window is how many bytes such a window holds. Default Memory, or 512 KiB
	// if that is 0.
	Window int64
	// Context ends a Write that waits for readers. nil: only Close does.
	Context context.Context
}

// chunk is a part of the body in memory. Bytes below len never change and are
// never used for anything else, so that readers may look at them without a lock.
type chunk struct {
	at int64 // offset of its first byte
	b  []byte
}

func (c chunk) end() int64 { return c.at + int64(len(c.b)) }

// Body is a growing sequence of bytes with one writer and any number of readers, each
// with a position of its own. It is in memory; or, once it has overflowed, in the Overflow;
// or only a window of it is in memory.
type Body struct {
	o BodyOptions

	mu         sync.Mutex
	size       int64
	chunks     []chunk       // without gaps, up to size
	start      int64         // offset of the first byte in chunks; size when there are none
	allocated  int64         // bytes allocated for chunks
	overflow   Overflow      // what o.Overflow returned
	overflowed int64         // the first bytes that are in it, and not in memory
	full       bool          // it has failed, or there is none
	ended      bool          // by Close
	err        error         // wraps ErrBroken
	more       chan struct{} // closed when something has come; nil while nobody waits
	room       chan struct{} // closed when a reader has moved on; nil while the writer does not wait

	first   *Reader // of those that a window waits for
	open    int     // readers that are not closed
	seen    bool    // there was a reader
	retired bool
	release func() // of Retire

	window atomic.Bool // full, and outgrown: chunks are dropped
	joinMu sync.Mutex  // of Bytes
	seatMu sync.RWMutex
	seat   io.ReaderAt // where overflowed bytes are read
}

// NewBody returns an empty body.
func NewBody(o BodyOptions) *Body {
	if o.Window <= 0 {
		o.Window = o.Memory
	}
	if o.Window <= 0 {
		o.Window = windowChunk * windowChunks
	}
	b := &Body{o: o}
	if o.Expected > o.Memory {
		b.leaveMemory()
	}
	return b
}

// Write appends. It blocks only while the body is a window and its slowest
// reader is Window bytes behind, or no reader has come yet; a window whose
// readers have all gone returns ErrUnread, a closed or overlong body ErrBroken.
func (b *Body) Write(p []byte) (n int, err error) {
	if err := b.accept(len(p)); err != nil {
		return 0, err
	}
	for n < len(p) && err == nil {
		var m int
		m, err = b.put(p[n:])
		n += m
	}
	return n, err
}

// accept refuses bytes after the end and beyond what was announced.
func (b *Body) accept(n int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended && b.o.Expected >= 0 && b.size+int64(n) > b.o.Expected {
		b.finish(fmt.Errorf("more came than the %d bytes announced", b.o.Expected))
	}
	return b.closed()
}

// closed is the writer's error after the end. b.mu is held.
func (b *Body) closed() error {
	if b.ended && b.err == nil {
		return fmt.Errorf("%w: written after its end", ErrBroken)
	}
	return b.err
}

// put appends some of p. Only the writer changes size, overflow and full, and so
// may look at them without the lock.
func (b *Body) put(p []byte) (int, error) {
	switch {
	case b.overflow != nil && !b.full:
		return b.putOverflow(p)
	case !b.full && b.size+int64(len(p)) > b.o.Memory:
		b.leaveMemory()
		return 0, nil
	}
	if free := b.free(); len(free) > 0 {
		return b.grown(copy(free, p))
	}
	if b.full {
		return 0, b.slide()
	}
	return 0, b.addChunk(b.nextChunk(len(p)))
}

// free is the room in the last chunk.
func (b *Body) free() []byte {
	if len(b.chunks) == 0 {
		return nil
	}
	c := b.chunks[len(b.chunks)-1].b
	return c[len(c):cap(c)]
}

// nextChunk is the size of the next chunk of a body that fits in memory.
func (b *Body) nextChunk(n int) int64 {
	if b.o.Expected >= 0 {
		return b.o.Expected
	}
	size := min(max(b.size, smallestChunk), largestChunk)
	return min(max(size, int64(n)), b.o.Memory-b.size)
}

func (b *Body) addChunk(size int64) error {
	fresh := make([]byte, 0, size) // outside the lock: it may have to be cleared
	b.mu.Lock()
	defer b.mu.Unlock()
	b.chunks = append(b.chunks, chunk{b.size, fresh})
	b.allocated += size
	return b.closed()
}

// grown announces n bytes that have been copied behind the last one.
func (b *Body) grown(n int) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return 0, b.closed()
	}
	last := &b.chunks[len(b.chunks)-1].b
	*last = (*last)[:len(*last)+n]
	b.size += int64(n)
	wake(&b.more)
	return n, nil
}

// wake lets all go who wait for a channel.
func wake(c *chan struct{}) {
	if *c != nil {
		close(*c)
		*c = nil
	}
}

// Close ends the body: whole when err is nil, else broken with that cause.
// A body that is shorter or longer than Expected is broken. Only the first call
// counts; with an error it may come from any goroutine, and ends a Write that waits.
func (b *Body) Close(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return
	}
	if err == nil && b.o.Expected >= 0 && b.size != b.o.Expected {
		err = fmt.Errorf("%d of %d bytes came: %w", b.size, b.o.Expected, io.ErrUnexpectedEOF)
	}
	b.finish(err)
}

// finish ends the body. b.mu is held.
func (b *Body) finish(err error) {
	b.ended = true
	if err != nil && !errors.Is(err, ErrBroken) {
		err = fmt.Errorf("%w: %w", ErrBroken, err)
	}
	b.err = err
	wake(&b.more)
	wake(&b.room)
}

// Expected is the length that was announced, -1 for none.
func (b *Body) Expected() int64 { return b.o.Expected }

// Whole reports whether the body has ended without error, can be read from its start, and its size.
func (b *Body) Whole() (size int64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.size, b.ended && b.err == nil && !b.window.Load()
}

// Bytes is the whole body in one piece of exactly its size, nil if it is not
// whole or has overflowed. The first call may have to join it out of several.
func (b *Body) Bytes() []byte {
	b.joinMu.Lock()
	defer b.joinMu.Unlock()
	size, ok := b.Whole()
	b.mu.Lock()
	chunks, overflowed := b.chunks, b.overflow != nil
	b.mu.Unlock()
	switch {
	case !ok || overflowed:
		return nil
	case size == 0:
		return []byte{}
	case len(chunks) == 1 && len(chunks[0].b) == cap(chunks[0].b):
		return chunks[0].b
	}
	whole := make([]byte, 0, size)
	for _, c := range chunks {
		whole = append(whole, c.b...)
	}
	b.mu.Lock()
	b.chunks, b.allocated = []chunk{{0, whole}}, size
	b.mu.Unlock()
	return whole
}

// Overflowed is what Overflow returned, nil if the body is in memory. Its owner must
// end it (commit it when the body is Whole, else abort it); see Reseat and Retire.
func (b *Body) Overflowed() Overflow {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.overflow
}

// Reader reads from an offset of 0 or more, waiting for bytes that have not
// come yet until ctx ends. It returns nil when the body is a window that has
// moved on, or has been retired. The reader must be closed.
func (b *Body) Reader(ctx context.Context, offset int64) *Reader {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.retired || b.window.Load() && offset < b.start && (offset >= b.overflowed || b.start > b.overflowed) {
		return nil
	}
	r := &Reader{b: b, ctx: ctx}
	r.pos.Store(offset)
	b.open++
	b.link(r)
	wake(&b.room) // a window may have waited for its first reader
	return r
}

// view is what is in memory from an offset on, which must be there. b.mu is held.
func (b *Body) view(offset int64) []byte {
	i, found := slices.BinarySearchFunc(b.chunks, offset, func(c chunk, offset int64) int {
		return int(min(max(c.at-offset, -1), 1))
	})
	if !found {
		i--
	}
	return b.chunks[i].b[offset-b.chunks[i].at:]
}
