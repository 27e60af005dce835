package static

import (
	"errors"
	"io/fs"
	"strings"
	"time"

	"millrace/internal/wire/negotiate"
)

// found says which files answer for a name. It is comparable.
type found struct {
	tree    *tree
	file    string
	sources [negotiate.Codings]stamp // the zero stamp where there is none
}

func (f *found) source(c negotiate.Coding) string { return f.file + siblings[c] }

// dirOf is the directory in which the file for a name is.
func dirOf(name string) string {
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return name[:i]
	}
	return "."
}

// probe finds out which files answer for a name, only by looking at them: those of the
// first tree that has an answer. dirs are the stamps of their directory in that tree
// and in those before it. They are taken before the look, so that a file which appears
// later changes them.
func (h *Handler) probe(name string) (f found, dirs []stamp, err error) {
	last := len(h.trees) - 1
	for _, t := range h.trees[:last] {
		dir := t.stampOf(dirOf(name))
		if f, _, err = h.probeIn(t, name); !errors.Is(err, errNotFound) {
			return f, append(dirs, dir), err
		}
		dirs = append(dirs, dir)
	}
	f, dir, err := h.probeIn(h.trees[last], name)
	if err != nil {
		return found{}, nil, err
	}
	return f, append(dirs, dir), nil
}

// probeIn is probe in one tree. The directory's stamp is taken before the looks that count.
// One look comes before it: what is not there, as most of what scanners ask for, needs no
// stamp.
func (h *Handler) probeIn(t *tree, name string) (f found, dir stamp, err error) {
	f.tree = t
	in := t.enter(dirOf(name))
	defer in.leave()
	var info fs.FileInfo
	if f.file, _, err = h.choose(in, name); err == nil {
		dir = in.stamp()
		f.file, info, err = h.choose(in, name)
	}
	if errors.Is(err, errNotFound) && h.expand != nil && h.options.Decompress && f.file != "" {
		return h.probeCompressed(t, name)
	}
	if err != nil {
		return found{}, stamp{}, err
	}
	f.sources[negotiate.Identity] = stampOf(info)
	switch {
	case t.packed != nil:
		packedSources(&f)
	case !h.options.NoPrecompressed:
		for c := negotiate.Gzip; c < negotiate.Codings; c++ {
			// A sibling that is older belongs to an earlier content. A second
			// is allowed: archives and checkouts write files in any order.
			sibling, err := in.stat(f.source(c))
			if err == nil && sibling.Mode().IsRegular() && sibling.Size() > 0 &&
				!sibling.ModTime().Before(info.ModTime().Add(-time.Second)) {
				f.sources[c] = stampOf(sibling)
			}
		}
	}
	return f, dir, nil
}

// choose looks for the regular file that answers for a name.
func (h *Handler) choose(in *folder, name string) (file string, info fs.FileInfo, err error) {
	if name == "" || strings.HasSuffix(name, "/") {
		file, info, err = h.findIndex(in, name)
	} else {
		file = name
		listed := false
		if info, err = in.stat(name); err == nil && info.IsDir() {
			if _, _, err = h.findIndex(in, name+"/"); err == nil {
				err = errDirectory
			}
			listed = h.options.Listing
		}
		if h.options.CleanURLs && errors.Is(err, errNotFound) {
			file, info, err = h.findPage(in, name, err)
		}
		if listed && errors.Is(err, errNotFound) {
			err = errDirectory
		}
	}
	if err == nil && !info.Mode().IsRegular() {
		err = errNotFound
	}
	return file, info, err
}

// findIndex looks for the file that answers for a directory; name is empty or
// ends in a slash.
func (h *Handler) findIndex(in *folder, name string) (string, fs.FileInfo, error) {
	for _, index := range h.options.Index {
		info, err := in.stat(name + index)
		if err == nil && info.Mode().IsRegular() {
			return name + index, info, nil
		}
		if err != nil && !errors.Is(err, errNotFound) {
			return "", nil, err
		}
	}
	return "", nil, errNotFound
}
