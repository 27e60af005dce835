package s3

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"millrace/store"
)

// spool holds a body: in memory, or in a temporary file that has no name any
// more, so that nothing is left behind however the process ends. It is used by
// one goroutine, but readAt by any that does not write.
type spool struct {
	s    *Store
	mem  []byte
	file *os.File
	size int64
	sum  uint32 // CRC-32C

	memory, spooled int64 // held of the store's budgets
}

// least is the first buffer of a body whose size is not known.
const least = 16 << 10

// toMemory makes a buffer of n bytes, if all bodies in memory may have them.
func (b *spool) toMemory(n int64) bool {
	if more := n - b.memory; more > 0 {
		if !b.s.memory.take(more) {
			return false
		}
		b.memory = n
	}
	grown := make([]byte, len(b.mem), n)
	copy(grown, b.mem)
	b.mem = grown
	return true
}

// toFile moves the body to a file that may have n bytes, or makes room for so
// many in the one that it has.
func (b *spool) toFile(n int64) bool {
	more := n - b.spooled
	if more > 0 {
		if !b.s.spooled.take(more) {
			return false
		}
		b.spooled = n
	}
	if b.file != nil {
		return true
	}
	f, err := os.CreateTemp("", "millrace-s3-")
	if err != nil {
		return false
	}
	b.file = f
	if os.Remove(f.Name()) != nil {
		return false
	}
	if _, err := f.Write(b.mem); err != nil {
		return false
	}
	b.mem = nil
	b.s.memory.give(b.memory)
	b.memory = 0
	return true
}

// room makes room for a body of n bytes.
func (b *spool) room(n int64) bool {
	if b.file != nil {
		// In steps, so that the budget, which all share, is not asked each time.
		return n <= b.spooled || b.toFile(max(n, min(2*b.spooled, int64(b.s.o.Largest))))
	}
	if n <= int64(cap(b.mem)) {
		return true
	}
	if n <= inMemory && b.toMemory(max(n, min(2*int64(cap(b.mem)), inMemory), least)) {
		return true
	}
	return b.toFile(n)
}

// errNoRoom is what a Write gets when all bodies together are too large.
var errNoRoom = fmt.Errorf("%w: all bodies together are too large, or the folder for temporary files is full", store.ErrFull)

// Write implements io.Writer.
func (b *spool) Write(p []byte) (int, error) {
	if !b.room(b.size + int64(len(p))) {
		return 0, errNoRoom
	}
	if b.file == nil {
		b.mem = append(b.mem, p...)
	} else if _, err := b.file.WriteAt(p, b.size); err != nil {
		return 0, fmt.Errorf("%w: %w", store.ErrFull, err)
	}
	b.size += int64(len(p))
	b.sum = checksum(b.sum, p)
	return len(p), nil
}

// ReadAt implements io.ReaderAt.
func (b *spool) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("reading a body before its beginning")
	}
	if off >= b.size {
		return 0, io.EOF
	}
	if b.file != nil {
		return b.file.ReadAt(p, off)
	}
	n := copy(p, b.mem[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (b *spool) close() {
	if b.file != nil {
		b.file.Close()
	}
	b.s.memory.give(b.memory)
	b.s.spooled.give(b.spooled)
	b.mem, b.file, b.memory, b.spooled = nil, nil, 0, 0
}

// object hands the body out. What is in memory is then the caller's.
func (b *spool) object(head []byte) *store.Object {
	o := &store.Object{Head: head, Size: b.size}
	if b.file == nil {
		o.Body = bytes.NewReader(b.mem)
		b.s.memory.give(b.memory)
		return o
	}
	o.Body, o.File = b.file, b.file
	o.Closer = closer{b}
	return o
}

type closer struct{ b *spool }

// Close implements io.Closer.
func (c closer) Close() error {
	c.b.close()
	return nil
}
