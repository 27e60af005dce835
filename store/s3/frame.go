package s3

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"millrace/store"
)

// An S3 object is, in this order (numbers are little endian):
//
//	4 bytes  "mrS" and the form's version
//	4        size of the key
//	4        size of the head
//	8        size of the body
//	4        CRC-32C of the body
//	4        CRC-32C of all above, the key and the head
//	         the key, the head, the body
//
// The key tells two apart that have one hash, and lets Walk give it back.
const (
	version  = "mrS\x01"
	preamble = 28
	mostKey  = 64 << 10
	mostHead = 1 << 20
)

// front is what stands before the body.
type front struct {
	key, head []byte
	size      int64  // of the body
	sum       uint32 // of the body
}

var (
	errForeign = fmt.Errorf("%w: something that we have not written", store.ErrNotFound)
	errDamaged = fmt.Errorf("%w: it is damaged", store.ErrNotFound)
	errOther   = fmt.Errorf("%w: another key has its name", store.ErrNotFound)
)

// checksum goes on with a CRC-32C, which begins as 0.
func checksum(sum uint32, p []byte) uint32 {
	return crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), p) // made once
}

// appendFront writes a front.
func appendFront(b []byte, f front) []byte {
	start := len(b)
	b = append(b, version...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(f.key)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(f.head)))
	b = binary.LittleEndian.AppendUint64(b, uint64(f.size))
	b = binary.LittleEndian.AppendUint32(b, f.sum)
	sum := checksum(checksum(0, b[start:]), f.key)
	b = binary.LittleEndian.AppendUint32(b, checksum(sum, f.head))
	return append(append(b, f.key...), f.head...)
}

// readFront reads a front of an object of total bytes. Its errors are
// store.ErrNotFound for what is no front, and those of r.
func readFront(r io.Reader, total int64) (front, error) {
	var p [preamble]byte
	if total < preamble {
		return front{}, errForeign
	}
	if _, err := io.ReadFull(r, p[:]); err != nil {
		return front{}, err
	}
	if string(p[:4]) != version {
		return front{}, errForeign
	}
	key, head := binary.LittleEndian.Uint32(p[4:]), binary.LittleEndian.Uint32(p[8:])
	size := binary.LittleEndian.Uint64(p[12:])
	if key > mostKey || head > mostHead || size != uint64(total)-preamble-uint64(key)-uint64(head) {
		return front{}, errDamaged
	}
	text := make([]byte, key+head)
	if _, err := io.ReadFull(r, text); err != nil {
		return front{}, err
	}
	f := front{key: text[:key:key], head: text[key:], size: int64(size), sum: binary.LittleEndian.Uint32(p[20:])}
	if checksum(checksum(0, p[:24]), text) != binary.LittleEndian.Uint32(p[24:]) || f.size < 0 {
		return front{}, errDamaged
	}
	return f, nil
}

// read reads an object of total bytes as a whole, and makes sure that it is
// what was written.
func (s *Store) read(r io.Reader, total int64, key string) (*store.Object, error) {
	f, err := readFront(r, total)
	if err != nil {
		return nil, early(err)
	}
	if string(f.key) != key {
		return nil, errOther
	}
	if f.size > int64(s.o.Largest) {
		return nil, fmt.Errorf("%w: it has %d bytes, at most %v are taken", store.ErrNotFound, f.size, s.o.Largest)
	}
	b := &spool{s: s}
	if f.size > inMemory && !b.toFile(f.size) || f.size <= inMemory && !b.toMemory(f.size) {
		return nil, fmt.Errorf("%w: there is no room for a body of %d bytes", store.ErrDown, f.size)
	}
	if _, err = io.CopyN(b, r, f.size); err == nil && b.sum != f.sum {
		err = errDamaged
	}
	if err != nil {
		b.close()
		return nil, early(err)
	}
	return b.object(f.head), nil
}

// early tells an end that came too soon from one that had to come.
func early(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
