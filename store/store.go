// Package store is the contract for bytes at rest: objects with a small head,
// which is the caller's, and a body of any size, under a key.
//
// The engines are packages of their own: store/memory, store/disk, store/redis
// and store/s3. Each passes the suite in store/storetest. A store is a cache of
// what can be had again: what was put may be gone at any time.
package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// The errors of every engine, possibly wrapped.
var (
	ErrNotFound = errors.New("not in the store")
	// ErrFull: there is no room, or the store does not want the object. The
	// caller goes on without it.
	ErrFull = errors.New("the store has no room")
	// ErrDown: the engine cannot be reached now, or is closed.
	ErrDown = errors.New("the store cannot be reached")

	// ErrBusy is an ErrFull that says nothing of the object or of the room: others
	// are written, or the index is being read. A little later it may be taken.
	ErrBusy = fmt.Errorf("%w at this moment", ErrFull)
	// ErrNotYet is an ErrFull: the store takes an object only when it is
	// offered for the second time. See disk.Options.
	ErrNotYet = fmt.Errorf("%w for what was asked for only once", ErrFull)
	// ErrClosed is what a store returns after Close.
	ErrClosed = fmt.Errorf("%w: it is closed", ErrDown)

	// ErrEnded is what a Writer returns after Commit or Abort.
	ErrEnded = errors.New("the object is no longer being written")
	// ErrSize is what a Writer returns for a body that is not of the size that
	// Create was told.
	ErrSize = errors.New("the body is not of the announced size")
)

// Store keeps objects. All methods may be called at once by many goroutines.
// When ctx has ended already, they return its error.
type Store interface {
	// Get returns the object under a key, or ErrNotFound, ErrDown. It is whole:
	// no engine ever returns part of a body. The caller closes it.
	Get(ctx context.Context, key string) (*Object, error)
	// Create begins to write an object with a body of size bytes (-1: not
	// known yet), or returns ErrFull, ErrDown. Nothing is visible before Commit.
	Create(ctx context.Context, key string, size int64) (Writer, error)
	// Delete removes an object; deleting a missing object is not an error.
	Delete(ctx context.Context, key string) error
	// Stats may be called at any time, also after Close.
	Stats() Stats
	// Close ends the store: from now on the methods above return errors, and
	// Writers cannot commit, but must be ended nevertheless. Objects that
	// are open may stay readable. Closing twice is not an error.
	Close() error
}

// Object is a stored object, open for reading.
type Object struct {
	Head []byte
	Size int64 // of the body, in bytes
	// Body reads the body; it stays whole even if the object is replaced or
	// deleted meanwhile.
	Body io.ReaderAt
	// File and Offset tell where the body is when the kernel can send it;
	// File is nil otherwise. It is to be read at offsets, and not to be closed.
	File   *os.File
	Offset int64
	Closer io.Closer // nil: nothing to close
}

// Close closes the object.
func (o *Object) Close() error {
	if o.Closer == nil {
		return nil
	}
	return o.Closer.Close()
}

// Writer writes one object's body. Exactly one of Commit and Abort ends it;
// a Commit that fails ends it, too.
type Writer interface {
	io.Writer   // ErrFull when the room ran out; then only Abort is left to do
	io.ReaderAt // of what was written so far, by any goroutine, until Commit or Abort
	// Commit makes the object visible, in place of the one before, with this
	// head. It fails, and leaves nothing but the object before, when the body
	// is not of the size that Create was told.
	Commit(head []byte) error
	// Abort leaves nothing behind. After Commit it does nothing.
	Abort() error
}

// Expiring is a Writer of a store that forgets objects by itself.
type Expiring interface {
	// Expire says how long after Commit, which comes later.
	Expire(after time.Duration)
}

// Toucher is a Store that makes room by what has not been used for long.
type Toucher interface {
	// Touch counts as a use of what is stored under the keys.
	Touch(ctx context.Context, keys []string) error
}

// Bounded is a Store that takes bodies up to a size alone.
type Bounded interface {
	Largest() int64
}

// Stats is what a store holds.
type Stats struct {
	Objects, Bytes int64
	Limit          int64 // of bytes; 0: none
	Evicted        uint64
	Loading        bool // the index is still being read; objects are found nevertheless
	Down           bool
}
