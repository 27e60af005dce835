// Package disk is a [store.Store] of plain files with a quota: each object is a
// file that the kernel can send. store/README.md describes the folder and what
// a crash can do to it.
package disk

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"

	"millrace/internal/bytesize"
	"millrace/store"
)

// The bounds of a Store.
const (
	// MinLimit is the least Limit: it leaves room for the index and a few objects.
	MinLimit bytesize.Size = 1 << 20
	// DefaultLimit is the Limit of zero Options.
	DefaultLimit bytesize.Size = 10 << 30

	// maxKey and maxHead bound what a Get reads before it knows whether the
	// file is sound. The longest keys are URLs, the largest heads those of
	// responses, and both are far smaller.
	maxKey  = 32 << 10
	maxHead = 1 << 20
	// maxWriters bounds the memory of write buffers: 64 MiB.
	maxWriters = 1024
	// maxOpen bounds the descriptors of objects being read, however many the
	// system allows.
	maxOpen = 16384
)

// ErrInUse is what Open returns for a folder that another process, or this
// one, has open already.
var ErrInUse = errors.New("the folder is in use")

// Options of a Store.
type Options struct {
	// Dir is made when it is not there. One that holds files of someone else
	// is refused.
	Dir string
	// Limit is of the files in Dir, each rounded up to blocks of 4096 bytes,
	// with the index and what is being written. It holds at any moment.
	// Folders come on top: at most 4113, 16 MiB. Default DefaultLimit, at least
	// MinLimit.
	// An object gets half of it at most.
	Limit bytesize.Size
	// Smallest and Largest bound the size of bodies taken; 0: any.
	Smallest, Largest bytesize.Size
	// Second takes an object at its second Create within a while only: what is
	// asked for once is not worth a write. The first returns store.ErrNotYet. Taken
	// at once is what replaces a stored object, and what is announced with at
	// least SecondBelow bytes; 0: nothing is for its size.
	Second      bool
	SecondBelow bytesize.Size
}

// Store keeps each object in a file of its own, which the kernel can send.
//
// What is committed survives the end of the process, however it ends. What
// the machine had not written out when it lost power is noticed, and missing.
// README.md tells how, and what the folder looks like.
type Store struct {
	options Options
	limit   int64 // blocks
	root    *os.Root
	files   files
	lock    *os.File
	epoch   uint64 // of objects written now; see state
	most    int64  // objects open for reading
	first   *Admission

	reading atomic.Int64 // objects open for reading
	serial  atomic.Uint64
	closed  atomic.Bool
	stop    context.CancelFunc // of load
	loaded  chan struct{}      // closed when the index is complete, or Close came first

	// changes is held while the files of objects come and go, so that table
	// and index tell what is there. It is taken before mu, never for long.
	changes sync.Mutex
	index   *index

	// mu guards what is below. The table is only changed with changes held,
	// too, but for its flags.
	mu      sync.Mutex
	table   table
	used    int64 // blocks, of objects and reserved by Writers
	writers int64
	evicted uint64
	loading bool
}

// Open opens or makes a store of plain files. A folder that is in use is
// ErrInUse. With a large index it returns before that is read: objects are
// found meanwhile, but none are taken.
func Open(o Options) (*Store, error) {
	o.Limit = cmp.Or(o.Limit, DefaultLimit)
	if o.Limit < MinLimit {
		return nil, fmt.Errorf("a store on disk needs at least %s, not %s", MinLimit, o.Limit)
	}
	d, err := openFolder(o)
	if err != nil {
		return nil, fmt.Errorf("opening the store in %s: %w", o.Dir, err)
	}
	return d, nil
}

// id names an object: the first half of the SHA-256 of its key. It names the
// file too, so it must be the same in every process, which rules out
// hash/maphash, and nobody should be able to make two keys with one id. If it
// happens nevertheless, the two push each other out: the key is compared.
type id [16]byte

func idOf(key string) id {
	sum := sha256.Sum256([]byte(key))
	return id(sum[:16])
}

// path of the object's file. Two levels with 16 and 256 folders hold millions
// of files with a few hundred in each folder, which take up one or two blocks
// themselves; 65,536 folders would cost 256 MiB.
func (i id) path() string {
	var b [5 + 2*len(i)]byte
	hex.Encode(b[5:], i[:])
	b[0], b[1], b[2], b[3], b[4] = b[5], '/', b[6], b[7], '/'
	return string(b[:])
}

// idOfName is what path ends with, read back.
func idOfName(name string) (i id, ok bool) {
	if len(name) != 2*len(i) {
		return i, false
	}
	n, err := hex.Decode(i[:], []byte(name))
	return i, err == nil && n == len(i) && hex.EncodeToString(i[:]) == name
}

func (d *Store) usable(ctx context.Context) error {
	if d.closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}

// Get implements store.Store. The object's File is of its own. When too many objects
// are open already it returns store.ErrDown.
func (d *Store) Get(ctx context.Context, key string) (*store.Object, error) {
	if err := d.usable(ctx); err != nil {
		return nil, err
	}
	if len(key) > maxKey {
		return nil, store.ErrNotFound
	}
	i := idOf(key)
	r, err := d.open(i)
	if err != nil {
		return nil, err
	}
	if r.key != key {
		_ = r.Close()
		return nil, store.ErrNotFound // another key with the same id
	}
	if r.epoch != d.epoch && !d.flagged(i, verified) {
		if err := r.verify(ctx); err != nil {
			_ = r.Close()
			return nil, err
		}
		d.flag(i, verified)
	}
	d.flag(i, used)
	return &r.Object, nil
}

// open opens the object's file and reads all but its body. What cannot be an
// object is removed.
func (d *Store) open(i id) (*reader, error) {
	if d.reading.Add(1) > d.most {
		d.reading.Add(-1)
		return nil, fmt.Errorf("%w: %d objects are open already", store.ErrDown, d.most)
	}
	r := &reader{disk: d, id: i}
	f, err := d.files.open(i.path())
	if err == nil {
		r.file = f
		err = r.readHead()
	}
	switch {
	case err == nil:
		return r, nil
	case errors.Is(err, fs.ErrNotExist):
		err = store.ErrNotFound
		d.forget(i, nil)
	case errors.Is(err, errDamaged):
		err = store.ErrNotFound
		d.forget(i, f)
	default:
		err = fmt.Errorf("%w: %w", store.ErrDown, err)
	}
	_ = r.Close()
	return nil, err
}

func (d *Store) flag(i id, f flags) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.table.flag(i, f)
}

func (d *Store) flagged(i id, f flags) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.table.flagged(i, f)
}

// forget makes the table know that an object is not there (f is nil), or
// removes its file if that is f still.
func (d *Store) forget(i id, f *os.File) {
	if f == nil {
		d.mu.Lock()
		known := d.table.blocks(i) > 0
		d.mu.Unlock()
		if !known {
			return
		}
	}
	d.changes.Lock()
	defer d.changes.Unlock()
	if d.closed.Load() {
		return
	}
	now, err := d.root.Lstat(i.path())
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil || f == nil:
		return // it was put there in the meantime, or nobody knows
	default:
		was, err := f.Stat()
		if err != nil || !os.SameFile(was, now) || d.files.remove(i.path()) != nil {
			return
		}
	}
	d.drop(i)
}

// drop takes an object whose file is gone out of the table and the index.
// d.changes is held.
func (d *Store) drop(i id) {
	d.mu.Lock()
	d.used -= d.table.remove(i)
	d.mu.Unlock()
	d.index.later(i, 0)
}

// Delete implements store.Store.
func (d *Store) Delete(ctx context.Context, key string) error {
	if err := d.usable(ctx); err != nil {
		return err
	}
	i := idOf(key)
	d.changes.Lock()
	defer d.changes.Unlock()
	if d.closed.Load() {
		return store.ErrClosed
	}
	if err := d.files.remove(i.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("deleting an object: %w", err)
	}
	d.drop(i)
	return nil
}

// Stats implements store.Store. Bytes are those of the objects' files, rounded up to
// blocks, those being written included; the index is not. While Loading, they
// and Objects are what is known so far.
func (d *Store) Stats() store.Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return store.Stats{
		Objects: int64(d.table.len()),
		Bytes:   d.used * blockSize,
		Limit:   int64(d.options.Limit),
		Evicted: d.evicted,
		Loading: d.loading,
	}
}

// Close implements store.Store. It waits for a commit under way, not for Writers:
// what they leave is removed at the next start.
func (d *Store) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	d.stop()
	<-d.loaded
	d.changes.Lock()
	defer d.changes.Unlock()
	if !d.Stats().Loading {
		// For the order of eviction after the next start. It does without.
		_ = d.compact()
	}
	d.index.close()
	err := errors.Join(d.files.close(), d.root.Close())
	if err2 := d.lock.Close(); err == nil {
		err = err2
	}
	if err != nil {
		return fmt.Errorf("closing the store in %s: %w", d.options.Dir, err)
	}
	return nil
}

// Walk tells fn of every object, those written or asked for last first, for a
// cache that starts warm. It waits until the index is read, and ends with the
// first error of fn. Objects that come or go meanwhile may be missing.
func (d *Store) Walk(ctx context.Context, fn func(key string, head []byte, size int64) error) error {
	select {
	case <-d.loaded:
	case <-ctx.Done():
		return ctx.Err()
	}
	d.mu.Lock()
	ids := d.table.ids()
	d.mu.Unlock()
	for n := len(ids) - 1; n >= 0; n-- {
		if err := d.usable(ctx); err != nil {
			return err
		}
		r, err := d.open(ids[n])
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		err = fn(r.key, r.Head, r.Size)
		_ = r.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
