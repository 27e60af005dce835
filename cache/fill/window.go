package fill

import (
	"context"
	"fmt"
	"math"
)

// becomeWindow turns a body that has nowhere to go into a window: from now on
// bytes are dropped that all readers have read, and the writer waits for the
// slowest one. b.mu is held.
func (b *Body) becomeWindow() {
	b.full = true
	b.window.Store(true)
	for r := b.first; r != nil; r = r.next {
		b.watch(r)
	}
}

// watch drops a reader when its context ends, so that one which is stuck in a write to
// a dead client does not hold up all others. b.mu is held.
func (b *Body) watch(r *Reader) {
	r.unwatch = context.AfterFunc(r.ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.unlink(r)
	})
}

// link makes r one that a window waits for. b.mu is held.
func (b *Body) link(r *Reader) {
	b.seen = true
	r.linked, r.next = true, b.first
	if b.first != nil {
		b.first.prev = r
	}
	b.first = r
	if b.window.Load() {
		b.watch(r)
	}
}

// unlink is the opposite of link. b.mu is held.
func (b *Body) unlink(r *Reader) {
	if !r.linked {
		return
	}
	r.linked = false
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		b.first = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	r.next, r.prev = nil, nil
	wake(&b.room)
}

// slide adds a chunk to the window, waiting until there is room for it.
func (b *Body) slide() error {
	size := max(min(b.o.Window/windowChunks, windowChunk), 1)
	for {
		b.mu.Lock()
		b.drop(size)
		if b.ended || b.allocated+size <= b.o.Window {
			err := b.closed()
			b.mu.Unlock()
			if err != nil {
				return err
			}
			return b.addChunk(size)
		}
		if b.first == nil && b.seen {
			b.mu.Unlock()
			return ErrUnread
		}
		if b.room == nil {
			b.room = make(chan struct{})
		}
		room := b.room
		b.mu.Unlock()
		if err := b.waitFor(room); err != nil {
			return err
		}
	}
}

// waitFor waits until room is closed, or the writer's context ends.
func (b *Body) waitFor(room <-chan struct{}) error {
	var done <-chan struct{}
	if b.o.Context != nil {
		done = b.o.Context.Done()
	}
	select {
	case <-room:
		return nil
	case <-done:
		return fmt.Errorf("waiting for readers: %w", context.Cause(b.o.Context))
	}
}

// drop forgets as many chunks as must go for another of size bytes, of those
// that all readers have read. It leaves what it can, for readers to come.
// b.mu is held.
func (b *Body) drop(size int64) {
	if b.allocated+size <= b.o.Window || b.first == nil {
		return
	}
	slowest := int64(math.MaxInt64)
	for r := b.first; r != nil; r = r.next {
		slowest = min(slowest, r.pos.Load())
	}
	n := 0
	for ; n < len(b.chunks) && b.chunks[n].end() <= slowest && b.allocated+size > b.o.Window; n++ {
		b.allocated -= int64(cap(b.chunks[n].b))
		b.start = b.chunks[n].end()
	}
	kept := copy(b.chunks, b.chunks[n:])
	clear(b.chunks[kept:])
	b.chunks = b.chunks[:kept]
}
