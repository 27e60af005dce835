package fill

import (
	"errors"
	"fmt"
	"io"
)

// leaveMemory continues a body outside of memory. What is in memory is written to the
// overflow first; readers go on in memory meanwhile.
func (b *Body) leaveMemory() {
	s := b.openOverflow()
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
	b.overflow = s
	if !copied {
		b.becomeWindow()
		return
	}
	b.chunks, b.allocated, b.overflowed, b.start = nil, 0, b.size, b.size
}

func (b *Body) openOverflow() Overflow {
	if b.o.Overflow == nil {
		return nil
	}
	s, err := b.o.Overflow()
	if err != nil {
		return nil
	}
	return s
}

// putOverflow appends p to the overflow. If it takes no more, what it holds can
// still be read, and the rest of the body is a window behind it.
func (b *Body) putOverflow(p []byte) (int, error) {
	n, err := b.overflow.Write(p)
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
	b.overflowed, b.start = b.size, b.size
	wake(&b.more)
	return n, nil
}

// readOverflow reads what has overflowed.
func (b *Body) readOverflow(p []byte, offset int64) (int, error) {
	b.seatMu.RLock()
	defer b.seatMu.RUnlock()
	if b.seat == nil {
		return 0, fmt.Errorf("%w: what has overflowed is gone", ErrBroken)
	}
	n, err := b.seat.ReadAt(p, offset)
	switch {
	case n > 0:
		return n, nil // the next one meets the error again
	case err == nil:
		err = io.ErrNoProgress
	}
	return 0, fmt.Errorf("%w: reading what has overflowed: %w", ErrBroken, err)
}

// Reseat moves the readers of a closed body from the overflow to where it is stored: a
// store.Writer can be read only until its Commit. It waits for reads under way, holds
// back further ones, and calls to, which commits and returns a reader of the stored
// bytes. If that fails, readers that still need overflowed bytes get ErrBroken.
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
// has been closed, which may be at once: then the overflow, or where the body was
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
