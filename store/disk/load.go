package disk

import (
	"context"
	"errors"
	"io"
	"os"
)

const (
	// loadAtOnce is an index small enough to be read before Open returns,
	// in a few milliseconds: 40,000 objects.
	loadAtOnce = 1 << 20
	// walkBatch is how many names of a folder are read at a time.
	walkBatch = 1024
	hexDigits = "0123456789abcdef"
)

// start loads the index, at once if that is quick; otherwise in a goroutine,
// for which Close waits.
func (d *Store) start(ctx context.Context, walk bool) {
	f, err := d.root.Open(indexName)
	quick := false
	if err == nil {
		info, err := f.Stat()
		quick = err == nil && info.Size() <= loadAtOnce && !walk
	}
	if errors.Is(err, os.ErrNotExist) {
		if d.empty() {
			quick = true
		} else {
			walk = true
		}
	}
	if quick {
		// What is damaged needs a walk after all, which is not quick.
		if damaged := d.load(ctx, f); !damaged {
			d.finish(walk)
			close(d.loaded)
			return
		}
		f, walk = nil, true
	}
	go func() {
		defer close(d.loaded)
		damaged := d.load(ctx, f) || f == nil
		if (damaged || walk) && d.walk(ctx) != nil {
			return
		}
		if ctx.Err() == nil {
			d.finish(walk)
		}
	}()
}

// empty reports whether there are no folders of objects, as at the first start.
func (d *Store) empty() bool {
	for _, a := range hexDigits {
		if _, err := d.root.Lstat(string(a)); !errors.Is(err, os.ErrNotExist) {
			return false
		}
	}
	return true
}

// load reads the index of before, in the order of eviction.
func (d *Store) load(ctx context.Context, f *os.File) (damaged bool) {
	if f == nil {
		return false
	}
	defer f.Close()
	return d.loadFrom(ctx, f) != nil
}

func (d *Store) loadFrom(ctx context.Context, r io.Reader) error {
	return readIndex(r, func(records []byte) error {
		d.changes.Lock()
		defer d.changes.Unlock()
		d.mu.Lock()
		defer d.mu.Unlock()
		for ; len(records) > 0; records = records[recordSize:] {
			switch i, blocks, _ := parseRecord(records[:recordSize]); blocks {
			case 0:
				d.used -= d.table.remove(i)
			default:
				d.used += blocks - d.table.put(i, blocks)
			}
		}
		return ctx.Err()
	})
}

// walk finds the objects by their files. It leaves everything else alone. What
// only the index tells of is taken out of the table.
func (d *Store) walk(ctx context.Context) error {
	for _, a := range hexDigits {
		for _, b := range hexDigits {
			for _, c := range hexDigits {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := d.walkFolder(ctx, string(a)+"/"+string(b)+string(c)); err != nil {
					return err
				}
			}
		}
	}
	d.mu.Lock()
	ids := d.table.ids()
	d.mu.Unlock()
	for _, i := range ids {
		d.changes.Lock()
		d.mu.Lock()
		if !d.table.flagged(i, seen) {
			d.used -= d.table.remove(i)
		}
		d.mu.Unlock()
		d.changes.Unlock()
	}
	return ctx.Err()
}

// walkFolder tells the table of the objects in one folder. A folder that is
// not there, or cannot be read, has none; only ctx's error is returned.
func (d *Store) walkFolder(ctx context.Context, name string) error {
	folder, err := d.root.OpenRoot(name) // names below it cost one system call each
	if err != nil {
		return nil
	}
	defer func() { _ = folder.Close() }()
	list, err := folder.Open(".")
	if err != nil {
		return nil
	}
	defer list.Close()
	for {
		names, err := list.Readdirnames(walkBatch)
		for _, n := range names {
			i, ok := idOfName(n)
			if !ok || i.path() != name+"/"+n {
				continue
			}
			info, err := folder.Lstat(n)
			if err != nil || !info.Mode().IsRegular() {
				continue
			}
			d.found(i, max(1, blocks(info.Size())))
		}
		if err != nil || len(names) == 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// found puts an object into the table that a walk has met. If it was deleted a
// moment ago, the table is wrong about it until it is evicted.
func (d *Store) found(i id, size int64) {
	d.changes.Lock()
	defer d.changes.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.table.blocks(i) != size {
		d.used += size - d.table.put(i, size)
	}
	d.table.flag(i, seen)
}

// finish begins to take objects: the table is complete. What cannot be written
// now is written with the next object, or found out anew by the next start.
func (d *Store) finish(newState bool) {
	d.changes.Lock()
	err := d.compact()
	d.changes.Unlock()
	if err == nil && newState {
		_ = d.writeState(bootID())
	}
	// The limit may be lower than it was.
	_ = d.makeRoom(0)
	d.mu.Lock()
	d.loading = false
	d.mu.Unlock()
}
