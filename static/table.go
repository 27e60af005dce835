package static

import (
	"container/list"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/static/original"
)

const (
	// entryOverhead stands for an entry's structs, names and headers.
	entryOverhead = 2 << 10
)

// table is the bounded memory of a handler: entries by name, the longest
// unused going first when there are too many of them, too many bytes or too
// many open files.
type table struct {
	memory     *original.Share
	limit      int
	background *Background  // counts open files
	evicted    atomic.Int64 // when something had to go for want of room; Unix nanoseconds

	mu      sync.Mutex
	entries map[string]*entry
	dirs    map[string]map[*entry]struct{}
	recent  list.List // of *entry, the last used in front
	open    list.List // those with descriptors, likewise
	closed  bool
}

// place is an entry's place in the table; the table's lock guards it.
type place struct {
	recent, open *list.Element
	bytes        int64
	files        int
}

func newTable(memory int64, limit int) *table {
	t := &table{memory: original.NewMemory(memory).Join(), limit: limit, entries: map[string]*entry{}, dirs: map[string]map[*entry]struct{}{}}
	t.recent.Init()
	t.open.Init()
	return t
}

// get returns the entry for a name and counts as its use.
func (t *table) get(name string) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[name]
	if e != nil {
		t.touch(e)
	}
	return e
}

func (t *table) touch(e *entry) {
	t.recent.MoveToFront(e.place.recent)
	if e.place.open != nil {
		t.open.MoveToFront(e.place.open)
	}
}

// obtain is get, but adds what is missing. It returns nil once closed. The new entry
// takes nobody's place before it is installed: there may be no such file.
func (t *table) obtain(name string) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	if e := t.entries[name]; e != nil {
		t.touch(e)
		return e
	}
	name = strings.Clone(name) // let go of the request it came in
	e := &entry{name: name, again: new(atomic.Bool)}
	e.place.recent = t.recent.PushFront(e)
	e.place.bytes = entryOverhead
	t.memory.Add(entryOverhead)
	t.entries[name] = e
	dir := dirOf(name)
	if t.dirs[dir] == nil {
		t.dirs[dir] = map[*entry]struct{}{}
	}
	t.dirs[dir][e] = struct{}{}
	return e
}

// install makes s the entry's snapshot and takes over its files. It reports
// false, and does nothing, if the entry is not in the table any more.
func (t *table) install(e *entry, s *snapshot) bool {
	t.mu.Lock()
	if t.entries[e.name] != e {
		t.mu.Unlock()
		return false
	}
	t.replace(e, s)
	t.evict()
	t.mu.Unlock()
	t.background.balance(t)
	return true
}

// shutOne closes the files of the entry that was not asked for the longest, with respect
// to those that the lane answers; false if no more than least entries have any.
func (t *table) shutOne(least int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open.Len() <= least {
		return false
	}
	for n := 0; n < min(maxSpared, t.open.Len()-1) && t.open.Back().Value.(*entry).spared(); n++ {
		t.open.MoveToFront(t.open.Back())
	}
	t.shut(t.open.Back().Value.(*entry))
	return true
}

// replace exchanges an entry's snapshot and updates the sums.
func (t *table) replace(e *entry, s *snapshot) {
	bytes, files := int64(0), 0
	if s != nil {
		bytes, files = s.cost()
	}
	if old := e.snapshot.Swap(s); old != nil {
		old.release()
	}
	bytes += entryOverhead
	t.memory.Add(bytes - e.place.bytes)
	t.background.hold(files - e.place.files)
	e.place.bytes, e.place.files = bytes, files
	switch {
	case files > 0 && e.place.open == nil:
		e.place.open = t.open.PushFront(e)
	case files == 0 && e.place.open != nil:
		t.open.Remove(e.place.open)
		e.place.open = nil
	}
}

// maxSpared bounds how many entries in a row are spared because they were used.
const maxSpared = 64

// evict makes room. The one that was used last stays, however large. What the lane
// answers is not moved in the list by that, so it is spared here: otherwise a crawler
// that asks for each file once would evict the pages that everybody asks for.
func (t *table) evict() {
	newest, spared := t.recent.Front(), 0
	for t.recent.Len() > 1 && (t.memory.Excess() > 0 || t.recent.Len() > t.limit) {
		oldest := t.recent.Back()
		e := oldest.Value.(*entry)
		if oldest == newest || spared < maxSpared && e.spared() {
			t.recent.MoveToFront(oldest)
			spared++
			continue
		}
		t.remove(e)
		t.evicted.Store(time.Now().UnixNano())
	}
}

// crowdedFor is how long a table counts as crowded after it had to let go of something.
const crowdedFor = 3 * sweepEvery

// crowded reports whether there are more files in use than there is room for.
func (t *table) crowded() bool {
	return time.Since(time.Unix(0, t.evicted.Load())) < crowdedFor
}

// shut closes an entry's files, and keeps what is known of them.
func (t *table) shut(e *entry) {
	e.gen.Invalidate()
	t.replace(e, e.snapshot.Load().withoutFiles(e.gen.Now()))
}

func (t *table) remove(e *entry) {
	e.void()
	t.replace(e, nil)
	t.memory.Add(-e.place.bytes)
	t.recent.Remove(e.place.recent)
	delete(t.entries, e.name)
	dir := dirOf(e.name)
	if delete(t.dirs[dir], e); len(t.dirs[dir]) == 0 {
		delete(t.dirs, dir)
	}
}

// drop removes an entry, if it is still there.
func (t *table) drop(e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.entries[e.name] == e {
		t.remove(e)
	}
}

// trim makes room for what was made of the files, if that needs some.
func (t *table) trim() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.evict()
}

// all returns the entries of this moment.
func (t *table) all() []*entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.entries))
}

// directories returns those that entries are in.
func (t *table) directories() map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	dirs := make(map[string]bool, len(t.dirs))
	for dir := range t.dirs {
		dirs[dir] = true
	}
	return dirs
}

// voidAll ends all snapshots.
func (t *table) voidAll() {
	for _, e := range t.all() {
		e.void()
	}
}

// voidIn ends the snapshots in one directory whose name says yes.
func (t *table) voidIn(dir string, concerned func(name string) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for e := range t.dirs[dir] {
		if concerned(e.name) {
			e.void()
		}
	}
}

// voidBelow ends all snapshots in a directory and those below it.
func (t *table) voidBelow(dir string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for d, entries := range t.dirs {
		if within(d, dir) {
			for e := range entries {
				e.void()
			}
		}
	}
}

// within reports whether dir is top or lies below it.
func within(dir, top string) bool {
	rest, ok := strings.CutPrefix(dir, top)
	return top == "." || ok && (rest == "" || rest[0] == '/')
}

// close removes everything and lets nothing come back.
func (t *table) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, e := range t.entries {
		t.remove(e)
	}
	t.memory.Leave()
}
