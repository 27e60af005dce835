package disk

import (
	"errors"
	"fmt"
	"io/fs"

	"millrace/internal/bytesize"
	"millrace/store"
)

// noRoom wraps any error of writing as an ErrFull: no space, a quota, a limit of the
// process, a disk that fails. The cause stays in it.
func noRoom(doing string, err error) error {
	return fmt.Errorf("%w: %s: %w", store.ErrFull, doing, err)
}

// fits reports whether n more blocks are within the limit. d.mu is held.
func (d *Store) fits(n int64) bool {
	return d.used+n+d.index.cost(int64(d.table.len()), d.writers)+folderBlocks <= d.limit
}

// largest is the most blocks that one object gets: it must not push out
// everything else.
func (d *Store) largest() int64 { return min(d.limit/2, maxBlocks) }

// reserve takes n more blocks out of the quota for a writer that will have
// total, before they are written.
func (d *Store) reserve(n, total int64) error {
	if total > d.largest() {
		return fmt.Errorf("%w for an object of more than %s", store.ErrFull, bytesize.Size(d.largest()*blockSize))
	}
	d.mu.Lock()
	fits := d.fits(n)
	if fits {
		d.used += n
	}
	d.mu.Unlock()
	if fits {
		return nil
	}
	return d.makeRoom(n)
}

// makeRoom evicts until n more blocks fit, and takes them.
func (d *Store) makeRoom(n int64) error {
	d.changes.Lock()
	defer d.changes.Unlock()
	for {
		if d.closed.Load() {
			return store.ErrClosed
		}
		d.mu.Lock()
		if d.fits(n) {
			d.used += n
			d.mu.Unlock()
			return nil
		}
		victim, ok := d.table.victim()
		d.mu.Unlock()
		if !ok {
			return fmt.Errorf("%w: all of it is being written to", store.ErrBusy)
		}
		if err := d.files.remove(victim.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return noRoom("evicting an object", err)
		}
		d.drop(victim)
		d.mu.Lock()
		d.evicted++
		d.mu.Unlock()
	}
}

// enter counts one more writer.
func (d *Store) enter() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.loading:
		return fmt.Errorf("%w: the index is being read", store.ErrBusy)
	case d.writers >= maxWriters:
		return fmt.Errorf("%w: %d objects are being written already", store.ErrBusy, d.writers)
	}
	d.writers++
	return nil
}

// leave gives back what a writer had.
func (d *Store) leave(reserved int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used -= reserved
	d.writers--
}

// commit puts the temporary file, of size blocks, in the place of the object.
// The writer keeps its reservation if it fails, and has none left otherwise.
func (d *Store) commit(i id, temporary string, size, reserved int64) error {
	d.changes.Lock()
	defer d.changes.Unlock()
	if d.closed.Load() {
		return store.ErrClosed
	}
	if d.index.file == nil { // it could not be written at the start
		if err := d.compact(); err != nil {
			return noRoom("writing the index", err)
		}
	}
	d.mu.Lock()
	before := d.table.blocks(i)
	d.mu.Unlock()
	// If the process ends before the rename, the index must not tell of less
	// than what is there.
	if err := d.index.add(i, max(before, size)); err != nil {
		return noRoom("putting an object in place", err)
	}
	if err := d.files.rename(temporary, i.path()); err != nil {
		d.index.later(i, before)
		return noRoom("putting an object in place", err)
	}
	if before > size {
		d.index.later(i, size)
	}
	d.mu.Lock()
	d.table.put(i, size)
	d.used += size - before - reserved
	d.writers--
	objects := d.table.len()
	d.mu.Unlock()
	if d.index.bloated(objects) && d.compact() != nil {
		d.index.slack += indexSlack // try again, but not with every object
	}
	return nil
}
