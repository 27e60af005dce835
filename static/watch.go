package static

import (
	"errors"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fsnotify/fsnotify"

	"millrace/internal/route/rulefile"
	"millrace/internal/wire/negotiate"
)

// maxWatches bounds what one handler takes of the user's inotify watches, of
// which some systems allow 8192 in all. Directories beyond it are left to the
// sweep.
const maxWatches = 1024

// watcher has the directories watched from which files are held, and those
// above them, in all trees: a directory that is renamed says so to its parent only,
// and a file that appears in an earlier tree hides that of a later one.
type watcher struct {
	roots []string
	fs    *fsnotify.Watcher

	mu   sync.Mutex
	dirs map[watchedDir]bool
}

// watchedDir is a directory of one root, "." being the root.
type watchedDir struct{ root, dir string }

// newWatcher returns nil where the system gives none: the sweep remains.
func newWatcher(all trees) *watcher {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil
	}
	var roots []string
	for _, t := range all {
		roots = append(roots, t.dir)
	}
	return &watcher{roots: roots, fs: w, dirs: map[watchedDir]bool{}}
}

// startWatching gives the handler a watcher, unless too many others have one.
func (h *Handler) startWatching() {
	if h.background.watched.Add(1) <= maxWatched {
		h.watch = newWatcher(h.trees)
	}
	if h.watch == nil {
		h.background.watched.Add(-1)
		return
	}
	if h.rules.on {
		h.watch.add(".")
	}
	go h.during(h.watchLoop)
}

// add watches a directory and those above it, from the top down, so that no
// change to the path in between is missed.
func (w *watcher) add(dir string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, root := range w.roots {
		if w.dirs[watchedDir{root, dir}] {
			continue
		}
		w.addOne(watchedDir{root, "."})
		for i, c := range []byte(dir) {
			if c == '/' {
				w.addOne(watchedDir{root, dir[:i]})
			}
		}
		w.addOne(watchedDir{root, dir})
	}
}

// has reports whether a directory is watched, in all trees.
func (w *watcher) has(dir string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, root := range w.roots {
		if !w.dirs[watchedDir{root, dir}] {
			return false
		}
	}
	return true
}

func (w *watcher) addOne(d watchedDir) {
	if w.dirs[d] || len(w.dirs) >= maxWatches {
		return
	}
	// An error is a limit that is reached or a directory that is gone: either
	// way the sweep sees to it.
	if w.fs.Add(d.path()) == nil {
		w.dirs[d] = true
	}
}

func (d watchedDir) path() string { return filepath.Join(d.root, filepath.FromSlash(d.dir)) }

// forget ends the watches on a directory that is no longer where it was, and
// on those below it. They are taken up again when files are read there.
func (w *watcher) forget(gone watchedDir) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for d := range w.dirs {
		if d.root == gone.root && within(d.dir, gone.dir) {
			w.removeOne(d)
		}
	}
}

// forgetAll ends all watches.
func (w *watcher) forgetAll() {
	for _, root := range w.roots {
		w.forget(watchedDir{root, "."})
	}
}

// keep ends the watches that no directory in use needs.
func (w *watcher) keep(used map[string]bool) {
	needed := map[string]bool{}
	for dir := range used {
		for ; !needed[dir]; dir = path.Dir(dir) {
			needed[dir] = true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for d := range w.dirs {
		if !needed[d.dir] {
			w.removeOne(d)
		}
	}
}

func (w *watcher) removeOne(d watchedDir) {
	// An error means that it is gone already.
	_ = w.fs.Remove(d.path())
	delete(w.dirs, d)
}

func (w *watcher) close() { _ = w.fs.Close() } // nothing to be lost

// watchLoop invalidates what the system says has changed. That takes one atomic step,
// so events are not collected first; the kernel merges repeated ones.
func (h *Handler) watchLoop() {
	for {
		select {
		case event, ok := <-h.watch.fs.Events:
			if !ok {
				return
			}
			h.changed(event)
			h.background.clients.Poke() // what is void takes memory and files
		case err, ok := <-h.watch.fs.Errors:
			if !ok {
				return
			}
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				h.watch.forgetAll()
			}
			h.table.voidAll() // something was missed
		}
	}
}

// changed invalidates what an event is about. One root may lie in another.
func (h *Handler) changed(event fsnotify.Event) {
	for _, root := range h.watch.roots {
		rel, err := filepath.Rel(root, event.Name)
		if err != nil {
			h.table.voidAll()
			return
		}
		if filepath.IsLocal(rel) {
			h.changedIn(root, filepath.ToSlash(rel), event)
		}
	}
}

// changedIn is changed for one of the roots.
func (h *Handler) changedIn(root, rel string, event fsnotify.Event) {
	if event.Has(fsnotify.Create) || event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename) {
		// Perhaps a directory, or a link to one.
		h.watch.forget(watchedDir{root, rel})
		h.table.voidBelow(rel)
	}
	if rel == rulefile.RedirectsName || rel == rulefile.HeadersName {
		h.readRules()
	}
	base := path.Base(rel)
	plain := base
	for c := negotiate.Gzip; c < negotiate.Codings; c++ {
		plain = strings.TrimSuffix(plain, siblings[c])
	}
	h.table.voidIn(dirOf(rel), func(name string) bool {
		if i := strings.LastIndexByte(name, '/'); i >= 0 {
			name = name[i+1:]
		}
		if name == "" {
			return h.isIndex(base) || h.isIndex(plain)
		}
		return name == base || name == plain || h.options.CleanURLs && name+pageExtension == plain
	})
}
