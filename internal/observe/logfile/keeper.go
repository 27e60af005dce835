package logfile

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	zipped  = ".gz"
	partial = ".gz.part" // of a file that is being compressed

	// chunk is how much is compressed before it is looked at whether to stop.
	chunk = 256 << 10
)

// keeper compresses old files of a log and removes those that are too many or too
// old, one after the other.
type keeper struct {
	o    Options
	path string // of the log
	fail func(error)

	more chan struct{}
	stop context.CancelFunc
	done chan struct{}
}

// keep starts the keeper's goroutine, which close waits for. It begins with what was
// left undone.
func keep(path string, o Options, fail func(error)) *keeper {
	ctx, stop := context.WithCancel(context.Background())
	k := &keeper{o: o, path: path, fail: fail, more: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
	go k.run(ctx)
	k.wake()
	return k
}

func (k *keeper) wake() {
	select {
	case k.more <- struct{}{}:
	default:
	}
}

func (k *keeper) close() {
	k.stop()
	<-k.done
}

func (k *keeper) run(ctx context.Context) {
	defer close(k.done)
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.more:
		}
		if err := k.cleanUp(ctx); err != nil && ctx.Err() == nil {
			k.fail(err)
		}
	}
}

// old is a file that was rotated.
type old struct {
	name       string
	ended      time.Time
	compressed bool
}

// list is what there is, the youngest first.
func (k *keeper) list() (all []old, err error) {
	entries, err := os.ReadDir(filepath.Dir(k.path))
	if err != nil {
		return nil, err
	}
	base := filepath.Base(k.path)
	for _, e := range entries {
		if ended, compressed, ok := isOld(base, e.Name()); ok && e.Type().IsRegular() {
			all = append(all, old{e.Name(), ended, compressed})
		}
	}
	slices.SortStableFunc(all, func(a, b old) int {
		return cmp.Or(b.ended.Compare(a.ended), cmp.Compare(len(b.name), len(a.name)), cmp.Compare(b.name, a.name))
	})
	return all, nil
}

// cleanUp removes what is too old or too much, then compresses what is left.
func (k *keeper) cleanUp(ctx context.Context) error {
	all, err := k.list()
	if err != nil {
		return fmt.Errorf("looking for old log files: %w", err)
	}
	var errs []error
	dir := filepath.Dir(k.path)
	for i, f := range all {
		path := filepath.Join(dir, f.name)
		switch {
		case i >= k.o.Keep || k.o.KeepFor > 0 && time.Since(f.ended) > k.o.KeepFor:
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("removing an old log file: %w", err))
			}
		case !f.compressed && !k.o.Plain:
			if err := compress(ctx, path); err != nil {
				errs = append(errs, fmt.Errorf("compressing an old log file: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}

// compress replaces a file by a compressed one. While another process does so, it
// does nothing. The lock of the file itself is held for a moment only: a process that
// has not noticed yet that it was renamed must not wait for it.
func compress(ctx context.Context, path string) error {
	from, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another process was quicker
	}
	if err != nil {
		return err
	}
	defer from.Close()
	exclusive(from) // who writes to it has done so
	unlock(from)
	info, err := from.Stat()
	if err != nil {
		return err
	}
	to, err := claim(path + partial)
	if to == nil || err != nil {
		return err // nil: another process is at it
	}
	if !taken(path) { // or was
		return errors.Join(os.Remove(path+partial), to.Close())
	}
	err = errors.Join(to.Truncate(0), zip(ctx, to, from, info))
	if err == nil {
		_ = os.Chtimes(path+partial, info.ModTime(), info.ModTime()) // tools that look at ages
		err = os.Rename(path+partial, path+zipped)
	}
	if err == nil {
		if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) { // another process keeps fewer
			err = nil
		}
	} else {
		err = errors.Join(err, os.Remove(path+partial))
	}
	return errors.Join(err, to.Close()) // with its lock
}

// claim makes a file and locks it; nil: another process has.
func claim(path string) (*os.File, error) {
	for range attempts {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, mode)
		if err != nil {
			return nil, err
		}
		if !tryExclusive(f) {
			return nil, f.Close()
		}
		if stands(f, path) {
			return f, nil
		}
		_ = f.Close() // whoever had it has given it its last name meanwhile, or given up
	}
	return nil, nil
}

// stands reports whether a path still stands for an open file.
func stands(f *os.File, path string) bool {
	now, err := os.Stat(path)
	if err != nil {
		return false
	}
	mine, err := f.Stat()
	return err == nil && os.SameFile(now, mine)
}

func zip(ctx context.Context, to *os.File, from io.Reader, info fs.FileInfo) error {
	z := gzip.NewWriter(to)
	z.Name, z.ModTime = info.Name(), info.ModTime()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, err := io.CopyN(z, from, chunk)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(z.Close(), to.Sync())
}
