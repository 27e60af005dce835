package static

import (
	"time"

	"millrace/internal/wire/negotiate"
)

// sweepEvery is how often held files are looked at, watched or not: inotify
// says nothing about network file systems, links' targets and hard links. With
// the time a full table takes it stays below the second in which a change must
// show.
const sweepEvery = 700 * time.Millisecond

// sweep compares all held snapshots with their files.
func (h *Handler) sweep() {
	h.table.trim()
	if h.trees.refresh() {
		h.rules.forget()
		h.table.voidAll()
		if h.watch != nil {
			h.watch.forgetAll()
		}
	}
	h.readRules()
	h.wantOldVersions()
	dirs := map[string]stamp{} // each is looked at once
	for _, e := range h.table.all() {
		select {
		case <-h.closing:
			return
		default:
		}
		s := e.snapshot.Load()
		if s.valid() && !h.trees.fixed() && !h.same(e, s, dirs) {
			e.void()
		}
		if s != nil && !s.valid() {
			h.discard(e, s)
			continue
		}
		e.count()
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
// system call for each file, and one for each directory to learn of new ones, also
// in the trees that are asked before.
func (h *Handler) same(e *entry, s *snapshot, dirs map[string]stamp) bool {
	if s.racy {
		return false // read it once more, now that its stamp can be trusted
	}
	t := s.found.tree
	if t.dir == "" || !hasQuickStamp {
		return h.unchanged(e, s)
	}
	now := time.Now()
	for c := range negotiate.Codings {
		want := s.found.sources[c]
		if want == (stamp{}) {
			continue
		}
		if got, ok := quickStamp(t.path(s.found.source(c))); !ok || got != want {
			return false
		}
	}
	for i, was := range *s.dirs.Load() {
		dir := h.trees[i].path(dirOf(s.found.file))
		is, ok := dirs[dir]
		if !ok {
			if is, ok = quickStamp(dir); !ok {
				is = noStamp
			}
			dirs[dir] = is
		}
		if was == (stamp{}) || is != was {
			return h.unchanged(e, s) // something else came or went
		}
	}
	s.checked.Store(now.UnixNano())
	return true
}
