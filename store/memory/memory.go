// Package memory is a [store.Store] in this process, for tests and small uses.
package memory

import (
	"bytes"
	"container/list"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"millrace/internal/bytesize"
	"millrace/store"
)

// overhead is what an object costs beside its key, head and body: the slot of
// the map, the element of the list, the object itself, and what the allocator
// rounds up. Measured 174 with objects of 100 bytes; a map that has
// just grown needs more.
const overhead = 256

// New returns a store in memory. The limit covers the bytes of keys, heads and
// bodies, those being written included, and 256 more for every object. One
// object gets half of it at most. What was evicted stays readable for those who
// have it open.
func New(limit bytesize.Size) *Store {
	return &Store{limit: int64(limit), objects: map[string]*list.Element{}}
}

// Store keeps objects in memory and evicts the least recently used first. It
// has one lock.
type Store struct {
	limit int64

	mu      sync.Mutex
	objects map[string]*list.Element // of *object
	recent  list.List                // the one that was asked for last is in front
	used    int64                    // of objects and of Writers
	evicted uint64
	closed  bool
}

type object struct {
	key        string
	head, body []byte // never changed
}

func (o *object) cost() int64 {
	return int64(overhead + len(o.key) + cap(o.head) + cap(o.body))
}

// Get implements store.Store.
func (m *Store) Get(ctx context.Context, key string) (*store.Object, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, store.ErrClosed
	}
	e, ok := m.objects[key]
	if !ok {
		return nil, store.ErrNotFound
	}
	m.recent.MoveToFront(e)
	o := e.Value.(*object)
	return &store.Object{Head: o.head, Size: int64(len(o.body)), Body: bytes.NewReader(o.body)}, nil
}

// Create implements store.Store.
func (m *Store) Create(ctx context.Context, key string, size int64) (store.Writer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w := &writer{store: m, key: key, size: size}
	if err := m.reserve(w, overhead+int64(len(key))+max(size, 0)); err != nil {
		return nil, err
	}
	if size > 0 {
		w.body = make([]byte, 0, size)
	}
	return w, nil
}

// Delete implements store.Store.
func (m *Store) Delete(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return store.ErrClosed
	}
	if e, ok := m.objects[key]; ok {
		m.remove(e)
	}
	return nil
}

// Stats implements store.Store.
func (m *Store) Stats() store.Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return store.Stats{Objects: int64(len(m.objects)), Bytes: m.used, Limit: m.limit, Evicted: m.evicted}
}

// Close implements store.Store, and forgets everything.
func (m *Store) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	for e := m.recent.Front(); e != nil; e = m.recent.Front() {
		m.remove(e)
	}
	return nil
}

// remove takes an object out. m.mu is held.
func (m *Store) remove(e *list.Element) {
	o := m.recent.Remove(e).(*object)
	delete(m.objects, o.key)
	m.used -= o.cost()
}

// reserve makes w's share total bytes, evicting what is in the way.
func (m *Store) reserve(w *writer, total int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return store.ErrClosed
	}
	if total > m.limit/2 {
		return fmt.Errorf("%w for an object of more than %s", store.ErrFull, bytesize.Size(m.limit/2))
	}
	for m.used-w.reserved+total > m.limit {
		e := m.recent.Back()
		if e == nil {
			return fmt.Errorf("%w: all of it is being written to", store.ErrBusy)
		}
		m.remove(e)
		m.evicted++
	}
	m.used += total - w.reserved
	w.reserved = total
	return nil
}

func (m *Store) release(w *writer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= w.reserved
	w.reserved = 0
}

// writer is the store.Writer.
type writer struct {
	store    *Store
	key      string
	size     int64 // -1: not known
	reserved int64 // bytes; guarded by store.mu

	mu    sync.RWMutex
	body  []byte
	ended bool
}

// Write implements io.Writer.
func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return 0, store.ErrEnded
	}
	if w.size >= 0 && int64(len(w.body)+len(p)) > w.size {
		return 0, fmt.Errorf("%w: %d of %d bytes", store.ErrSize, len(w.body)+len(p), w.size)
	}
	if need := len(w.body) + len(p); need > cap(w.body) {
		// Growing by half keeps copies and waste both small. Both the old and
		// the new array exist for a moment; only the new one is counted.
		room := max(need, cap(w.body)+cap(w.body)/2, 512)
		if err := w.store.reserve(w, int64(overhead+len(w.key)+room)); err != nil {
			return 0, err
		}
		w.body = append(make([]byte, 0, room), w.body...)
	}
	w.body = append(w.body, p...)
	return len(p), nil
}

// ReadAt implements io.ReaderAt.
func (w *writer) ReadAt(p []byte, off int64) (int, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.ended {
		return 0, store.ErrEnded
	}
	if off < 0 {
		return 0, fmt.Errorf("reading at the offset %d", off)
	}
	if off >= int64(len(w.body)) {
		return 0, io.EOF
	}
	n := copy(p, w.body[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Commit implements store.Writer.
func (w *writer) Commit(head []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return store.ErrEnded
	}
	w.ended = true
	defer w.store.release(w)
	if w.size >= 0 && int64(len(w.body)) != w.size {
		return fmt.Errorf("%w: %d of %d bytes", store.ErrSize, len(w.body), w.size)
	}
	o := &object{key: w.key, head: append(make([]byte, 0, len(head)), head...), body: w.body}
	if cap(o.body)-len(o.body) > len(o.body)/8 {
		o.body = slices.Clip(append(make([]byte, 0, len(o.body)), o.body...)) // the room to grow into is not needed any more
	}
	if err := w.store.reserve(w, o.cost()); err != nil {
		return err
	}
	return w.store.commit(w, o)
}

// commit puts o in place, with what was reserved for it.
func (m *Store) commit(w *writer, o *object) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return store.ErrClosed
	}
	if e, ok := m.objects[o.key]; ok {
		m.remove(e)
	}
	m.objects[o.key] = m.recent.PushFront(o)
	w.reserved -= o.cost() // it is the object's now
	return nil
}

// Abort implements store.Writer.
func (w *writer) Abort() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.ended = true
		w.body = nil
		w.store.release(w)
	}
	return nil
}
