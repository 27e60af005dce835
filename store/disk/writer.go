package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"sync"

	"millrace/internal/bytesize"
	"millrace/store"
)

// bufferSize of a writer. An object that fits goes to the disk with one write
// when it is committed; larger ones in pieces of this size.
const bufferSize = 64 << 10

// The steps in which the reservation of an object of unknown size grows: by
// half of it, within these bounds, so that neither eviction happens for every
// write, nor much is evicted that is not needed.
const (
	leastStep = 16   // blocks, 64 KiB
	mostStep  = 2048 // blocks, 8 MiB
)

// headRoom is reserved for the head, which is not known before Commit.
const headRoom = 1024

// buffers are those of writers, and of verify.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// writer is the store.Writer. One goroutine writes; any may read.
type writer struct {
	disk     *Store
	id       id
	key      string
	size     int64 // as announced, or -1
	offset   int64 // of the body in the file
	reserved int64 // blocks
	sum      uint32
	failed   error  // the first error of Write
	name     string // of the temporary file, once there is one

	// mu guards what ReadAt looks at: only the writing goroutine changes it,
	// and takes mu to do so.
	mu      sync.RWMutex
	buffer  *[bufferSize]byte // pooled
	waiting []byte            // the part of buffer that is not yet in the file
	file    *os.File
	flushed int64 // bytes in the file
	written int64 // bytes of the body
	ended   bool
}

// Create implements store.Store. While the index is being read, and when 1024
// objects are being written already, it returns ErrFull.
func (d *Store) Create(ctx context.Context, key string, size int64) (store.Writer, error) {
	if err := d.usable(ctx); err != nil {
		return nil, err
	}
	if len(key) > maxKey {
		return nil, fmt.Errorf("%w for a key of %d bytes", store.ErrFull, len(key))
	}
	w := &writer{disk: d, id: idOf(key), key: key, size: size, offset: bodyOffset(len(key))}
	if err := d.wanted(w.id, size); err != nil {
		return nil, err
	}
	if err := d.enter(); err != nil {
		return nil, err
	}
	if err := w.reserve(w.offset+max(size, 0)+headRoom, false); err != nil {
		d.leave(w.reserved)
		return nil, err
	}
	w.buffer = buffers.Get().(*[bufferSize]byte)
	w.waiting = append(append(w.buffer[:0], make([]byte, headerSize)...), key...)
	w.waiting = append(w.waiting, make([]byte, int(w.offset)-len(w.waiting))...)
	return w, nil
}

// takes returns an error if the options refuse a body of this size.
func (d *Store) takes(size int64) error {
	switch o := &d.options; {
	case o.Largest > 0 && size > int64(o.Largest):
		return fmt.Errorf("%w for a body of more than %s", store.ErrFull, o.Largest)
	case size < int64(o.Smallest):
		return fmt.Errorf("%w for a body of less than %s", store.ErrFull, o.Smallest)
	}
	return nil
}

// reserve makes sure that a file of n bytes is within the quota.
func (w *writer) reserve(n int64, growing bool) error {
	need := blocks(n)
	if need <= w.reserved {
		return nil
	}
	if growing {
		ahead := need + min(max(need/2, leastStep), mostStep)
		if w.disk.reserve(ahead-w.reserved, ahead) == nil {
			w.reserved = ahead
			return nil
		}
	}
	if err := w.disk.reserve(need-w.reserved, need); err != nil {
		return err
	}
	w.reserved = need
	return nil
}

// Write implements io.Writer.
func (w *writer) Write(p []byte) (n int, err error) {
	switch {
	case w.ended:
		return 0, store.ErrEnded
	case w.failed != nil:
		return 0, w.failed
	}
	defer func() { w.failed = err }()
	after := w.written + int64(len(p))
	if w.size >= 0 && after > w.size {
		return 0, fmt.Errorf("%w: %d of %d bytes", store.ErrSize, after, w.size)
	}
	if o := &w.disk.options; o.Largest > 0 && after > int64(o.Largest) {
		return 0, fmt.Errorf("%w for a body of more than %s", store.ErrFull, o.Largest)
	}
	if err := w.reserve(w.offset+after+tailSize, true); err != nil {
		return 0, err
	}
	w.sum = checksum(w.sum, p)
	for len(p) > 0 {
		if len(w.waiting) == bufferSize {
			if err := w.flush(w.waiting); err != nil {
				return n, err
			}
		}
		part := p[:min(len(p), bufferSize-len(w.waiting))]
		if len(w.waiting) == 0 && len(p) >= bufferSize {
			part = p[:len(p)/blockSize*blockSize]
			if err := w.flush(part); err != nil {
				return n, err
			}
			w.count(len(part))
		} else {
			w.mu.Lock()
			w.waiting = append(w.waiting, part...)
			w.written += int64(len(part))
			w.mu.Unlock()
		}
		p = p[len(part):]
		n += len(part)
	}
	return n, nil
}

func (w *writer) count(n int) {
	w.mu.Lock()
	w.written += int64(n)
	w.mu.Unlock()
}

// flush appends p to the file, which is what was waiting or comes after it.
// Nobody waits for the disk meanwhile but the writer.
func (w *writer) flush(p []byte) error {
	if w.file == nil {
		name := writingName + "/" + strconv.FormatUint(w.disk.serial.Add(1), 16)
		f, err := w.disk.files.create(name)
		if err != nil {
			return noRoom("writing an object", err)
		}
		w.name = name
		w.mu.Lock()
		w.file = f
		w.mu.Unlock()
	}
	if err := w.disk.files.write(w.file, p, w.flushed); err != nil {
		return noRoom("writing an object", err)
	}
	w.mu.Lock()
	w.flushed += int64(len(p))
	w.waiting = w.waiting[:0]
	w.mu.Unlock()
	return nil
}

// ReadAt implements io.ReaderAt.
func (w *writer) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("reading at the offset %d", off)
	}
	w.mu.RLock()
	if w.ended {
		w.mu.RUnlock()
		return 0, store.ErrEnded
	}
	short := off+int64(len(p)) > w.written
	if short {
		p = p[:max(0, w.written-off)]
	}
	// What is flushed stays where it is; what waits is copied while it cannot move.
	at, inFile := w.offset+off, 0
	if at < w.flushed {
		inFile = int(min(int64(len(p)), w.flushed-at))
	}
	n := len(p)
	if inFile < n {
		copy(p[inFile:], w.waiting[at+int64(inFile)-w.flushed:])
	}
	file := w.file
	w.mu.RUnlock()
	if inFile > 0 {
		if n, err := file.ReadAt(p[:inFile], at); err != nil {
			return n, fmt.Errorf("reading an object that is being written: %w", err)
		}
	}
	if short {
		return n, io.EOF
	}
	return n, nil
}

// Commit implements store.Writer.
func (w *writer) Commit(head []byte) error {
	if w.ended {
		return store.ErrEnded
	}
	if err := w.commit(head); err != nil {
		_ = w.Abort()
		return err
	}
	w.end()
	return nil
}

func (w *writer) commit(head []byte) error {
	switch {
	case w.failed != nil:
		return w.failed
	case w.size >= 0 && w.written != w.size:
		return fmt.Errorf("%w: %d of %d bytes", store.ErrSize, w.written, w.size)
	case len(head) > maxHead:
		return fmt.Errorf("%w for a head of more than %s", store.ErrFull, bytesize.Size(maxHead))
	}
	if err := w.disk.takes(w.written); err != nil {
		return err
	}
	h := header{
		epoch: w.disk.epoch, size: w.written, offset: w.offset, keySize: len(w.key),
		headSize: len(head), bodySum: w.sum, headSum: checksum(0, head),
	}
	if err := w.reserve(h.end(), false); err != nil {
		return err
	}
	start := make([]byte, headerSize, headerSize+len(w.key))
	h.encode(append(start, w.key...))
	rest := append(append(w.waiting, head...), start[sumOffset:]...)
	if w.file == nil {
		copy(rest, start)
		if err := w.flush(rest); err != nil {
			return err
		}
	} else {
		if err := w.flush(rest); err != nil {
			return err
		}
		if err := w.disk.files.write(w.file, start, 0); err != nil {
			return noRoom("writing an object", err)
		}
	}
	return w.disk.commit(w.id, w.name, blocks(h.end()), w.reserved)
}

// Abort implements store.Writer.
func (w *writer) Abort() error {
	if w.ended {
		return nil
	}
	w.end()
	var err error
	if w.name != "" {
		err = w.disk.files.remove(w.name)
	}
	w.disk.leave(w.reserved)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !w.disk.closed.Load() {
		return fmt.Errorf("removing an object that was being written: %w", err)
	}
	return nil
}

// end gives the file and the buffer back.
func (w *writer) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	if w.file != nil {
		w.file.Close()
	}
	buffers.Put(w.buffer)
	w.buffer, w.waiting = nil, nil
}
