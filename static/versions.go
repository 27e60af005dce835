package static

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"millrace/internal/wire/compress"
	"millrace/internal/wire/dictionary"
	"millrace/internal/wire/negotiate"
	"millrace/internal/wire/send"
)

const (
	// maxDeltas bounds the dictionaries that one file is compressed with: each takes
	// up to two seconds of one core, once.
	maxDeltas = 8
	// maxVersions bounds the files that are read at the start because a visitor may
	// have one of them.
	maxVersions = 64
)

// errEnough ends a walk.
var errEnough = errors.New("enough files were looked at")

// varyDictionary is what files that are compressed with dictionaries vary on.
var varyDictionary = []string{"Accept-Encoding", dictionary.Header}

// varyDictionaryHeader is that as one line.
var varyDictionaryHeader = []string{"Accept-Encoding, " + dictionary.Header}

// versions are contents that visitors may still have from before, of files whose names
// change with the content.
type versions struct {
	on     bool
	sought atomic.Bool // those that are there at the first request
	kept   dictionary.Kept

	mu     sync.Mutex
	queued map[queuedDelta]bool // at most maxJobs and one
}

type queuedDelta struct {
	entry *entry
	hash  dictionary.Hash
}

// delta is a file compressed with one dictionary. It has no answers where that does
// not pay.
type delta struct {
	hash    dictionary.Hash
	answers [dictionary.Codings]*send.Answer
}

func (d *delta) cost() (bytes int64) {
	for _, a := range d.answers {
		if a != nil {
			bytes += int64(len(a.Body)) + entryOverhead
		}
	}
	return bytes
}

// choose is the smallest answer that a client takes, nil for none.
func (d *delta) choose(ask *dictionary.Ask) (best *send.Answer) {
	for c, a := range d.answers {
		if a != nil && ask.Accepts[c] && (best == nil || a.Size < best.Size) {
			best = a
		}
	}
	return best
}

// versionOf is the rule by which a name is a dictionary, 0 for none.
func (h *Handler) versionOf(name string, kind mediaType, size int64) int {
	if !h.versions.on || !kind.compressible || size < compress.MinSize || size > dictionary.MaxSize {
		return 0
	}
	return h.options.Dictionaries.Of("/" + name)
}

// fromVersion returns the answer for a client that has another version of a file; nil
// if there is none (yet). known is false where the lane must not keep the answer, of
// whose variants it has room for a few: the next such request may get another one, or
// the client has made the dictionary's hash up.
func (h *Handler) fromVersion(name string, s *snapshot, header http.Header) (a *send.Answer, known bool) {
	ask, ok := dictionary.Asked(header)
	if !ok || !h.versions.kept.Has(s.dictionary, ask.Hash) {
		return nil, false
	}
	for i := range s.deltas {
		if s.deltas[i].hash == ask.Hash {
			return s.deltas[i].choose(&ask), true
		}
	}
	if e := h.table.get(name); e != nil && len(s.deltas) < maxDeltas {
		h.wantDelta(e, s, &ask)
	}
	return nil, false
}

// wantDelta queues a file for compression with a dictionary.
func (h *Handler) wantDelta(e *entry, s *snapshot, ask *dictionary.Ask) {
	if s.racy && !h.trees.fixed() {
		return
	}
	v, q := &h.versions, queuedDelta{e, ask.Hash}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.queued[q] {
		return
	}
	if h.background.submit(h, func(tools *compress.Tools) { h.compressFor(e, ask, tools) }) {
		if v.queued == nil {
			v.queued = map[queuedDelta]bool{}
		}
		v.queued[q] = true
	}
}

// compressVersion makes both forms of a file with a dictionary, of which those are
// kept that are smaller than what the client would get without.
func (h *Handler) compressVersion(e *entry, ask *dictionary.Ask, tools *compress.Tools) {
	defer func() {
		h.versions.mu.Lock()
		defer h.versions.mu.Unlock()
		delete(h.versions.queued, queuedDelta{e, ask.Hash})
	}()
	s, hash := e.snapshot.Load(), ask.Hash
	if !s.valid() || s.shut || s.dictionary == 0 || len(s.deltas) >= maxDeltas ||
		slices.ContainsFunc(s.deltas, func(d delta) bool { return d.hash == hash }) {
		return
	}
	identity := s.answers[negotiate.Identity]
	with := h.versions.kept.Get(s.dictionary, hash)
	plain, ok := plainBytes(identity)
	if with == nil || !ok || plain == nil || !h.table.memory.Fits(identity.Size) {
		return
	}
	least := len(plain)
	for _, a := range s.answers {
		if a != nil {
			least = min(least, int(a.Size))
		}
	}
	var made [dictionary.Codings][]byte
	for c := range dictionary.Codings {
		packed, err := dictionary.Pack(tools, c, with, plain, h.closing)
		if err != nil {
			return
		}
		if compress.Pays(least, len(packed)) {
			made[c] = packed
		}
	}
	h.publish(e, s, func(next *snapshot) {
		d := delta{hash: hash}
		for c, body := range made {
			if body != nil {
				d.answers[c] = h.deltaAnswer(next, dictionary.Coding(c), body)
			}
		}
		next.deltas = append(slices.Clip(next.deltas), d)
	})
}

// deltaAnswer is the answer with a body that was compressed with a dictionary.
func (h *Handler) deltaAnswer(s *snapshot, c dictionary.Coding, body []byte) *send.Answer {
	a := h.finish(s, content{
		size: int64(len(body)), modified: s.answers[negotiate.Identity].LastModified, body: body,
	})
	a.ETag = `"` + contentTag(body) + "-" + c.String() + `"`
	a.Header["Etag"] = []string{a.ETag}
	a.Header["Content-Encoding"] = []string{c.String()}
	return a
}

// keepVersion keeps the content of a file that visitors are now getting.
func (h *Handler) keepVersion(s *snapshot) {
	if s.dictionary == 0 {
		return
	}
	if plain, ok := plainBytes(s.answers[negotiate.Identity]); ok && plain != nil {
		h.versions.kept.Add(s.dictionary, plain)
	}
}

// wantOldVersions has them read, once.
func (h *Handler) wantOldVersions() {
	v := &h.versions
	if !v.on || !v.sought.CompareAndSwap(false, true) {
		return
	}
	if !h.background.submit(h, func(*compress.Tools) { h.oldVersions() }) {
		v.sought.Store(false) // the sweep tries again
	}
}

// oldVersions reads the files that are there at the first request, the newest of each
// rule: visitors may have them from before.
func (h *Handler) oldVersions() {
	type version struct {
		tree  *tree
		name  string
		rule  int
		stamp stamp
	}
	var found []version
	looked := 0
	_ = h.trees.walk(".", func(t *tree, name string, d fs.DirEntry) error { // no error is of interest
		select {
		case <-h.closing:
			return errEnough
		default:
		}
		if looked++; looked > maxFilesWalked {
			return errEnough
		}
		rule := h.options.Dictionaries.Of("/" + name)
		if rule == 0 || !d.Type().IsRegular() || !h.shown(name) {
			return nil
		}
		if info, err := d.Info(); err == nil && h.versionOf(name, h.typeOf(name), info.Size()) > 0 {
			found = append(found, version{t, name, rule, stampOf(info)})
		}
		return nil
	})
	slices.SortStableFunc(found, func(a, b version) int { return cmp.Compare(a.stamp.mtime, b.stamp.mtime) })
	for _, v := range found[max(0, len(found)-maxVersions):] {
		f, _, err := v.tree.open(v.name)
		if err != nil {
			continue
		}
		content, err := io.ReadAll(io.LimitReader(f, dictionary.MaxSize+1))
		_ = f.Close() // read only
		if err == nil && len(content) <= dictionary.MaxSize {
			h.versions.kept.Add(v.rule, content)
		}
	}
}

// maxFilesWalked bounds the names that are looked at for old versions.
const maxFilesWalked = 100_000
