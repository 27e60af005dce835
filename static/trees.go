package static

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
)

// maxFallback bounds Options.Fallback: what does not exist is looked for in all of
// them, at each request.
const maxFallback = 7

// Folders are the directories of the files, in the order in which they are asked.
func (o Options) Folders() []string {
	return append([]string{o.Root}, o.Fallback...)
}

// Scope names the folders by their absolute paths: the key under which a job stores
// what it made of their files.
func (o Options) Scope() (string, error) {
	scope := ""
	for i, dir := range o.Folders() {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return "", fmt.Errorf("find directory %q: %w", dir, err)
		}
		if i > 0 {
			scope += string(filepath.ListSeparator)
		}
		scope += abs
	}
	return scope, nil
}

// checkFallback is the part of Check about further folders.
func (o Options) checkFallback(faults map[string]error) {
	if len(o.Fallback) > maxFallback {
		faults["fallback"] = fmt.Errorf("%d folders are too many: at most %d can stand behind root", len(o.Fallback), maxFallback)
		return
	}
	seen := map[string]bool{filepath.Clean(o.Root): true}
	for _, dir := range o.Fallback {
		switch clean := filepath.Clean(dir); {
		case dir == "":
			faults["fallback"] = errors.New("a folder has no name: write one like ./shared")
		case seen[clean]:
			faults["fallback"] = fmt.Errorf("%q is asked already: name each folder once", dir)
		default:
			seen[clean] = true
		}
	}
}

// trees are where a handler's files are: what the first does not have is looked for
// in the next. There is at least one, and they are all of one kind.
type trees []*tree

// openTrees opens all directories, or says what to do about the first that cannot be.
func openTrees(dirs []string) (all trees, err error) {
	for _, dir := range dirs {
		t, err := openTree(dir)
		if err != nil {
			all.close()
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// fixed reports whether the files cannot change.
func (all trees) fixed() bool { return all[0].fixed() }

// stat looks at the first that has something of that name. What cannot be looked at
// ends the search: a later one's file is not meant to be seen then.
func (all trees) stat(name string) (t *tree, info fs.FileInfo, err error) {
	for _, t = range all {
		if info, err = t.stat(name); !errors.Is(err, errNotFound) {
			return t, info, err
		}
	}
	return nil, nil, err
}

// open opens the first regular file of that name.
func (all trees) open(name string) (f fs.File, info fs.FileInfo, err error) {
	for _, t := range all {
		if f, info, err = t.open(name); !errors.Is(err, errNotFound) {
			return f, info, err
		}
	}
	return nil, nil, err
}

// have reports whether one of them has a regular file of that name, which hides those
// of later ones.
func (all trees) have(name string) bool {
	return slices.ContainsFunc(all, func(t *tree) bool {
		info, err := t.stat(name)
		return err == nil && info.Mode().IsRegular()
	})
}

// walk calls fn for all that there is below a directory, as tree.walk does, but not
// for what an earlier one hides. What fn returns ends the walk through one tree.
func (all trees) walk(dir string, fn func(t *tree, name string, d fs.DirEntry) error) error {
	for i, t := range all {
		if info, err := t.stat(dir); err != nil || !info.IsDir() {
			continue
		}
		err := t.walk(dir, func(name string, d fs.DirEntry) error {
			if !d.IsDir() && all[:i].have(name) {
				return nil
			}
			return fn(t, name, d)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// refresh looks whether a directory's path leads elsewhere now, and goes there.
func (all trees) refresh() (changed bool) {
	for _, t := range all {
		changed = t.refresh() || changed
	}
	return changed
}

func (all trees) close() {
	for _, t := range all {
		t.close()
	}
}
