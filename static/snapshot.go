package static

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/lane"
	"millrace/internal/wire/compress"
	"millrace/internal/wire/dictionary"
	"millrace/internal/wire/negotiate"
	"millrace/internal/wire/send"
)

const (
	// heldBytes is the largest file whose bytes are held in memory. Beyond it
	// sendfile from a shared descriptor costs no more than writing held bytes
	// (docs/decisions/0021).
	heldBytes = 64 << 10
	// heldWithoutDescriptor is the same for files that the kernel cannot send.
	heldWithoutDescriptor = 1 << 20
	// hashBytes is the most of a file that is read for the sake of its entity
	// tag alone, which is done where it has no date to make one of.
	hashBytes = 64 << 20
	// revalidateAfter is how long a snapshot is used without a look at its
	// file. The sweep looks more often; this is for when it is held up.
	revalidateAfter = time.Second
)

// siblings are what precompressed files have appended to their name.
var siblings = [negotiate.Codings]string{negotiate.Gzip: ".gz", negotiate.Zstd: ".zst", negotiate.Brotli: ".br"}

// entry is one name that was asked for. It lives as long as the table keeps it;
// its snapshots come and go.
type entry struct {
	name string

	// edit is invalidated when the file may have changed, gen also when there are
	// new encodings of the same content. A snapshot stands while both versions
	// that were taken before its content was read do: so void is one step for
	// the watcher, whoever is reading or publishing at that moment.
	edit, gen lane.Generation
	loading   sync.Mutex // held while a snapshot is made
	snapshot  atomic.Pointer[snapshot]

	// again is set when the name is asked for once more, also by the lane. It stands
	// alone, since the lane keeps it. uses, at most maxUses, grows with each sweep that
	// finds it set, and shrinks with each look for what the table can let go of.
	again *atomic.Bool
	uses  atomic.Int32

	place place // the table's
}

const (
	// maxUses bounds entry.uses, so that what was popular once is forgotten.
	maxUses = 3
	// usesToCompress is how often a file must have been asked for again before it is
	// compressed although there is no room for all.
	usesToCompress = 2
)

// count notes whether the entry was asked for again since the last sweep.
func (e *entry) count() {
	if e.again.Swap(false) && e.uses.Load() < maxUses {
		e.uses.Add(1)
	}
}

// spared reports whether the entry was used since this was asked last, and takes note
// that it was asked.
func (e *entry) spared() bool {
	if uses := e.uses.Load(); uses > 0 {
		e.uses.CompareAndSwap(uses, uses-1)
		return true
	}
	return e.again.Swap(false)
}

// void ends the entry's snapshot and everything the lane has of it.
func (e *entry) void() {
	e.edit.Invalidate()
	e.gen.Invalidate()
}

// snapshot is what a name led to at one moment. All but the atomics is
// immutable.
type snapshot struct {
	name          string // that was asked for
	read, version lane.Version
	found         found
	dirs          atomic.Pointer[[]stamp] // of the directory, in the trees up to that of the file; zero when not to be trusted yet
	racy          bool                    // the file is so new that its stamp proves nothing yet
	checked       atomic.Int64            // Unix nanoseconds of the last look at the file

	answers   [negotiate.Codings]*send.Answer
	available negotiate.Set
	vary      bool // has, or may get, more than one encoding
	pictured  bool // is a packed image with variants, or one of these
	streamed  bool // the identity answer has to be opened for each request

	compressible bool
	queued       atomic.Bool // for compression, or done with it
	dictionary   int         // the rule that it is a dictionary by, from 1; 0: none
	deltas       []delta     // it, compressed with others

	// shut snapshots have given their descriptors back and have no answers: the
	// file is opened again when it is asked for. What others have made of it
	// stays right meanwhile.
	shut bool
}

// withoutFiles is what remains of a snapshot when its descriptors are needed
// elsewhere. gen must have been invalidated: the lane has the same descriptors.
func (s *snapshot) withoutFiles(gen lane.Version) *snapshot {
	shut := &snapshot{name: s.name, read: s.read, version: gen, found: s.found, racy: s.racy, vary: s.vary, shut: true}
	shut.dirs.Store(s.dirs.Load())
	shut.checked.Store(s.checked.Load())
	return shut
}

func (s *snapshot) valid() bool { return s != nil && s.read.Valid() && s.version.Valid() }

func (s *snapshot) fresh(now time.Time) bool {
	return s.valid() && now.UnixNano()-s.checked.Load() < int64(revalidateAfter)
}

// release gives back the snapshot's files.
func (s *snapshot) release() {
	for _, a := range s.answers {
		if a != nil && a.File != nil {
			a.File.Release()
		}
	}
}

// cost is what the snapshot counts against the bounds on memory and open files.
func (s *snapshot) cost() (bytes int64, files int) {
	for _, a := range s.answers {
		if a != nil {
			bytes += int64(len(a.Body))
			if a.File != nil {
				files++
			}
		}
	}
	for i := range s.deltas {
		bytes += s.deltas[i].cost()
	}
	return bytes, files
}

// stat makes a snapshot of what a name leads to now, without opening it.
func (h *Handler) stat(e *entry) (*snapshot, error) {
	if dir := dirOf(e.name); h.watch != nil && !h.watch.has(dir) {
		if _, _, err := h.probe(e.name); err != nil {
			return nil, err // nothing to watch
		}
		h.watch.add(dir) // before the versions are taken: no change may fall between
	}
	s := &snapshot{name: e.name, read: e.edit.Now(), version: e.gen.Now(), shut: true}
	f, dirs, err := h.probe(e.name)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	s.found = f
	s.settle(dirs, now)
	s.checked.Store(now.UnixNano())
	for c := range negotiate.Codings {
		s.racy = s.racy || !h.trees.fixed() && f.sources[c] != (stamp{}) && f.sources[c].racy(now)
	}
	return s, nil
}

// look is stat for a job that has made something else of the file, a converted image
// for example. That must not be sent when the file itself may not be read any more,
// which only the system can tell (modes, access lists, its policies). So the file is
// opened, once for each state of it: revoking a permission changes its ctime or a
// folder's.
func (h *Handler) look(e *entry) (*snapshot, error) {
	s, err := h.stat(e)
	if err != nil {
		return nil, err
	}
	f, info, err := s.found.tree.open(s.found.file)
	if err != nil {
		return nil, err
	}
	_ = f.Close() // nothing was read
	if stampOf(info) != s.found.sources[negotiate.Identity] {
		return nil, errChanged
	}
	return s, nil
}

// read makes a snapshot of what a name leads to now, with all that it takes to
// serve it.
func (h *Handler) read(e *entry) (*snapshot, error) {
	s, err := h.stat(e)
	if err != nil {
		return nil, err
	}
	s.shut = false
	f := s.found
	kind := h.typeOf(f.file)
	size := f.sources[negotiate.Identity].size
	s.compressible = !h.options.NoCompress && kind.compressible && compress.MinSize <= size && size <= compress.MaxSize
	for c := negotiate.Gzip; c < negotiate.Codings; c++ {
		if f.sources[c] != (stamp{}) {
			s.vary, s.compressible = true, false
		}
	}
	s.dictionary = h.versionOf(e.name, kind, size)
	s.vary = s.vary || s.compressible || s.dictionary > 0
	_, variant := h.pictured(f.file)
	s.pictured = variant || h.hasPictures(&f)
	for c := range negotiate.Codings {
		if f.sources[c] == (stamp{}) {
			continue
		}
		a, err := h.readSource(s, c)
		switch {
		case err == nil && a.Body == nil && a.File == nil && a.Size > 0:
			s.streamed = s.streamed || c == negotiate.Identity // a variant like that is done without
		case err != nil && c != negotiate.Identity && !errors.Is(err, errChanged):
			continue // an unreadable sibling is none
		case err != nil:
			s.release()
			return nil, err
		}
		if a.Body != nil || a.File != nil || c == negotiate.Identity {
			s.answers[c], s.available = a, s.available.With(c)
		}
	}
	if f.onlyCompressed() {
		if err := h.expandCompressed(s); err != nil {
			s.release()
			return nil, err
		}
	}
	return s, nil
}

// settle keeps the directories' stamps, except those that are too new to prove
// anything.
func (s *snapshot) settle(dirs []stamp, now time.Time) {
	for i := range dirs {
		if dirs[i].racy(now) {
			dirs[i] = stamp{}
		}
	}
	s.dirs.Store(&dirs)
}

// readSource opens one of the files that were found, and holds its bytes or
// its descriptor. Neither is there where the file system offers no way to read
// at an offset.
func (h *Handler) readSource(s *snapshot, c negotiate.Coding) (*send.Answer, error) {
	if s.found.tree.packed != nil {
		return h.readPacked(s, c)
	}
	f, info, err := s.found.tree.open(s.found.source(c))
	if err != nil {
		return nil, err
	}
	opened := stampOf(info)
	if opened != s.found.sources[c] {
		_ = f.Close() // read only, as all below
		return nil, errChanged
	}
	part := content{coding: c, size: opened.size, modified: h.modified(s, c)}
	file, onDisk := f.(*os.File)
	limit := int64(heldBytes)
	if !onDisk {
		limit = heldWithoutDescriptor
	}
	at, seekable := f.(io.ReaderAt)
	switch {
	case part.size <= limit:
		part.body = make([]byte, part.size)
		_, err = io.ReadFull(f, part.body)
		if err == nil {
			info, err = f.Stat()
		}
		_ = f.Close()
		if err == nil && stampOf(info) != opened || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			return nil, errChanged
		}
		if err != nil {
			return nil, classify(err)
		}
		part.tag = contentTag(part.body)
	case onDisk:
		part.file = send.NewFile(file)
		part.tag = stampTag(opened)
	case seekable:
		part.tag = stampTag(opened)
		if opened.mtime == 0 && part.size <= hashBytes {
			part.tag = hashTag(io.NewSectionReader(at, 0, part.size))
		}
		part.file = send.NewReaderAt(at, f)
	default:
		part.tag = stampTag(opened)
		_ = f.Close()
	}
	return h.finish(s, part), nil
}

// modified is the Last-Modified date of an encoding: that of the file, or of
// its precompressed sibling if that is newer. A date in the future becomes now
// (RFC 9110, 8.8.2.1), and what has none, or the epoch that reproducible builds
// put there, counts as changed when the program was built.
func (h *Handler) modified(s *snapshot, c negotiate.Coding) time.Time {
	ns := max(s.found.sources[negotiate.Identity].mtime, s.found.sources[c].mtime)
	t := time.Unix(0, ns)
	if t.Unix() <= 1 {
		t = h.built
	}
	if now := time.Now(); t.After(now) {
		t = now
	}
	return t.UTC().Truncate(time.Second)
}

// contentTag makes an entity tag of held bytes, stampTag one of size and dates.
// Both are strong (RFC 9110, 8.8.1): a stamp is not used before it proves what
// it says, see racy, and the inode's own date is in it, which nobody can put
// back as the file's can be after an edit.
func contentTag(body []byte) string {
	return sumTag(sha256.Sum256(body))
}

func sumTag(sum [sha256.Size]byte) string { return base64.RawURLEncoding.EncodeToString(sum[:12]) }

func stampTag(s stamp) string {
	if s.ctime == 0 { // not known here
		return fmt.Sprintf("%x-%x", s.mtime, s.size)
	}
	return fmt.Sprintf("%x-%x-%x", s.mtime, s.ctime, s.size)
}

func hashTag(r io.Reader) string {
	sum := sha256.New()
	if _, err := io.Copy(sum, r); err != nil {
		return "" // no tag then; the date remains
	}
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:12])
}

// find returns the snapshot for a name, from the table if it is there. A
// transient one is in no table: the caller must release it. For a mere look at
// the file a shut one will do. What does not exist is not remembered.
func (h *Handler) find(name string, look bool) (use, error) {
	e := h.table.obtain(name)
	if e == nil {
		return use{}, errUnavailable // closed
	}
	if s := e.snapshot.Load(); s.fresh(time.Now()) && (look || !s.shut) {
		if !e.again.Load() {
			e.again.Store(true)
		}
		return use{snapshot: s, again: e.again}, nil
	}
	s, transient, err := h.load(e, look)
	return use{snapshot: s, again: e.again, first: true, transient: transient}, err
}

// load looks at the entry's file and makes a new snapshot if it has changed.
func (h *Handler) load(e *entry, look bool) (s *snapshot, transient bool, err error) {
	e.loading.Lock()
	defer e.loading.Unlock()
	before := e.snapshot.Load()
	if before.fresh(time.Now()) && (look || !before.shut) {
		return before, false, nil // somebody else has done it meanwhile
	}
	same := before.valid() && h.unchanged(e, before)
	if same && (look || !before.shut) {
		return before, false, nil
	}
	for range maxAttempts {
		if !same {
			e.void()
		}
		if look {
			s, err = h.look(e)
		} else {
			s, err = h.read(e)
		}
		switch {
		case err == nil && same && s.found != before.found: // it changed just now
			s.release()
			same = false
			continue
		case errors.Is(err, errChanged):
			continue
		case err != nil:
			h.table.drop(e)
			return nil, false, err
		}
		if !h.table.install(e, s) {
			return s, true, nil // evicted while it was read, or closed
		}
		h.wantCompressed(e, s) // not what is shut
		return s, false, nil
	}
	s, err = h.readMoving(e.name)
	return s, true, err
}

// unchanged reports whether the files are as the snapshot has them.
func (h *Handler) unchanged(e *entry, s *snapshot) bool {
	if s.racy {
		return false
	}
	now := time.Now()
	f, dirs, err := h.probe(e.name)
	if err != nil || f != s.found {
		return false
	}
	s.settle(dirs, now)
	s.checked.Store(now.UnixNano())
	return true
}

// changingCache is for files that do not hold still.
const changingCache = "no-store"

// readMoving makes a snapshot of a file that does not hold still, such as a
// log: as much as there is of it, to be remembered by nobody.
func (h *Handler) readMoving(name string) (*snapshot, error) {
	found, _, err := h.probe(name)
	if err != nil {
		return nil, err
	}
	f, info, err := found.tree.open(found.file)
	if err != nil {
		return nil, err
	}
	s := &snapshot{name: name, found: found}
	part := content{size: info.Size()}
	if file, ok := f.(*os.File); ok {
		part.file = send.NewFile(file)
	} else {
		part.body, err = io.ReadAll(io.LimitReader(f, heldWithoutDescriptor))
		_ = f.Close()
		if err != nil || len(part.body) == heldWithoutDescriptor {
			return nil, errUnavailable
		}
		part.size = int64(len(part.body))
	}
	a := h.finish(s, part)
	for _, name := range [...]string{"Etag", "Last-Modified", "Accept-Ranges"} {
		delete(a.Header, name)
	}
	a.Header["Cache-Control"] = []string{changingCache}
	a.ETag, a.LastModified = "", time.Time{}
	s.answers[negotiate.Identity] = a
	return s, nil
}

// use is a snapshot in the service of one request.
type use struct {
	snapshot  *snapshot
	answer    *send.Answer
	again     *atomic.Bool // the entry's
	first     bool         // it had to be looked at for this request
	offer     bool         // to the lane
	transient bool
}

// done gives back what the request held.
func (u *use) done() {
	if u.answer.File != nil {
		u.answer.File.Release()
	}
	if u.transient {
		u.snapshot.release()
	}
}

// keeps reports whether the snapshot is likely to be there at the next request. In a
// crowded table that is so if this one has found it.
func (h *Handler) keeps(u *use) bool {
	return !u.transient && (!u.first || !h.table.crowded())
}

// use finds the answer for a name and a request's headers, and holds its file.
func (h *Handler) use(name string, header http.Header) (use, error) {
	for range maxAttempts {
		u, err := h.find(name, false)
		if err != nil {
			return use{}, err
		}
		s, transient := u.snapshot, u.transient
		coding, _ := negotiate.Encoding(header["Accept-Encoding"], s.available)
		u.answer = s.answers[coding]
		known := true
		if s.dictionary > 0 && len(header[dictionary.Header]) > 0 {
			var a *send.Answer
			if a, known = h.fromVersion(name, s, header); a != nil {
				u.answer = a
			}
		}
		if u.answer == nil { // too large to be decompressed
			if transient {
				s.release()
			}
			return use{}, errNotAcceptable
		}
		switch f := u.answer.File; {
		case s.streamed && u.answer == s.answers[negotiate.Identity]:
			a := *u.answer
			r := &sequential{tree: s.found.tree, name: path.Clean(s.found.file)}
			a.File = send.NewReaderAt(r, r)
			u.answer = &a
			return u, nil
		case f == nil:
			u.offer = known && h.keeps(&u)
			return u, nil
		case f.Retain():
			u.offer = known && h.keeps(&u) && f.HasDescriptor()
			return u, nil
		}
	}
	return use{}, errUnavailable // replaced each time before we got hold of it
}
