package images

import (
	"container/list"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/images/codec"
	"millrace/images/convert"
	"millrace/images/header"
	"millrace/images/queue"
	"millrace/internal/lane"
	"millrace/internal/wire/send"
	"millrace/static/original"
	"millrace/store"
)

const (
	// maxRecords bounds the originals that are remembered; the store knows the
	// others.
	maxRecords = 8192
	// maxVariants bounds the variants of one original that are remembered:
	// sizes × formats, as a page's srcset has them.
	maxVariants = 64
	// heldBytes is the largest variant whose bytes are held in memory: from
	// there on sendfile costs no more (lab/bench/AA.md, embed-vs-disk).
	heldBytes = 64 << 10
	// DefaultHeld is what a handler holds in memory, in bytes, where its source
	// has no memory that it could share (original.Memory).
	DefaultHeld = 64 << 20
	// What an original, a variant of it and its answer take of that, besides the
	// answer's body. TestMemoryOfRecords holds them against the heap.
	recordBytes  = 512
	variantBytes = 1024
	answerBytes  = 1152
	// maxOpen bounds the descriptors of larger variants: a quarter of the 1024
	// that many systems allow.
	maxOpen = 256
	// failedFor is how long a failure is remembered: the next one of the same
	// variant twice as long, and so on up to maxFailedFor.
	failedFor    = 10 * time.Minute
	maxFailedFor = 24 * time.Hour
	// soon is when something is tried again that another moment may allow: the
	// queue was full, a file could not be opened.
	soon = 5 * time.Second
)

// state of a variant.
type state uint8

const (
	unknown state = iota // the store has not been asked
	missing              // it is to be made
	ready                // it is there
	smaller              // the original is smaller
	failed               // it could not be made; see until and err
	ordered              // it is being made
)

// record is what is known of one original.
type record struct {
	name  string
	place *list.Element // the table's

	// gen is invalidated when another answer may have become the best one for
	// some request.
	gen lane.Generation
	// used is set when the lane sends a variant. It stands alone, since the lane keeps it.
	used *atomic.Bool

	mu       sync.Mutex
	gone     bool // out of the table: nothing may be noted on it, since nobody would let go of it
	file     original.File
	info     *header.Info // nil until somebody needed it
	refused  error        // why nothing is ever made of this file; nil: it may be
	variants map[string]*variant
	uses     int // of its variants, so far
}

// variant is one that somebody wanted.
type variant struct {
	wanted wanted
	state  state
	meta   meta
	answer *send.Answer // nil until it is sent
	used   int          // the record's uses at its last

	ticket *queue.Ticket // of what is ordered
	made   time.Time     // when it was last made here
	better bool          // the better one was ordered, or is there

	err      error     // why it failed
	failures int       // one after the other
	until    time.Time // when what failed is tried again
	interim  bool      // and that is soon
}

// postpone has it tried again soon.
func (v *variant) postpone(err error) {
	v.state, v.err, v.until, v.interim, v.ticket = failed, err, time.Now().Add(soon), true, nil
}

// expire lets what failed be tried again, when it is time for that.
func (v *variant) expire() {
	if v.state == failed && time.Now().After(v.until) {
		v.state = missing
	}
}

// table holds records, the longest unused going first.
type table struct {
	mu      sync.Mutex
	records map[string]*record
	recent  list.List // of *record, the last used in front
	open    int       // descriptors in answers
	closed  bool

	memory *original.Share // of all that is held
}

// newTable makes one that takes its memory from m; nil: it has some of its own.
func newTable(m *original.Memory) *table {
	if m == nil {
		m = original.NewMemory(DefaultHeld)
	}
	t := &table{records: map[string]*record{}, memory: m.Join()}
	t.recent.Init()
	return t
}

// record returns the record of an original, which is as f says: nil if it has
// changed since that look, or the table is closed. What was made of an earlier
// content is returned as well: it is to be dropped.
func (t *table) record(f original.File) (rec *record, before *staleRecord) {
	t.mu.Lock()
	rec = t.records[f.Name]
	switch {
	case t.closed:
		t.mu.Unlock()
		return nil, nil
	case rec == nil:
		rec = &record{name: strings.Clone(f.Name), file: f, used: new(atomic.Bool), variants: map[string]*variant{}}
		rec.place = t.recent.PushFront(rec)
		t.records[rec.name] = rec
		t.memory.Add(recordBytes)
		t.evict()
	default:
		t.recent.MoveToFront(rec.place)
	}
	t.mu.Unlock()
	rec.mu.Lock()
	defer rec.mu.Unlock()
	switch {
	case rec.gone:
		return nil, nil
	case same(rec.file, f):
		if f.Generation == (lane.Version{}) {
			f.Generation = rec.file.Generation // found by name: the one that a request has brought goes on
		}
	case !f.Generation.Valid(): // somebody with a later look was here before
		return nil, nil
	default:
		before = t.forget(rec)
	}
	rec.file = f
	return rec, before
}

// same reports whether two looks at an original found the same content.
func same(a, b original.File) bool {
	return a.Size == b.Size && a.Modified.Equal(b.Modified) && a.Version == b.Version
}

// staleRecord is what was known of an original that has changed or is gone, so that
// its variants can be removed.
type staleRecord struct {
	file original.File
	ids  []string
}

// forget empties a record, whose lock is held.
func (t *table) forget(rec *record) *staleRecord {
	p := &staleRecord{file: rec.file}
	for id, v := range rec.variants {
		p.ids = append(p.ids, id)
		t.forgetVariant(rec, v)
	}
	rec.gen.Invalidate()
	rec.variants, rec.info, rec.refused = map[string]*variant{}, nil, nil
	return p
}

// release releases a variant's bytes or descriptor; its record is locked.
func (t *table) release(v *variant) {
	if v.answer == nil {
		return
	}
	if v.answer.File != nil {
		v.answer.File.Release()
	}
	t.account(v.answer, -1)
	v.answer = nil
}

func (t *table) account(a *send.Answer, n int) {
	t.memory.Add(int64(n * (answerBytes + len(a.Body))))
	if a.File == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open += n
}

// forgetVariant takes a variant out of its record, whose lock is held.
func (t *table) forgetVariant(rec *record, v *variant) {
	t.release(v)
	delete(rec.variants, v.wanted.id)
	t.memory.Add(-variantBytes)
}

// evict takes out records beyond the bound; t.mu is held. What they hold is
// released by a goroutine of its own, because their locks come before t.mu.
func (t *table) evict() {
	for t.recent.Len() > maxRecords {
		t.keepUsed()
		rec := t.recent.Back().Value.(*record)
		t.remove(rec)
		go t.empty(rec) // ends by itself, at once; Close need not wait: it only closes descriptors
	}
}

// maxSpared bounds how many records one that has to go is looked for behind.
const maxSpared = 64

// keepUsed puts in front what stands last in the list and was sent by the lane since:
// that does not move it. t.mu is held.
func (t *table) keepUsed() {
	for range maxSpared {
		last := t.recent.Back()
		if !last.Value.(*record).used.Swap(false) {
			return
		}
		t.recent.MoveToFront(last)
	}
}

// remove takes a record out, unless that was done; t.mu is held.
func (t *table) remove(rec *record) {
	if t.records[rec.name] == rec {
		t.recent.Remove(rec.place)
		delete(t.records, rec.name)
		t.memory.Add(-recordBytes)
	}
}

// empty releases all that a record holds that is out of the table.
func (t *table) empty(rec *record) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.gone = true
	t.forget(rec)
}

// trim makes room when the table holds too many bytes or descriptors, and a
// quarter of what it may have beyond that, so that it is not done for each
// answer. What was unused for the longest goes first; the store knows it. The
// record in use keeps what it has: its request would start again without end.
func (t *table) trim(inUse *record) {
	bytes, files := t.memory.Excess(), t.openAbove(maxOpen)
	if bytes > 0 {
		bytes += t.memory.Held() / 4
	}
	if files > 0 {
		files += maxOpen / 4
	}
	if bytes <= 0 && files <= 0 {
		return
	}
	least := t.memory.Held() - bytes
	all := t.all()
	for _, spare := range []bool{true, false} { // first those that the lane has not sent since
		for _, rec := range slices.Backward(all) {
			tooMuch, tooMany := bytes > 0 && t.memory.Held() > least, files > 0 && t.openAbove(maxOpen/4*3) > 0
			if !tooMuch && !tooMany {
				return
			}
			if rec == inUse || spare && rec.used.Swap(false) {
				continue
			}
			t.shrink(rec, tooMuch)
		}
	}
}

// shrink releases a record's descriptors. With forget it also forgets its variants,
// except those that are being made or have failed, and the record itself if none is
// left.
func (t *table) shrink(rec *record, forget bool) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	void := false
	for _, v := range rec.variants {
		switch {
		case forget && v.state != ordered && v.failures == 0 && v.state != failed:
			t.forgetVariant(rec, v)
			void = true // nobody would, when it becomes another
		case v.answer != nil && (forget || v.answer.File != nil):
			t.release(v)
			void = true // the lane has the same bytes and descriptors
		}
	}
	if forget && len(rec.variants) == 0 && !rec.gone {
		rec.gone, void = true, true
		t.mu.Lock()
		t.remove(rec)
		t.mu.Unlock()
	}
	if void {
		rec.gen.Invalidate()
	}
}

// openAbove is how many descriptors more than that are open.
func (t *table) openAbove(most int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open - most
}

// all returns the records of this moment, the last used first.
func (t *table) all() []*record {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*record, 0, t.recent.Len())
	for e := t.recent.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*record))
	}
	return all
}

// drop takes a record out, if it is of that content still, and returns what it
// knew.
func (t *table) drop(rec *record, f original.File) *staleRecord {
	rec.mu.Lock()
	if rec.gone || !same(rec.file, f) {
		rec.mu.Unlock()
		return nil
	}
	rec.gone = true
	p := t.forget(rec)
	rec.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(rec)
	return p
}

// close lets go of everything, for good.
func (t *table) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	for _, rec := range t.all() {
		t.mu.Lock()
		t.remove(rec)
		t.mu.Unlock()
		t.empty(rec)
	}
	t.memory.Leave()
}

// variant returns the record's variant, and makes it known if it is not; the
// record's lock is held. What is known of others may have to go for it, those
// first that were longest unused: the store knows them.
func (t *table) variant(rec *record, w wanted) *variant {
	rec.uses++
	v := rec.variants[w.id]
	if v == nil {
		for len(rec.variants) >= maxVariants {
			t.forgetOne(rec)
		}
		v = &variant{}
		rec.variants[w.id] = v
		t.memory.Add(variantBytes)
	}
	v.wanted, v.used = w, rec.uses
	return v
}

func (t *table) forgetOne(rec *record) {
	var oldest *variant
	for _, v := range rec.variants {
		if oldest == nil || v.used < oldest.used {
			oldest = v
		}
	}
	t.forgetVariant(rec, oldest)
	rec.gen.Invalidate() // nobody would, when it becomes another
}

// contentType is that of a variant.
func contentType(m *meta) string {
	switch f := codec.Format(m.Format); {
	case f == convert.Info:
		return "application/json"
	case convert.IsFact(f):
		return "text/plain; charset=utf-8"
	case f == convert.SVG:
		return "image/svg+xml"
	case f == convert.Stripped:
		return mediaType(path.Ext(m.Source))
	}
	return "image/" + m.Format
}

// hold makes the answer of a variant out of what is stored, which it takes over.
// Its date is that of the conversion: the original's would tell clients that
// what they have of it goes on here (RFC 9110, 13.1.3 and 13.1.5).
func (t *table) hold(rec *record, v *variant, o *store.Object, vary []string) error {
	modified := rec.file.Modified
	if made := time.Unix(v.meta.Made, 0); made.After(modified) {
		modified = made
	}
	a := &send.Answer{
		Size: v.meta.Bytes, ETag: `"` + v.meta.Tag + `"`, LastModified: modified.UTC().Truncate(time.Second),
		Header: map[string][]string{
			"Content-Type":           {contentType(&v.meta)},
			"Content-Length":         {strconv.FormatInt(v.meta.Bytes, 10)},
			"Accept-Ranges":          {"bytes"},
			"X-Content-Type-Options": {"nosniff"},
			"Vary":                   vary,
			statusHeader:             {v.meta.Format},
		},
	}
	a.Header["Etag"] = []string{a.ETag}
	if now := time.Now(); a.LastModified.After(now) { // RFC 9110, 8.8.2.1
		a.LastModified = now.UTC().Truncate(time.Second)
	}
	if a.LastModified.Unix() > 0 {
		a.Header["Last-Modified"] = []string{a.LastModified.Format(http.TimeFormat)}
	} else {
		a.LastModified = time.Time{}
	}
	if rec.file.CacheControl != "" {
		a.Header["Cache-Control"] = []string{rec.file.CacheControl}
	}
	switch {
	case o.Size <= heldBytes:
		a.Body = make([]byte, o.Size)
		n, err := o.Body.ReadAt(a.Body, 0)
		_ = o.Close() // read only
		if int64(n) != o.Size {
			return err
		}
	case o.File != nil:
		a.File, a.Base = send.NewShared(o.File, o), o.Offset
	default:
		a.File = send.NewReaderAt(o.Body, o)
	}
	v.answer = a
	t.account(a, 1)
	return nil
}
