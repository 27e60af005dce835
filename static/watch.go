package static

import (
	"errors"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fsnotify/fsnotify"

	"millrace/internal/negotiate"
	"millrace/internal/rulefile"
)

// maxWatches bounds what one handler takes of the user's inotify watches, of
// which some systems allow 8192 in all. Directories beyond it are left to the
// sweep.
const maxWatches = 1024

// watcher has the directories watched from which files are held, and those
// above them: a directory that is renamed says so to its parent only.
type watcher struct {
	root string
	fs   *fsnotify.Watcher

	mu   sync.Mutex
	dirs map[string]bool // names relative to the root, "." being the root
}

// newWatcher returns nil where the system gives none: the sweep remains.
func newWatcher(root string) *watcher {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil
	}
	return &watcher{root: root, fs: w, dirs: map[string]bool{}}
}

// add watches a directory and those above it, from the top down, so that no
// change to the path in between is missed.
func (w *watcher) add(dir string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dirs[dir] {
		return
	}
	w.addOne(".")
	for i, c := range []byte(dir) {
		if c == '/' {
			w.addOne(dir[:i])
		}
	}
	w.addOne(dir)
}

func (w *watcher) addOne(dir string) {
	if w.dirs[dir] || len(w.dirs) >= maxWatches {
		return
	}
	// An error is a limit that is reached or a directory that is gone: either
	// way the sweep sees to it.
	if w.fs.Add(filepath.Join(w.root, filepath.FromSlash(dir))) == nil {
		w.dirs[dir] = true
	}
}

// forget ends the watches on a directory that is no longer where it was, and
// on those below it. They are taken up again when files are read there.
func (w *watcher) forget(dir string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for d := range w.dirs {
		if within(d, dir) {
			w.removeOne(d)
		}
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
		if !needed[d] {
			w.removeOne(d)
		}
	}
}

func (w *watcher) removeOne(dir string) {
	// An error means that it is gone already.
	_ = w.fs.Remove(filepath.Join(w.root, filepath.FromSlash(dir)))
	delete(w.dirs, dir)
}

func (w *watcher) close() { _ = w.fs.Close() } // nothing to be lost

// watchLoop voids what the system says has changed. To void is one atomic
// step, so events are not gathered first; the kernel merges repeated ones.
func (h *Handler) watchLoop() {
	for {
		select {
		case event, ok := <-h.watch.fs.Events:
			if !ok {
				return
			}
			h.changed(event)
		case err, ok := <-h.watch.fs.Errors:
			if !ok {
				return
			}
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				h.watch.forget(".")
			}
			h.table.voidAll() // something was missed
		}
	}
}

// changed voids what an event concerns.
func (h *Handler) changed(event fsnotify.Event) {
	rel, err := filepath.Rel(h.tree.dir, event.Name)
	if err != nil {
		h.table.voidAll()
		return
	}
	rel = filepath.ToSlash(rel)
	if event.Has(fsnotify.Create) || event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename) {
		// Perhaps a directory, or a link to one.
		h.watch.forget(rel)
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
