package packer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"millrace/static/packfile"
)

const (
	// maxName is the longest name below a folder, in bytes: what Linux opens, and
	// longer than any URL that servers take.
	maxName = 4096
	// maxUnreadable is how many files are named that cannot be read.
	maxUnreadable = 5
)

// walk is the search for a folder's files.
type walk struct {
	folder     Folder
	root       *os.Root
	out        []fs.FileInfo // what is being written, and what it replaces
	warn       func(text string)
	above      []fs.FileInfo // the folders on the way down, to see loops
	names      []string
	unreadable []string
}

// List are the names of the files that would be packed of a folder, sorted.
func List(f Folder) ([]string, error) { return (&Plan{}).list(f, nil) }

// list finds the files of a folder, sorted by name. Links are followed while
// they stay inside of it, as they are when it is served from disk.
func (p *Plan) list(folder Folder, out *os.File) ([]string, error) {
	root, err := os.OpenRoot(folder.Dir)
	if err != nil {
		return nil, fmt.Errorf("opening the folder %s: %w", folder.Dir, err)
	}
	defer func() { _ = root.Close() }() // read only
	w := &walk{folder: folder, root: root, warn: p.Warn}
	if w.warn == nil {
		w.warn = func(string) {}
	}
	if out != nil {
		for _, name := range []string{out.Name(), p.Out} {
			if info, err := os.Stat(name); err == nil {
				w.out = append(w.out, info)
			}
		}
	}
	info, err := root.Stat(".")
	if err != nil {
		return nil, fmt.Errorf("looking at the folder %s: %w", folder.Dir, err)
	}
	w.enter(".", info)
	if n := len(w.unreadable); n > 0 {
		text := strings.Join(w.unreadable[:min(n, maxUnreadable)], "; ")
		if n > maxUnreadable {
			text += fmt.Sprintf(" and %d more", n-maxUnreadable)
		}
		return nil, fmt.Errorf("cannot read all of %s: %s", folder.Dir, text)
	}
	slices.Sort(w.names)
	return w.names, nil
}

// enter lists a folder and those below it.
func (w *walk) enter(dir string, info fs.FileInfo) {
	if slices.ContainsFunc(w.above, func(a fs.FileInfo) bool { return os.SameFile(a, info) }) {
		w.warn(packfile.Shown(path.Join(w.folder.Dir, dir)) + " is a link to a folder above it: left out")
		return
	}
	w.above = append(w.above, info)
	defer func() { w.above = w.above[:len(w.above)-1] }()
	f, err := w.root.Open(filepath.FromSlash(dir))
	if err != nil {
		w.unreadable = append(w.unreadable, reason(dir, err))
		return
	}
	entries, err := f.ReadDir(-1)
	_ = f.Close() // read only
	if err != nil {
		w.unreadable = append(w.unreadable, reason(dir, err))
	}
	for _, e := range entries {
		w.entry(path.Join(dir, e.Name()))
	}
}

// entry looks at one name.
func (w *walk) entry(name string) {
	if !fs.ValidPath(name) || strings.ContainsAny(name, "\\\x00") || len(name) > maxName {
		w.warn(fmt.Sprintf("%q is a name that no request can have: left out", path.Join(w.folder.Dir, name)))
		return
	}
	info, err := w.root.Stat(filepath.FromSlash(name))
	if err != nil {
		if link, linkErr := w.root.Lstat(filepath.FromSlash(name)); linkErr == nil && link.Mode()&fs.ModeSymlink != 0 {
			w.warn(packfile.Shown(path.Join(w.folder.Dir, name)) + " is a link that leads nowhere inside the folder: left out")
			return
		}
		w.unreadable = append(w.unreadable, reason(name, err))
		return
	}
	switch {
	case info.IsDir():
		if w.folder.Enters == nil || w.folder.Enters(name) {
			w.enter(name, info)
		}
	case w.folder.Takes != nil && !w.folder.Takes(name):
	case !info.Mode().IsRegular(): // as from disk, pipes and devices do not exist
		w.warn(packfile.Shown(path.Join(w.folder.Dir, name)) + " is no file: left out")
	case slices.ContainsFunc(w.out, func(own fs.FileInfo) bool { return os.SameFile(own, info) }):
	default:
		w.file(name)
	}
}

// file takes a file that can be read.
func (w *walk) file(name string) {
	f, _, err := open(w.root, name)
	if err != nil {
		w.unreadable = append(w.unreadable, reason(name, err))
		return
	}
	_ = f.Close() // read when its turn comes
	w.names = append(w.names, name)
}

// reason is an error without the system call.
func reason(name string, err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return packfile.Shown(name) + ": " + err.Error()
}
