package redis

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"millrace/store"
)

// A value is body, head, and a trailer of the head's length (4 bytes, little
// endian) and the version of the form. The head is last since it comes
// last, and so nothing is ever moved.
const (
	version = "mrO\x01"
	trailer = 4 + len(version)
)

// unframe takes a value apart, without copying.
func unframe(value []byte) (*store.Object, bool) {
	body := len(value) - trailer
	if body < 0 || string(value[body+4:]) != version {
		return nil, false
	}
	head := int64(binary.LittleEndian.Uint32(value[body:]))
	size := int64(body) - head
	if size < 0 {
		return nil, false
	}
	return &store.Object{
		Head: value[size:body:body],
		Size: size,
		Body: bytes.NewReader(value[:size:size]),
	}, true
}

// Create implements [store.Store]. The body is held in memory until Commit.
func (r *Redis) Create(ctx context.Context, key string, size int64) (store.Writer, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("writing to redis: %w", err)
	}
	if size > int64(r.o.Largest) {
		return nil, fmt.Errorf("writing to redis: %w: %d bytes, at most %v are taken", store.ErrFull, size, r.o.Largest)
	}
	within, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	if !r.health.ready(within) {
		return nil, fmt.Errorf("writing to redis: %w", r.refusal(ctx))
	}
	w := &writer{r: r, ttl: r.o.TTL, ctx: context.WithoutCancel(ctx), key: r.objectKey(key), size: size}
	if size > 0 && !w.reserve(int(size)+headRoom) {
		return nil, fmt.Errorf("writing to redis: %w: all writers together hold too much", store.ErrFull)
	}
	return w, nil
}

// headRoom is kept free after a body of known size, for what most heads need.
const headRoom = 2 << 10

// writer is a store.Writer that gathers the value.
type writer struct {
	r    *Redis
	ctx  context.Context // of Create, without its end: a client that leaves does not end a fill
	key  string
	size int64 // -1: not known

	mu       sync.RWMutex
	ttl      time.Duration
	buf      []byte
	reserved int // of the bytes that all writers may hold
	done     bool
}

// Write implements io.Writer.
func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := int64(len(w.buf) + len(p))
	switch {
	case w.done:
		return 0, store.ErrEnded
	case w.size >= 0 && n > w.size:
		return 0, fmt.Errorf("%w: more than %d bytes", store.ErrSize, w.size)
	case n > int64(w.r.o.Largest):
		return 0, fmt.Errorf("%w: more than %v", store.ErrFull, w.r.o.Largest)
	}
	if int(n) > cap(w.buf) && !w.reserve(max(int(n), min(2*cap(w.buf), int(w.r.o.Largest)+headRoom), 4<<10)) {
		return 0, fmt.Errorf("%w: all writers together hold too much", store.ErrFull)
	}
	w.buf = append(w.buf, p...)
	return len(p), nil
}

// Expire implements [store.Expiring].
func (w *writer) Expire(after time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ttl = max(after, time.Millisecond)
}

// reserve makes the buffer n bytes large if all writers together may hold that.
func (w *writer) reserve(n int) bool {
	if w.r.buffered.Add(int64(n-w.reserved)) > mostBuffered {
		w.r.buffered.Add(int64(w.reserved - n))
		return false
	}
	w.reserved = n
	grown := make([]byte, len(w.buf), n)
	copy(grown, w.buf)
	w.buf = grown
	return true
}

// ReadAt implements io.ReaderAt.
func (w *writer) ReadAt(p []byte, off int64) (int, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.done {
		return 0, store.ErrEnded
	}
	if off < 0 || off >= int64(len(w.buf)) {
		return 0, io.EOF
	}
	n := copy(p, w.buf[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// end returns the value, once; the writer has none then.
func (w *writer) end() (value []byte, held int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done {
		return nil, 0, store.ErrEnded
	}
	value, w.buf, w.done = w.buf, nil, true
	return value, w.reserved, nil
}

// Commit implements [store.Writer]. If it fails for want of an answer, the
// object may have become visible nevertheless.
func (w *writer) Commit(head []byte) error {
	value, held, err := w.end()
	if err != nil {
		return err
	}
	defer w.r.buffered.Add(int64(-held))
	if w.size >= 0 && int64(len(value)) != w.size {
		return fmt.Errorf("writing to redis: %w: %d of %d bytes", store.ErrSize, len(value), w.size)
	}
	if len(head) > mostHead {
		return fmt.Errorf("writing to redis: %w: a head of %d bytes, at most %d are taken", store.ErrFull, len(head), mostHead)
	}
	value = append(value, head...)
	value = binary.LittleEndian.AppendUint32(value, uint32(len(head)))
	value = append(value, version...)
	err = w.r.call(w.ctx, w.key, func(ctx context.Context, l *link) error {
		// BinaryString does not copy; value is not touched any more.
		return l.write.Do(ctx, l.write.B().Set().Key(w.key).Value(rueidis.BinaryString(value)).Px(w.ttl).Build()).Error()
	})
	if err != nil {
		return fmt.Errorf("writing to redis: %w", err)
	}
	w.r.meters.Written.Add(0, uint64(len(value)))
	return nil
}

// Abort implements [store.Writer].
func (w *writer) Abort() error {
	if _, held, err := w.end(); err == nil {
		w.r.buffered.Add(int64(-held))
	}
	return nil
}
