// Package object is what a cache stores: an answer with what decides over its
// reuse, the variants of one key, and the record of an answer on disk.
package object

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"millrace/cache/purge"
	"millrace/cache/rfc9111"
	"millrace/internal/wire/dictionary"
	"millrace/internal/wire/field"
	"millrace/internal/wire/negotiate"
)

const (
	// objectOverhead is what an object costs beside its texts and Body: the
	// struct, its place in the tier, and the rounding of its allocations.
	// Held against the heap by TestMemoryOfManyObjects.
	objectOverhead = 400
	// fieldOverhead is what one header field costs beside its text.
	fieldOverhead = 48
	// maxVariants is how many stored answers one key may have: codings times
	// a few languages. Beyond it the oldest go.
	maxVariants = 32
)

// An Object is one stored answer. All but what is atomic never changes; a 304
// leads to a new object that shares the body.
type Object struct {
	Status int
	Fields []Field // of the header, in canonical form
	Body   []byte
	Size   int64
	Disk   string // key of the body in the disk tier, when it is not held here
	Stamp  int64  // when the answer came that the body is of, in nanoseconds: by that it is known on disk

	Facts rfc9111.Facts
	Vary  []string // names of the request fields that it was chosen by, sorted
	By    []string // their values in the request, normalised
	Owner purge.Object
	Rule  string // what decided over its lifetime, for explain

	Kept    atomic.Bool // in the slower tiers, or on its way there
	Packing atomic.Bool // somebody has asked for its encodings
	Packed  atomic.Pointer[Encodings]
	Listed  atomic.Bool // among the dictionaries, or on its way there

	usage   atomic.Pointer[Usage]
	checked atomic.Uint64 // purge.Time up to which it is known to be valid
}

// Usage says whether an object is used. It outlives the object, and is small.
type Usage struct {
	Used   atomic.Bool // since somebody looked
	Listed atomic.Bool // among those that somebody looks at
}

// Usage is the object's.
func (o *Object) Usage() *Usage {
	if u := o.usage.Load(); u != nil {
		return u
	}
	o.usage.CompareAndSwap(nil, new(Usage))
	return o.usage.Load()
}

// Field is one header field with all of its lines.
type Field struct {
	Name   string
	Values []string
}

// Encodings are the object's body in other codings, nil where it does not pay.
type Encodings struct {
	Bodies    [negotiate.Codings][]byte
	Available negotiate.Set
	Deltas    []Delta
}

// Delta is the object's body, compressed with an answer that clients have.
type Delta struct {
	Hash   dictionary.Hash // of that answer's body
	Bodies [dictionary.Codings][]byte
}

// deltaOverhead is what a delta costs beside its bodies.
const deltaOverhead = 80

// FieldsOf makes a header compact, in order of names. One string holds all the
// text, so that an object is a few allocations whatever the origin sends.
func FieldsOf(h http.Header) []Field {
	names := make([]string, 0, len(h))
	length, lines := 0, 0
	for name, values := range h {
		names = append(names, name)
		length += len(name)
		for _, v := range values {
			length += len(v)
			lines++
		}
	}
	slices.Sort(names)
	var b strings.Builder
	b.Grow(length)
	for _, name := range names {
		b.WriteString(name)
		for _, v := range h[name] {
			b.WriteString(v)
		}
	}
	text := b.String()
	cut := func(n int) (s string) { s, text = text[:n], text[n:]; return s }
	fields := make([]Field, len(names))
	values := make([]string, 0, lines)
	for i, name := range names {
		fields[i].Name = cut(len(name))
		from := len(values)
		for _, v := range h[name] {
			values = append(values, cut(len(v)))
		}
		fields[i].Values = values[from:len(values):len(values)]
	}
	return fields
}

// Header is the stored header as a map of its own, whose values are shared.
func (o *Object) Header() http.Header {
	h := make(http.Header, len(o.Fields)+4)
	for _, f := range o.Fields {
		h[f.Name] = f.Values
	}
	return h
}

// All are the lines of a field.
func (o *Object) All(name string) []string {
	for _, f := range o.Fields {
		if f.Name == name {
			return f.Values
		}
	}
	return nil
}

// Get is the first line of a field.
func (o *Object) Get(name string) string { return First(o.All(name)) }

// Cost is what the object takes of the memory budget.
func (o *Object) Cost() int64 {
	n := objectOverhead + int64(len(o.Body)) + int64(len(o.Owner.URL)+len(o.Owner.Host)+len(o.Disk))
	for _, f := range o.Fields {
		n += fieldOverhead + int64(len(f.Name))
		for _, v := range f.Values {
			n += 16 + int64(len(v))
		}
	}
	for _, texts := range [][]string{o.Vary, o.By, o.Owner.Tags} {
		for _, s := range texts {
			n += 16 + int64(len(s))
		}
	}
	if p := o.Packed.Load(); p != nil {
		for _, b := range p.Bodies {
			n += int64(len(b))
		}
		for i := range p.Deltas {
			n += deltaOverhead
			for _, b := range p.Deltas[i].Bodies {
				n += int64(len(b))
			}
		}
	}
	return n
}

// Selects reports whether a request would have led to this answer (RFC 9111, 4.1).
func (o *Object) Selects(request field.Lines, languages []string) bool {
	for i, name := range o.Vary {
		if rfc9111.Normal(name, request, languages) == o.By[i] {
			continue
		}
		if name != "Accept-Language" || len(languages) > 0 || !rfc9111.Speaks(request, o.All("Content-Language")) {
			return false
		}
	}
	return true
}

// Use decides over the object for one request: see [rfc9111.Facts.Use]. state is what became
// of it.
func (o *Object) Use(d rfc9111.Demand, now time.Time, state purge.State) rfc9111.Use {
	if state == purge.Unsure {
		d = d.Validated()
	}
	return o.Facts.Use(d, now, state == purge.Stale)
}

// SameVariant reports whether n replaces o: they were chosen by the same.
func (o *Object) SameVariant(n *Object) bool {
	return slices.Equal(o.Vary, n.Vary) && slices.Equal(o.By, n.By)
}

// Variants are all answers that are stored under one key, the latest first. They
// never change: a new answer leads to new Variants.
type Variants struct{ Objects []*Object }

// With returns the variants with o in front, and without what o replaces and
// what there is no place for any more.
func (s *Variants) With(o *Object) *Variants {
	next := &Variants{Objects: make([]*Object, 1, 4)}
	next.Objects[0] = o
	if s == nil {
		return next
	}
	for _, old := range s.Objects {
		if old == o {
			continue
		}
		if old.SameVariant(o) || len(next.Objects) >= maxVariants {
			continue
		}
		next.Objects = append(next.Objects, old)
	}
	return next
}

// Without returns the variants without an object, nil when nothing is left.
func (s *Variants) Without(o *Object) *Variants {
	if s == nil {
		return nil
	}
	rest := slices.DeleteFunc(slices.Clone(s.Objects), func(x *Object) bool { return x == o })
	if len(rest) == 0 {
		return nil
	}
	return &Variants{rest}
}

// Find returns the latest object that the request selects (RFC 9111, 4.1).
func (s *Variants) Find(request field.Lines, languages []string) *Object {
	if s == nil {
		return nil
	}
	for _, o := range s.Objects {
		if o.Selects(request, languages) {
			return o
		}
	}
	return nil
}

// Clone is the object with another header and facts and the same body. Its
// atomic parts begin anew.
func (o *Object) Clone() *Object {
	n := &Object{
		Status: o.Status, Fields: o.Fields, Body: o.Body, Size: o.Size, Disk: o.Disk,
		Facts: o.Facts, Vary: o.Vary, By: o.By, Owner: o.Owner, Rule: o.Rule, Stamp: o.Stamp,
	}
	n.Packed.Store(o.Packed.Load())
	n.Packing.Store(o.Packing.Load())
	n.Listed.Store(o.Listed.Load())
	return n
}

// Stale reports whether the object's lifetime is over.
func (o *Object) Stale(now time.Time) bool { return o.Facts.TTL(now) <= 0 }

// State says what purges have made of the object.
func (o *Object) State(index *purge.Index) purge.State {
	before := purge.Time(o.checked.Load())
	checked := before
	state := index.State(&o.Owner, &checked)
	if checked != before {
		o.checked.Store(uint64(checked))
	}
	return state
}

// Living lists what is stored under a key and not purged for good. first, if it is not
// nil, comes first.
func (s *Variants) Living(index *purge.Index, first *Object) []*Object {
	var list []*Object
	if first != nil {
		list = append(list, first)
	}
	if s != nil {
		for _, o := range s.Objects {
			if o != first && o.State(index) != purge.Gone {
				list = append(list, o)
			}
		}
	}
	return list
}

// First is the first line of a field, "" for none.
func First(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return lines[0]
}
