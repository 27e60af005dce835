package static

import (
	"errors"
	"io/fs"
	"os"
	"path"
)

// folder is a directory of a tree, open for the few looks that one request takes: each
// of them is one system call then, however deep the directory lies.
type folder struct {
	tree    *tree
	dir     string
	root    *os.Root // nil: each look takes the whole path
	missing bool     // there is no such directory
}

// enter opens a directory. The caller must leave it.
func (t *tree) enter(dir string) *folder {
	in := &folder{tree: t, dir: dir}
	if t.dir == "" || dir == "." {
		return in
	}
	err := t.within(func(root *os.Root) (err error) {
		in.root, err = root.OpenRoot(dir)
		return err //nolint:wrapcheck // it is only asked what it is
	})
	in.missing = errors.Is(err, fs.ErrNotExist)
	return in
}

func (in *folder) leave() {
	if in.root != nil {
		_ = in.root.Close() // read only
	}
}

// stamp is that of the directory, as of tree.stampOf.
func (in *folder) stamp() stamp {
	switch {
	case in.missing:
		return noStamp
	case in.root != nil:
		if info, err := in.root.Stat("."); err == nil {
			return stampOf(info)
		}
	}
	return in.tree.stampOf(in.dir)
}

// stat looks at what has a name in the tree, as tree.stat does. A link that leads out of
// the directory may lead to another one of the tree: the tree follows it.
func (in *folder) stat(name string) (fs.FileInfo, error) {
	if dirOf(name) != in.dir {
		return in.tree.stat(name)
	}
	if in.missing {
		return nil, errNotFound
	}
	if in.root != nil {
		info, err := in.root.Stat(path.Base(name))
		if err == nil {
			return info, nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil, errNotFound
		}
	}
	return in.tree.stat(name)
}
