package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// The index is a file of records, appended one by one, that saves a start the
// walk over all files: the id of an object (16 bytes), its size in blocks
// (4; 0: it is gone) and the CRC-32C of those 20 bytes. Their order is that of
// eviction, so there is no time in them.
//
// A record is written before its object is put in place, and after it is
// removed. So the index may tell of objects that are not there, which are then
// evicted for nothing, but never misses one, which would be outside the quota.
const (
	indexName   = "index"
	indexFresh  = "index.new"
	indexMagic  = "mrindex1"
	recordSize  = 24
	recordSum   = 20
	indexSlack  = 1024 // records beyond twice the objects before the index is written anew
	indexLater  = 256  // records that may wait for the next write
	indexBuffer = 4096 * recordSize
)

type index struct {
	files files
	file  *os.File     // nil while the index of before is being read
	size  atomic.Int64 // bytes
	wait  []byte       // records that only save work later
	slack int64        // records; more after the index could not be written anew
}

func appendRecord(b []byte, i id, blocks int64) []byte {
	b = append(b, i[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(blocks))
	return binary.LittleEndian.AppendUint32(b, checksum(0, b[len(b)-recordSum:]))
}

// parseRecord reads a record of recordSize bytes.
func parseRecord(b []byte) (i id, blocks int64, ok bool) {
	if binary.LittleEndian.Uint32(b[recordSum:]) != checksum(0, b[:recordSum]) {
		return i, 0, false
	}
	blocks = int64(binary.LittleEndian.Uint32(b[len(i):]))
	return id(b[:len(i)]), blocks, blocks <= maxBlocks
}

// readIndex calls apply with the records in r, many at a time. It returns
// errDamaged after all that could be read if that is not all.
func readIndex(r io.Reader, apply func(records []byte) error) error {
	b := make([]byte, indexBuffer)
	if _, err := io.ReadFull(r, b[:len(indexMagic)]); err != nil || string(b[:len(indexMagic)]) != indexMagic {
		return errDamaged
	}
	for {
		n, err := io.ReadFull(r, b)
		whole := n - n%recordSize
		valid := 0
		for ; valid < whole; valid += recordSize {
			if _, _, ok := parseRecord(b[valid : valid+recordSize]); !ok {
				break
			}
		}
		if err := apply(b[:valid]); err != nil {
			return err
		}
		switch {
		case valid < n:
			return errDamaged
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return errDamaged
		}
	}
}

// add appends a record at once, with those that waited.
func (x *index) add(i id, blocks int64) error {
	if err := x.write(appendRecord(x.wait, i, blocks)); err != nil {
		return fmt.Errorf("writing the index: %w", err)
	}
	return nil
}

// later appends a record with the next write. Nothing is lost without it but
// some precision, so it is given up when it cannot be written.
func (x *index) later(i id, blocks int64) {
	x.wait = appendRecord(x.wait, i, blocks)
	if len(x.wait) >= indexLater*recordSize {
		if x.write(x.wait) != nil {
			x.wait = x.wait[:0]
		}
	}
}

// write appends records. What was written in part is overwritten next time.
func (x *index) write(records []byte) error {
	if x.file == nil {
		return errors.New("it is still being read")
	}
	if err := x.files.write(x.file, records, x.size.Load()); err != nil {
		return err
	}
	x.size.Add(int64(len(records)))
	x.wait = x.wait[:0]
	return nil
}

// bloated reports whether the index of a number of objects should be written anew.
func (x *index) bloated(objects int) bool {
	return x.size.Load()/recordSize > 2*int64(objects)+x.slack
}

// cost is the blocks that index files may take: the one there is with what
// writers and evictions will append, and its successor while that is written.
func (x *index) cost(objects, writers int64) int64 {
	appended := x.size.Load() + recordSize*(2*writers+indexLater)
	return blocks(appended) + blocks(recordSize*(objects+writers)+int64(len(indexMagic)))
}

// rewrite writes an index of the objects that next gives in batches of
// records, nil at the end, and puts it in the place of the one before.
func (x *index) rewrite(next func() []byte) error {
	f, err := x.files.create(indexFresh)
	if err != nil {
		return err
	}
	size := int64(0)
	b := []byte(indexMagic)
	for b != nil && err == nil {
		err = x.files.write(f, b, size)
		size += int64(len(b))
		b = next()
	}
	if err == nil {
		err = x.files.rename(indexFresh, indexName)
	}
	if err != nil {
		f.Close()
		_ = x.files.remove(indexFresh)
		return err
	}
	x.close()
	x.file = f
	x.size.Store(size)
	x.wait = x.wait[:0]
	x.slack = indexSlack
	return nil
}

func (x *index) close() {
	if x.file != nil {
		x.file.Close()
		x.file = nil
	}
}

// compact writes the index anew: one record for each object. d.changes is held.
func (d *Store) compact() error {
	buffer := make([]byte, 0, indexBuffer)
	at, position := 0, 0
	d.mu.Lock()
	position = d.table.hand
	d.mu.Unlock()
	// Nothing comes or goes meanwhile; d.mu is for the flags.
	return d.index.rewrite(func() []byte {
		buffer = buffer[:0]
		d.mu.Lock()
		defer d.mu.Unlock()
		all := d.table.entries
		for ; at < len(all) && len(buffer) < indexBuffer; at++ {
			if e := &all[(position+at)%len(all)]; e.word != 0 {
				buffer = appendRecord(buffer, e.id, e.blocks())
			}
		}
		if len(buffer) == 0 {
			return nil
		}
		return buffer
	})
}
