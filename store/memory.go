package store

import (
	"bytes"
	"container/list"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"millrace/internal/bytesize"
)

// memoryOverhead is what an object costs beside its key, head and body: the
// slot of the map, the element of the list, the object itself, and what the
// allocator rounds up. Measured 174 with objects of 100 bytes; a map that has
// just grown needs more.
const memoryOverhead = 256

// NewMemory returns a store in memory. The limit is of the bytes of keys,
// heads and bodies, those being written included, with 256 more for every
// object. One object gets half of it at most. What was evicted lives on while
// someone reads it.
func NewMemory(limit bytesize.Size) *Memory {
	return &Memory{limit: int64(limit), objects: map[string]*list.Element{}}
}

// Memory keeps objects in memory, and evicts those first that were last
// asked for longest ago. It is meant for tests and small uses: it has one lock.
type Memory struct {
	limit int64

	mu      sync.Mutex
	objects map[string]*list.Element // of *memoryObject
	recent  list.List                // the one that was asked for last is in front
	used    int64                    // of objects and of Writers
	evicted uint64
	closed  bool
}

type memoryObject struct {
	key        string
	head, body []byte // never changed
}

func (o *memoryObject) cost() int64 {
	return int64(memoryOverhead + len(o.key) + cap(o.head) + cap(o.body))
}

// Get implements Store.
func (m *Memory) Get(ctx context.Context, key string) (*Object, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, errClosed
	}
	e, ok := m.objects[key]
	if !ok {
		return nil, ErrNotFound
	}
	m.recent.MoveToFront(e)
	o := e.Value.(*memoryObject)
	return &Object{Head: o.head, Size: int64(len(o.body)), Body: bytes.NewReader(o.body)}, nil
}

// Create implements Store.
func (m *Memory) Create(ctx context.Context, key string, size int64) (Writer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w := &memoryWriter{store: m, key: key, size: size}
	if err := m.reserve(w, memoryOverhead+int64(len(key))+max(size, 0)); err != nil {
		return nil, err
	}
	if size > 0 {
		w.body = make([]byte, 0, size)
	}
	return w, nil
}

// Delete implements Store.
func (m *Memory) Delete(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errClosed
	}
	if e, ok := m.objects[key]; ok {
		m.remove(e)
	}
	return nil
}

// Stats implements Store.
func (m *Memory) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Stats{Objects: int64(len(m.objects)), Bytes: m.used, Limit: m.limit, Evicted: m.evicted}
}

// Close implements Store, and forgets everything.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	for e := m.recent.Front(); e != nil; e = m.recent.Front() {
		m.remove(e)
	}
	return nil
}

// remove takes an object out. m.mu is held.
func (m *Memory) remove(e *list.Element) {
	o := m.recent.Remove(e).(*memoryObject)
	delete(m.objects, o.key)
	m.used -= o.cost()
}

// reserve makes w's share total bytes, evicting what is in the way.
func (m *Memory) reserve(w *memoryWriter, total int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errClosed
	}
	if total > m.limit/2 {
		return fmt.Errorf("%w for an object of more than %s", ErrFull, bytesize.Size(m.limit/2))
	}
	for m.used-w.reserved+total > m.limit {
		e := m.recent.Back()
		if e == nil {
			return fmt.Errorf("%w: all of it is being written to", ErrFull)
		}
		m.remove(e)
		m.evicted++
	}
	m.used += total - w.reserved
	w.reserved = total
	return nil
}

func (m *Memory) release(w *memoryWriter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= w.reserved
	w.reserved = 0
}

// memoryWriter is the Writer of a Memory.
type memoryWriter struct {
	store    *Memory
	key      string
	size     int64 // -1: not known
	reserved int64 // bytes; guarded by store.mu

	mu    sync.RWMutex
	body  []byte
	ended bool
}

// Write implements io.Writer.
func (w *memoryWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return 0, errEnded
	}
	if w.size >= 0 && int64(len(w.body)+len(p)) > w.size {
		return 0, errSize(w.size, int64(len(w.body)+len(p)))
	}
	if need := len(w.body) + len(p); need > cap(w.body) {
		// Growing by half keeps copies and waste both small. Both the old and
		// the new array exist for a moment; only the new one is counted.
		room := max(need, cap(w.body)+cap(w.body)/2, 512)
		if err := w.store.reserve(w, int64(memoryOverhead+len(w.key)+room)); err != nil {
			return 0, err
		}
		w.body = append(make([]byte, 0, room), w.body...)
	}
	w.body = append(w.body, p...)
	return len(p), nil
}

// errSize says that a body is not what was announced.
func errSize(announced, got int64) error {
	return fmt.Errorf("the object was announced with %d bytes and has %d", announced, got)
}

// ReadAt implements io.ReaderAt.
func (w *memoryWriter) ReadAt(p []byte, off int64) (int, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.ended {
		return 0, errEnded
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

// Commit implements Writer.
func (w *memoryWriter) Commit(head []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return errEnded
	}
	w.ended = true
	defer w.store.release(w)
	if w.size >= 0 && int64(len(w.body)) != w.size {
		return errSize(w.size, int64(len(w.body)))
	}
	o := &memoryObject{key: w.key, head: append(make([]byte, 0, len(head)), head...), body: w.body}
	if cap(o.body)-len(o.body) > len(o.body)/8 {
		o.body = slices.Clip(append(make([]byte, 0, len(o.body)), o.body...)) // the room to grow into is not needed any more
	}
	if err := w.store.reserve(w, o.cost()); err != nil {
		return err
	}
	return w.store.commit(w, o)
}

// commit puts o in place, with what was reserved for it.
func (m *Memory) commit(w *memoryWriter, o *memoryObject) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errClosed
	}
	if e, ok := m.objects[o.key]; ok {
		m.remove(e)
	}
	m.objects[o.key] = m.recent.PushFront(o)
	w.reserved -= o.cost() // it is the object's now
	return nil
}

// Abort implements Writer.
func (w *memoryWriter) Abort() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.ended = true
		w.body = nil
		w.store.release(w)
	}
	return nil
}
