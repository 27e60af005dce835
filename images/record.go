package images

import (
	"container/list"
	"strconv"
	"strings"
	"sync"
	"time"

	"millrace/images/header"
	"millrace/images/queue"
	"millrace/internal/lane"
	"millrace/internal/original"
	"millrace/internal/send"
	"millrace/store"
)

const (
	// maxRecords bounds the originals that are remembered, at about 2 KB each;
	// the store knows the others.
	maxRecords = 8192
	// maxVariants bounds the variants of one original that are remembered:
	// sizes × formats, as a page's srcset has them.
	maxVariants = 64
	// heldBytes is the largest variant whose bytes are held in memory: from
	// there on sendfile costs no more (bench/AA.md, embed-vs-disk).
	heldBytes = 64 << 10
	// maxHeld bounds all bytes that are held, maxOpen the descriptors of
	// larger variants: a quarter of the 1024 that many systems allow.
	maxHeld = 64 << 20
	maxOpen = 256
	// failedFor is how long a failure is remembered.
	failedFor = 10 * time.Minute
)

// state of a variant.
type state uint8

const (
	unknown state = iota // the store has not been asked
	missing              // it is to be made
	ready                // it is there
	smaller              // the original is smaller
	failed               // it could not be made; see until and why
	ordered              // it is being made
)

// record is what is known of one original.
type record struct {
	name  string
	place *list.Element // the table's

	// gen falls when the best answer for some request may have become another.
	gen lane.Generation

	mu       sync.Mutex
	file     original.File
	info     *header.Info // nil until somebody needed it
	refused  string       // why nothing is ever made of this file; empty: it may be
	variants map[string]*variant
}

// variant is one that somebody wanted.
type variant struct {
	state  state
	meta   meta
	answer *send.Answer // nil until it is sent
	until  time.Time    // when what failed is tried again
	why    string
	better bool // the better one was ordered, or is there
	ticket *queue.Ticket
}

// givenUp reports whether what was ordered will not come: the queue has given
// it up for something more urgent.
func (v *variant) givenUp() bool {
	if v.ticket == nil {
		return true
	}
	select {
	case <-v.ticket.Done():
		return v.ticket.Err() != nil
	default:
		return false
	}
}

// table holds records, the longest unused going first.
type table struct {
	mu      sync.Mutex
	records map[string]*record
	recent  list.List // of *record, the last used in front
	held    int64     // bytes in answers
	open    int       // descriptors in answers
	closed  bool
}

func newTable() *table {
	t := &table{records: map[string]*record{}}
	t.recent.Init()
	return t
}

// record returns the record of an original as it is now. What was made of an
// earlier content is returned as well: it is to be dropped.
func (t *table) record(f original.File) (rec *record, before *past) {
	t.mu.Lock()
	rec = t.records[f.Name]
	if rec == nil {
		rec = &record{name: strings.Clone(f.Name), variants: map[string]*variant{}}
		rec.file = f
		if !t.closed {
			rec.place = t.recent.PushFront(rec)
			t.records[rec.name] = rec
			t.evict()
		}
	} else {
		t.recent.MoveToFront(rec.place)
	}
	t.mu.Unlock()
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if !same(rec.file, f) {
		before = t.forget(rec)
	} else if f.Mark == (lane.Mark{}) {
		f.Mark = rec.file.Mark // found by name: the one that a request has brought goes on
	}
	rec.file = f
	return rec, before
}

// same reports whether two looks at an original found the same content.
func same(a, b original.File) bool {
	return a.Size == b.Size && a.Modified.Equal(b.Modified) && a.Version == b.Version
}

// past is what was known of an original that has changed or gone.
type past struct {
	file original.File
	ids  []string
}

// forget empties a record, whose lock is held.
func (t *table) forget(rec *record) *past {
	p := &past{file: rec.file}
	for id, v := range rec.variants {
		p.ids = append(p.ids, id)
		t.release(v)
	}
	rec.gen.Void()
	rec.variants, rec.info, rec.refused = map[string]*variant{}, nil, ""
	return p
}

// release lets go of a variant's bytes or descriptor; its record's lock is held.
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
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held += int64(n * len(a.Body))
	if a.File != nil {
		t.open += n
	}
}

// evict takes out records beyond the bound; t.mu is held. What they hold is
// released by a goroutine of its own, because their locks come before t.mu.
func (t *table) evict() {
	for t.recent.Len() > maxRecords {
		rec := t.recent.Back().Value.(*record)
		t.remove(rec)
		go t.empty(rec) // ends by itself, at once; Close need not wait: it only closes descriptors
	}
}

func (t *table) remove(rec *record) {
	t.recent.Remove(rec.place)
	delete(t.records, rec.name)
}

// empty releases all that a record holds.
func (t *table) empty(rec *record) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	t.forget(rec)
}

// trim lets go of answers, the longest unused first, until those that are held
// are within the bounds. The variants stay known.
func (t *table) trim() {
	t.mu.Lock()
	over := t.held > maxHeld || t.open > maxOpen
	t.mu.Unlock()
	if !over {
		return
	}
	all := t.all()
	for i := len(all) - 1; i > 0; i-- { // the last used one stays
		rec := all[i]
		rec.mu.Lock()
		for _, v := range rec.variants {
			t.release(v)
		}
		rec.gen.Void() // the lane's copies hold the same descriptors
		rec.mu.Unlock()
		t.mu.Lock()
		over = t.held > maxHeld || t.open > maxOpen
		t.mu.Unlock()
		if !over {
			return
		}
	}
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

// drop takes a record out and returns what it knew.
func (t *table) drop(rec *record) *past {
	t.mu.Lock()
	if t.records[rec.name] == rec {
		t.remove(rec)
	}
	t.mu.Unlock()
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return t.forget(rec)
}

// close lets go of everything.
func (t *table) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	for _, rec := range t.all() {
		t.drop(rec)
	}
}

// variant returns the record's variant, and makes it known if it is not; the
// record's lock is held.
func (t *table) variant(rec *record, id string) *variant {
	v := rec.variants[id]
	if v == nil {
		for old, o := range rec.variants { // any will do: the store knows it
			if len(rec.variants) < maxVariants {
				break
			}
			if o.state != ordered {
				t.release(o)
				delete(rec.variants, old)
			}
		}
		v = &variant{}
		rec.variants[id] = v
	}
	return v
}

// hold makes the answer of a variant out of what is stored, which it takes over.
func (t *table) hold(rec *record, v *variant, o *store.Object, vary []string) error {
	a := &send.Answer{
		Size: v.meta.Bytes, ETag: `"` + v.meta.Tag + `"`, LastModified: rec.file.Modified.UTC().Truncate(time.Second),
		Header: map[string][]string{
			"Content-Type":           {"image/" + v.meta.Format},
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
		a.Header["Last-Modified"] = []string{a.LastModified.Format(timeFormat)}
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
