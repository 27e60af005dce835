package disk

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"millrace/store"
)

// An object's file, little endian:
//
//	0   "mrstore1"
//	8   epoch in which it was written (8 bytes), see state
//	16  size of the body (8)
//	24  offset of the body (4)
//	28  size of the key (4)
//	32  size of the head (4)
//	36  CRC-32C of the body (4)
//	40  CRC-32C of the head (4)
//	44  zero
//	60  CRC-32C of the 60 bytes before and the key (4)
//	64  key, then zeros up to the next multiple of 64
//	    body
//	    head
//	    the four bytes at 60 once more
//
// The head comes after the body because it is known last. The four bytes at
// the end make a file that was cut off anywhere show it.
//
// The body begins at a multiple of 64, the size of a cache line. Alignment to
// pages would make an object of 1 KB take two blocks instead of one, and
// sendfile is no faster for it: 4.9 GB/s at either offset.
const (
	magic      = "mrstore1"
	headerSize = 64
	sumOffset  = 60
	bodyAlign  = 64
	tailSize   = 4
	blockSize  = 4096
	// probe is how much a Get reads first: all of a small object.
	probe = 4096
)

// errDamaged is a file that is not an object, or not a whole one.
var errDamaged = errors.New("the file is damaged")

// checksum continues a CRC-32C, the one that processors have an instruction for.
func checksum(sum uint32, p []byte) uint32 {
	return crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), p) // made once
}

// blocks is how much of the quota a file of n bytes takes.
func blocks(n int64) int64 { return (n + blockSize - 1) / blockSize }

type header struct {
	epoch            uint64
	size             int64 // of the body
	offset           int64 // of the body
	keySize          int
	headSize         int
	bodySum, headSum uint32
}

// bodyOffset is where the body begins after a key.
func bodyOffset(keySize int) int64 {
	return int64(headerSize+keySize+bodyAlign-1) / bodyAlign * bodyAlign
}

// end is the size of the file.
func (h header) end() int64 { return h.offset + h.size + int64(h.headSize) + tailSize }

// encode writes the header into b, which is followed by the key there.
func (h header) encode(b []byte) {
	le := binary.LittleEndian
	clear(b[:headerSize])
	copy(b, magic)
	le.PutUint64(b[8:], h.epoch)
	le.PutUint64(b[16:], uint64(h.size))
	le.PutUint32(b[24:], uint32(h.offset))
	le.PutUint32(b[28:], uint32(h.keySize))
	le.PutUint32(b[32:], uint32(h.headSize))
	le.PutUint32(b[36:], h.bodySum)
	le.PutUint32(b[40:], h.headSum)
	le.PutUint32(b[sumOffset:], headerSum(b, h.keySize))
}

// headerSum is of the header at the start of b and the key after it.
func headerSum(b []byte, keySize int) uint32 {
	return checksum(checksum(0, b[:sumOffset]), b[headerSize:headerSize+keySize])
}

// decodeHeader reads the header at the start of b. Only its bounds are
// certain before checkHeader, which needs the key.
func decodeHeader(b []byte) (header, error) {
	if len(b) < headerSize || string(b[:len(magic)]) != magic {
		return header{}, errDamaged
	}
	le := binary.LittleEndian
	h := header{
		epoch:    le.Uint64(b[8:]),
		size:     int64(le.Uint64(b[16:])),
		offset:   int64(le.Uint32(b[24:])),
		keySize:  int(le.Uint32(b[28:])),
		headSize: int(le.Uint32(b[32:])),
		bodySum:  le.Uint32(b[36:]),
		headSum:  le.Uint32(b[40:]),
	}
	if h.keySize > maxKey || h.headSize > maxHead || h.offset != bodyOffset(h.keySize) || h.size < 0 || h.size > 1<<60 {
		return header{}, errDamaged
	}
	return h, nil
}

// checkHeader checks the sum over a header and its key at the start of b.
func (h header) checkHeader(b []byte) error {
	if binary.LittleEndian.Uint32(b[sumOffset:]) != headerSum(b, h.keySize) {
		return errDamaged
	}
	return nil
}

// probes are the buffers of readHead.
var probes = sync.Pool{New: func() any { return new([probe]byte) }}

// A reader is an object's open file.
type reader struct {
	store.Object
	header
	disk *Store
	id   id
	key  string
	file *os.File
	done atomic.Bool
}

// readHead fills r from r.file: with one pread for a small object, with two
// for others; a key of more than 4 KB costs one more.
func (r *reader) readHead() error {
	buffer := probes.Get().(*[probe]byte)
	defer probes.Put(buffer)
	b, err := readUpTo(r.file, buffer[:], 0)
	if err != nil {
		return err
	}
	if r.header, err = decodeHeader(b); err != nil {
		return err
	}
	start := b
	if need := headerSize + r.keySize; need > len(b) {
		if start, err = readUpTo(r.file, make([]byte, need), 0); err != nil {
			return err
		}
		if len(start) < need {
			return errDamaged
		}
	}
	if err := r.checkHeader(start); err != nil {
		return err
	}
	r.key = string(start[headerSize : headerSize+r.keySize])
	tail := make([]byte, r.headSize+tailSize)
	if at := r.offset + r.size; r.end() <= int64(len(b)) {
		copy(tail, b[at:])
	} else if got, err := readUpTo(r.file, tail, at); err != nil {
		return err
	} else if len(got) < len(tail) {
		return errDamaged
	}
	head := tail[:r.headSize:r.headSize]
	if checksum(0, head) != r.headSum || !bytes.Equal(tail[r.headSize:], start[sumOffset:headerSize]) {
		return errDamaged
	}
	r.Object = store.Object{
		Head: head, Size: r.size, Body: io.NewSectionReader(r.file, r.offset, r.size),
		File: r.file, Offset: r.offset, Closer: r,
	}
	return nil
}

// readUpTo reads into b, less if the file ends before.
func readUpTo(f *os.File, b []byte, at int64) ([]byte, error) {
	n, err := f.ReadAt(b, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("reading an object: %w", err)
	}
	return b[:n], nil
}

// verify compares the body with its checksum, and removes what is damaged.
func (r *reader) verify(ctx context.Context) error {
	buffer := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buffer)
	var sum uint32
	for at := int64(0); at < r.size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := readUpTo(r.file, buffer[:min(bufferSize, r.size-at)], r.offset+at)
		if err != nil {
			return fmt.Errorf("%w: %w", store.ErrDown, err)
		}
		if len(b) == 0 {
			break
		}
		sum = checksum(sum, b)
		at += int64(len(b))
	}
	if sum != r.bodySum {
		r.disk.forget(r.id, r.file)
		return store.ErrNotFound
	}
	return nil
}

// Close implements io.Closer, for the object.
func (r *reader) Close() error {
	if r.done.Swap(true) {
		return nil
	}
	r.disk.reading.Add(-1)
	if r.file == nil {
		return nil
	}
	if err := r.file.Close(); err != nil {
		return fmt.Errorf("closing an object: %w", err)
	}
	return nil
}
