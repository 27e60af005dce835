package s3

import (
	"context"
	"fmt"
	"sync"

	"millrace/store"
)

// Create implements store.Store. The body is held here until Commit.
func (s *Store) Create(ctx context.Context, key string, size int64) (store.Writer, error) {
	fail := func(err error) (store.Writer, error) { return nil, fmt.Errorf("writing to s3: %w", err) }
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	switch {
	case s.closing.Err() != nil:
		return fail(store.ErrClosed)
	case !s.health.up():
		return fail(fmt.Errorf("%w: %w", store.ErrDown, *s.health.cause.Load()))
	case size > int64(s.o.Largest):
		return fail(fmt.Errorf("%w: %d bytes, at most %v are taken", store.ErrFull, size, s.o.Largest))
	case len(key) > mostKey:
		return fail(fmt.Errorf("%w: a key of %d bytes, at most %d are taken", store.ErrFull, len(key), mostKey))
	}
	w := &writer{s: s, ctx: context.WithoutCancel(ctx), key: key, size: size, body: &spool{s: s}}
	if size > 0 && !w.body.room(size) {
		w.body.close()
		return fail(errNoRoom)
	}
	return w, nil
}

// writer is a store.Writer that gathers the body.
type writer struct {
	s    *Store
	ctx  context.Context // of Create, without its end: a client that leaves does not end a fill
	key  string
	size int64 // -1: not known

	mu   sync.RWMutex
	body *spool // nil after the end
}

// Write implements io.Writer.
func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.body == nil {
		return 0, store.ErrEnded
	}
	switch n := w.body.size + int64(len(p)); {
	case w.size >= 0 && n > w.size:
		return 0, fmt.Errorf("%w: more than %d bytes", store.ErrSize, w.size)
	case n > int64(w.s.o.Largest):
		return 0, fmt.Errorf("%w: more than %v", store.ErrFull, w.s.o.Largest)
	}
	return w.body.Write(p)
}

// ReadAt implements io.ReaderAt.
func (w *writer) ReadAt(p []byte, off int64) (int, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.body == nil {
		return 0, store.ErrEnded
	}
	return w.body.ReadAt(p, off)
}

// end gives the body out, once.
func (w *writer) end() *spool {
	w.mu.Lock()
	defer w.mu.Unlock()
	body := w.body
	w.body = nil
	return body
}

// Commit implements [store.Writer]. If it fails for want of an answer, the
// object may have become visible nevertheless.
func (w *writer) Commit(head []byte) error {
	body := w.end()
	if body == nil {
		return store.ErrEnded
	}
	defer body.close()
	if w.size >= 0 && body.size != w.size {
		return fmt.Errorf("writing to s3: %w: %d of %d bytes", store.ErrSize, body.size, w.size)
	}
	if len(head) > mostHead {
		return fmt.Errorf("writing to s3: %w: a head of %d bytes, at most %d are taken", store.ErrFull, len(head), mostHead)
	}
	before := appendFront(make([]byte, 0, preamble+len(w.key)+len(head)),
		front{key: []byte(w.key), head: head, size: body.size, sum: body.sum})
	total := int64(len(before)) + body.size
	err := w.s.call(w.ctx, total, func(ctx context.Context, _ func(int64)) error {
		return w.s.client.put(ctx, w.s.name(w.key), &joined{before, body}, total)
	})
	if err != nil {
		return fmt.Errorf("writing to s3: %w", err)
	}
	w.s.meters.Written.Add(0, uint64(total))
	return nil
}

// Abort implements [store.Writer].
func (w *writer) Abort() error {
	if body := w.end(); body != nil {
		body.close()
	}
	return nil
}

// joined is a front and a body in one.
type joined struct {
	before []byte
	body   *spool
}

// ReadAt implements io.ReaderAt.
func (j *joined) ReadAt(p []byte, off int64) (int, error) {
	if off >= int64(len(j.before)) {
		return j.body.ReadAt(p, off-int64(len(j.before)))
	}
	n := copy(p, j.before[off:])
	if n == len(p) {
		return n, nil
	}
	more, err := j.body.ReadAt(p[n:], 0)
	return n + more, err
}
