package static

import (
	"path/filepath"
	"time"

	"millrace/internal/negotiate"
)

// sweepEvery is how often held files are looked at, watched or not: inotify
// says nothing about network file systems, links' targets and hard links. With
// the time a full table takes it stays below the second in which a change must
// show.
const sweepEvery = 700 * time.Millisecond

// sweepLoop runs until Close.
func (h *Handler) sweepLoop() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-h.closing:
			return
		case <-tick.C:
			h.sweep()
		}
	}
}

// sweep compares all held snapshots with their files.
func (h *Handler) sweep() {
	h.table.trim()
	if h.tree.refresh() {
		h.rules.forget()
		h.table.voidAll()
		if h.watch != nil {
			h.watch.forget(".")
		}
	}
	h.readRules()
	dirs := map[string]stamp{} // each is looked at once
	for _, e := range h.table.all() {
		select {
		case <-h.closing:
			return
		default:
		}
		s := e.snapshot.Load()
		if s.valid() && !h.tree.fixed() && !h.same(e, s, dirs) {
			e.void()
		}
		if s != nil && !s.valid() {
			h.discard(e, s)
			continue
		}
		h.wantCompressed(e, s)
	}
	if h.watch != nil {
		used := h.table.directories()
		if h.rules.on {
			used["."] = true
		}
		h.watch.keep(used)
	}
}

// discard lets go of a void snapshot's memory and files, unless somebody is
// just making a new one.
func (h *Handler) discard(e *entry, s *snapshot) {
	if !e.loading.TryLock() {
		return
	}
	defer e.loading.Unlock()
	if e.snapshot.Load() == s {
		h.table.drop(e)
	}
}

// same reports whether a snapshot still shows its files. On Linux that is one
// system call for each file, and one for each directory to learn of new ones.
func (h *Handler) same(e *entry, s *snapshot, dirs map[string]stamp) bool {
	if s.racy {
		return false // read it once more, now that its stamp can be trusted
	}
	if h.tree.dir == "" || !hasQuickStamp {
		return h.unchanged(e, s)
	}
	now := time.Now()
	for c := range negotiate.Codings {
		want := s.found.sources[c]
		if want == (stamp{}) {
			continue
		}
		if got, ok := quickStamp(h.path(s.found.source(c))); !ok || got != want {
			return false
		}
	}
	dir := dirOf(s.found.file)
	got, ok := dirs[dir]
	if !ok {
		got, _ = quickStamp(h.path(dir))
		dirs[dir] = got
	}
	if got == (stamp{}) || got != *s.dir.Load() {
		return h.unchanged(e, s) // something else came or went
	}
	s.checked.Store(now.UnixNano())
	return true
}

func (h *Handler) path(name string) string {
	return filepath.Join(h.tree.dir, filepath.FromSlash(name))
}
