package static

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"millrace/internal/packfile"
)

// What looking for a file can end in, beside the file.
var (
	errNotFound      = errors.New("no such file")
	errForbidden     = errors.New("no permission to read it")
	errDirectory     = errors.New("is a directory")
	errNotAcceptable = errors.New("is too large to be decompressed")
	errUnavailable   = errors.New("cannot be read now")
	errChanged       = errors.New("changed while it was read")
)

// tree is a folder of files: a directory on disk, an fs.FS, or one in a packed file.
type tree struct {
	fsys   fs.FS            // of New and OpenPacked
	packed *packfile.Folder // of OpenPacked

	name string // of Open, as it was given
	dir  string // that, absolute
	root atomic.Pointer[os.Root]

	mu     sync.Mutex // serialises refresh and close
	closed bool
}

// openTree opens a directory, or says what to do about it.
func openTree(dir string) (*tree, error) {
	if dir == "" {
		return nil, errors.New("static: no root: name the directory that holds the site, like root: ./public")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("static: find directory %q: %w", dir, err)
	}
	info, err := os.Stat(abs)
	if err == nil && !info.IsDir() {
		return nil, fmt.Errorf("static: %q is not a directory: name the directory that holds it, %q", dir, filepath.Dir(dir))
	}
	var root *os.Root
	if err == nil {
		root, err = os.OpenRoot(abs)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("static: there is no directory %q: create it (mkdir -p %q) or name another: %w", dir, dir, err)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("static: no permission to read directory %q: allow it (chmod a+rx %q) or run as its owner: %w", dir, dir, err)
	case err != nil:
		return nil, fmt.Errorf("static: open directory %q: %w", dir, err)
	}
	t := &tree{name: dir, dir: abs}
	t.root.Store(root)
	return t, nil
}

// fixed reports whether the files cannot change.
func (t *tree) fixed() bool {
	_, embedded := t.fsys.(embed.FS)
	return embedded || t.packed != nil
}

// stat follows symbolic links, on disk only inside the root.
func (t *tree) stat(name string) (fs.FileInfo, error) {
	var info fs.FileInfo
	var err error
	if root := t.root.Load(); root != nil {
		info, err = root.Stat(name)
	} else {
		info, err = fs.Stat(t.fsys, name)
	}
	if err != nil {
		return nil, classify(err)
	}
	return info, nil
}

// open opens a regular file and nothing else. A named pipe that took the
// file's place since it was looked at must not make anybody wait.
func (t *tree) open(name string) (fs.File, fs.FileInfo, error) {
	var f fs.File
	var err error
	if root := t.root.Load(); root != nil {
		f, err = root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	} else {
		f, err = t.fsys.Open(name)
	}
	if err != nil {
		return nil, nil, classify(err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errNotFound
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, nil, classify(err)
	}
	return f, info, nil
}

// walk calls fn for everything there is below a directory; symbolic links to folders
// are not followed. What cannot be read is left out.
func (t *tree) walk(dir string, fn func(name string, d fs.DirEntry) error) error {
	fsys := t.fsys
	if root := t.root.Load(); root != nil {
		fsys = root.FS()
	}
	return fs.WalkDir(fsys, dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			if d != nil && d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return fn(name, d)
	})
}

// stampOf is the state of one of its directories: noStamp where there is none, zero
// where that cannot be told.
func (t *tree) stampOf(dir string) stamp {
	info, err := t.stat(dir)
	switch {
	case err == nil:
		return stampOf(info)
	case errors.Is(err, errNotFound):
		return noStamp
	}
	return stamp{}
}

// path is that of a file or directory on disk.
func (t *tree) path(name string) string { return filepath.Join(t.dir, filepath.FromSlash(name)) }

// refresh looks whether the directory's path leads to another directory now,
// as after a deployment that switches a link, and if so goes there.
func (t *tree) refresh() (changed bool) {
	if t.dir == "" {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.root.Load()
	if t.closed {
		return false
	}
	now, err := os.Stat(t.dir)
	if err != nil {
		return false // gone, perhaps for a moment; the old one's files are gone too, or still good
	}
	if was, err := old.Stat("."); err == nil && os.SameFile(was, now) {
		return false
	}
	root, err := os.OpenRoot(t.dir)
	if err != nil {
		return false
	}
	t.root.Store(root)
	_ = old.Close() // read only
	return true
}

func (t *tree) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if root := t.root.Load(); root != nil {
		_ = root.Close() // read only
	}
}

// classify sorts what an operating or file system says into what it means to
// a client. A path that os.Root refuses to leave has no error of its own to
// test for; it is whatever remains.
func classify(err error) error {
	var errno syscall.Errno
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errNotFound), errors.Is(err, fs.ErrInvalid):
		return errNotFound
	case errors.Is(err, fs.ErrPermission):
		return errForbidden
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP),
		errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.ENXIO):
		return errNotFound
	case errors.Is(err, fs.ErrClosed), errors.As(err, &errno):
		return fmt.Errorf("%w: %w", errUnavailable, err)
	}
	return errNotFound
}

// stamp tells one state of a file from another, as far as can be told without
// reading it. It is comparable.
type stamp struct {
	size         int64
	mtime, ctime int64 // nanoseconds of Unix time; 0 where unknown
	device, file uint64
	regular      bool
}

// noStamp is that of what does not exist.
var noStamp = stamp{size: -1}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), regular: info.Mode().IsRegular()}
	if t := info.ModTime(); !t.IsZero() {
		s.mtime = t.UnixNano()
	}
	s.identify(info)
	return s
}

const (
	// clockTick is longer than the tick by which kernels date changes: a file
	// that changed twice within one looks as if it had changed once.
	clockTick = 50 * time.Millisecond
	// coarseTick is the same for file systems that count whole seconds, FAT's
	// two being the longest.
	coarseTick = 2 * time.Second
)

// racy reports whether the file changed so recently that another change might
// leave the same stamp.
func (s stamp) racy(now time.Time) bool {
	changed := s.ctime
	if changed == 0 {
		changed = s.mtime
	}
	if changed == 0 {
		return false
	}
	tick := clockTick
	if changed%int64(time.Second) == 0 {
		tick = coarseTick
	}
	age := now.Sub(time.Unix(0, changed))
	return -tick < age && age < tick
}
