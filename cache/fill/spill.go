package fill

import (
	"errors"
	"fmt"
	"io"
)

// leaveMemory continues a body outside of memory. What is in memory is written to the
// spill first; readers go on in memory meanwhile.
func (b *Body) leaveMemory() {
	s := b.openSpill()
	copied := s != nil
	for i := 0; copied && i < len(b.chunks); i++ {
		_, err := s.Write(b.chunks[i].b)
		copied = err == nil
	}
	if copied {
		b.seatMu.Lock()
		b.seat = s
		b.seatMu.Unlock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spill = s
	if !copied {
		b.becomeWindow()
		return
	}
	b.chunks, b.allocated, b.spilt, b.start = nil, 0, b.size, b.size
}

func (b *Body) openSpill() Spill {
	if b.o.Spill == nil {
		return nil
	}
	s, err := b.o.Spill()
	if err != nil {
		return nil
	}
	return s
}

// putSpill appends p to the spill. If it takes no more, what it holds can
// still be read, and the rest of the body is a window behind it.
func (b *Body) putSpill(p []byte) (int, error) {
	n, err := b.spill.Write(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.ended:
		return 0, b.closed()
	case err != nil || n != len(p):
		b.becomeWindow()
		return 0, nil
	}
	b.size += int64(n)
	b.spilt, b.start = b.size, b.size
	wake(&b.more)
	return n, nil
}

// readSpilt reads what was spilt.
func (b *Body) readSpilt(p []byte, offset int64) (int, error) {
	b.seatMu.RLock()
	defer b.seatMu.RUnlock()
	if b.seat == nil {
		return 0, fmt.Errorf("%w: what was spilt is gone", ErrBroken)
	}
	n, err := b.seat.ReadAt(p, offset)
	switch {
	case n > 0:
		return n, nil // the next one meets the error again
	case err == nil:
		err = io.ErrNoProgress
	}
	return 0, fmt.Errorf("%w: reading what was spilt: %w", ErrBroken, err)
}

// Reseat moves the readers of a closed body from the spill to where it is stored: a
// store.Writer can be read only until its Commit. It waits for reads under way, holds
// back further ones, and calls to, which commits and returns a reader of the stored
// bytes. If that fails, readers that still need spilled bytes get ErrBroken.
func (b *Body) Reseat(to func() (io.ReaderAt, error)) error {
	b.seatMu.Lock()
	defer b.seatMu.Unlock()
	b.seat = nil
	seat, err := to()
	if err != nil {
		return err
	}
	if seat == nil {
		return errors.New("a body's new seat is nil")
	}
	b.seat = seat
	return nil
}

// Retire makes Reader return nil from now on, and calls f once the last reader
// has been closed, which may be at once: then the spill, or where the body was
// reseated to, can be closed. f runs in the goroutine of that reader. Call it
// at most once.
func (b *Body) Retire(f func()) {
	b.mu.Lock()
	b.retired = true
	now := b.open == 0
	if !now {
		b.release = f
	}
	b.mu.Unlock()
	if now {
		f()
	}
}
