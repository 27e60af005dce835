package static

import (
	"cmp"
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

	"millrace/static/packfile"
)

// The errors of a search for a file.
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
	dir  string // that, absolute; empty for the others

	// background closes the directory again; nil: only close does.
	background *Background
	root       atomic.Pointer[os.Root] // nil while the directory is not open
	used       atomic.Bool             // since background looked for one to close

	mu     sync.Mutex  // serialises what opens and closes
	was    os.FileInfo // the directory that was opened last
	moved  bool        // that is another one than before, of which refresh does not know
	closed bool
}

// openTree checks that a directory can be opened, or says what to do about it.
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
	_ = root.Close() // read only; directory opens it when it is needed
	return &tree{name: dir, dir: abs}, nil
}

// directory returns the open directory, and opens it if need be.
func (t *tree) directory() (*os.Root, error) {
	if root := t.root.Load(); root != nil {
		if !t.used.Load() {
			t.used.Store(true)
		}
		return root, nil
	}
	t.mu.Lock()
	root := t.root.Load()
	if t.closed || root != nil {
		t.mu.Unlock()
		if root == nil {
			return nil, fs.ErrClosed
		}
		return root, nil
	}
	root, err := t.openRoot()
	t.mu.Unlock()
	if err != nil {
		return nil, err //nolint:wrapcheck // classify sorts it
	}
	t.used.Store(true)
	if t.background != nil {
		t.background.opened(t)
	}
	return root, nil
}

// openRoot opens the directory, with mu held.
func (t *tree) openRoot() (*os.Root, error) {
	root, err := os.OpenRoot(t.dir)
	if err != nil {
		return nil, err //nolint:wrapcheck // classify sorts it
	}
	is, err := root.Stat(".")
	if err != nil {
		_ = root.Close() // read only
		return nil, err  //nolint:wrapcheck // the same
	}
	t.moved = t.moved || t.was != nil && !os.SameFile(t.was, is)
	t.was = is
	t.root.Store(root)
	return root, nil
}

// within calls f with the open directory, and again if that was closed meanwhile.
func (t *tree) within(f func(root *os.Root) error) (err error) {
	for range maxAttempts {
		var root *os.Root
		if root, err = t.directory(); err != nil {
			break
		}
		if err = f(root); !errors.Is(err, fs.ErrClosed) {
			break
		}
	}
	return err
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
	if t.dir != "" {
		err = t.within(func(root *os.Root) (err error) {
			info, err = root.Stat(name)
			return err
		})
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
	f, err := t.openFile(name, os.O_RDONLY|syscall.O_NONBLOCK)
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

// openFile opens whatever has that name.
func (t *tree) openFile(name string, flags int) (f fs.File, err error) {
	if t.dir == "" {
		return t.fsys.Open(name) //nolint:wrapcheck // classify sorts it
	}
	err = t.within(func(root *os.Root) error {
		file, err := root.OpenFile(name, flags, 0)
		if err == nil { // a nil *os.File would not be a nil fs.File
			f = file
		}
		return err //nolint:wrapcheck // the same
	})
	return f, err
}

// walk calls fn for everything there is below a directory; symbolic links to folders
// are not followed. What cannot be read is left out.
func (t *tree) walk(dir string, fn func(name string, d fs.DirEntry) error) error {
	fsys := t.fsys
	if t.dir != "" {
		root, err := os.OpenRoot(t.dir) // its own, which nobody closes meanwhile
		if err != nil {
			return nil //nolint:nilerr // what cannot be read is left out
		}
		defer func() { _ = root.Close() }() // read only
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

// refresh looks whether the directory's path leads to another directory than the one
// that was opened last, as after a deployment that switches a link, and if so closes
// that one.
func (t *tree) refresh() (changed bool) {
	if t.dir == "" {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.was == nil {
		return false
	}
	if t.moved {
		t.moved = false
		return true
	}
	now, err := os.Stat(t.dir)
	if err != nil {
		return false // gone, perhaps for a moment; the old one's files are gone too, or still good
	}
	if os.SameFile(t.was, now) {
		return false
	}
	root, err := os.OpenRoot(t.dir)
	if err != nil {
		return false // out of reach, as in a sandbox: the old one goes on
	}
	_ = root.Close() // read only; directory opens it when it is needed
	t.was = nil
	t.closeRoot()
	return true
}

// shut closes the directory until it is used again.
func (t *tree) shut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closeRoot()
}

// close closes the directory for good.
func (t *tree) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.closeRoot()
}

func (t *tree) closeRoot() {
	if root := t.root.Swap(nil); root != nil {
		_ = root.Close() // read only; what uses it at this moment goes on
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
	changed := cmp.Or(s.ctime, s.mtime)
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
