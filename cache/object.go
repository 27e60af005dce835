package cache

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"millrace/cache/purge"
	"millrace/cache/rfc9111"
	"millrace/internal/negotiate"
)

const (
	// objectOverhead is what an object costs beside its texts and body: the
	// struct, its place in the tier, and the rounding of its allocations.
	// Held against the heap by TestMemoryOfManyObjects.
	objectOverhead = 400
	// fieldOverhead is what one header field costs beside its text.
	fieldOverhead = 48
	// maxVariants is how many stored answers one key may have: codings times
	// a few languages. Beyond it the oldest go.
	maxVariants = 32
)

// An object is one stored answer. All but what is atomic never changes; a 304
// leads to a new object that shares the body.
type object struct {
	status int
	fields []field // of the header, in canonical form
	body   []byte
	size   int64
	disk   string // key of the body in the disk tier, when it is not held here
	stamp  int64  // when the answer came that the body is of, in nanoseconds: by that it is known on disk

	facts rfc9111.Facts
	vary  []string // names of the request fields that it was chosen by, sorted
	by    []string // their values in the request, normalised
	owner purge.Object
	rule  string // what decided over its lifetime, for explain

	checked atomic.Uint64 // purge.Time up to which it is known to be valid
	kept    atomic.Bool   // in the slower tiers, or on its way there
	packing atomic.Bool   // somebody has asked for its encodings
	packed  atomic.Pointer[encodings]
}

// field is one header field with all of its lines.
type field struct {
	name   string
	values []string
}

// encodings are the object's body in other codings, nil where it does not pay.
type encodings struct {
	bodies    [negotiate.Codings][]byte
	available negotiate.Set
}

// fieldsOf makes a header compact, in order of names. One string holds all the
// text, so that an object is a few allocations whatever the origin sends.
func fieldsOf(h http.Header) []field {
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
	fields := make([]field, len(names))
	values := make([]string, 0, lines)
	for i, name := range names {
		fields[i].name = cut(len(name))
		from := len(values)
		for _, v := range h[name] {
			values = append(values, cut(len(v)))
		}
		fields[i].values = values[from:len(values):len(values)]
	}
	return fields
}

// header is the stored header as a map of its own, whose values are shared.
func (o *object) header() http.Header {
	h := make(http.Header, len(o.fields)+4)
	for _, f := range o.fields {
		h[f.name] = f.values
	}
	return h
}

// all are the lines of a field.
func (o *object) all(name string) []string {
	for _, f := range o.fields {
		if f.name == name {
			return f.values
		}
	}
	return nil
}

// get is the first line of a field.
func (o *object) get(name string) string { return first(o.all(name)) }

// cost is what the object takes of the memory budget.
func (o *object) cost() int64 {
	n := objectOverhead + int64(len(o.body)) + int64(len(o.owner.URL)+len(o.owner.Host)+len(o.disk))
	for _, f := range o.fields {
		n += fieldOverhead + int64(len(f.name))
		for _, v := range f.values {
			n += 16 + int64(len(v))
		}
	}
	for _, texts := range [][]string{o.vary, o.by, o.owner.Tags} {
		for _, s := range texts {
			n += 16 + int64(len(s))
		}
	}
	if p := o.packed.Load(); p != nil {
		for _, b := range p.bodies {
			n += int64(len(b))
		}
	}
	return n
}

// selects reports whether a request would have led to this answer (RFC 9111, 4.1).
func (o *object) selects(r *http.Request, languages []string) bool {
	for i, name := range o.vary {
		if rfc9111.Normal(name, r.Header, languages) == o.by[i] {
			continue
		}
		if name != "Accept-Language" || len(languages) > 0 || !rfc9111.Speaks(r.Header, http.Header{"Content-Language": o.all("Content-Language")}) {
			return false
		}
	}
	return true
}

// sameVariant reports whether n replaces o: they were chosen by the same.
func (o *object) sameVariant(n *object) bool {
	return slices.Equal(o.vary, n.vary) && slices.Equal(o.by, n.by)
}

// resource is all that is stored under one key, the latest first. It never
// changes: a new answer leads to a new resource.
type resource struct{ objects []*object }

// with returns the resource with o in front, and without what o replaces and
// what there is no place for any more.
func (s *resource) with(o *object) *resource {
	next := &resource{objects: make([]*object, 1, 4)}
	next.objects[0] = o
	if s == nil {
		return next
	}
	for _, old := range s.objects {
		if old == o {
			continue
		}
		if old.sameVariant(o) || len(next.objects) >= maxVariants {
			continue
		}
		next.objects = append(next.objects, old)
	}
	return next
}

// without returns the resource without an object, nil when nothing is left.
func (s *resource) without(o *object) *resource {
	if s == nil {
		return nil
	}
	rest := slices.DeleteFunc(slices.Clone(s.objects), func(x *object) bool { return x == o })
	if len(rest) == 0 {
		return nil
	}
	return &resource{rest}
}

// find returns the latest object that the request selects (RFC 9111, 4.1).
func (s *resource) find(r *http.Request, languages []string) *object {
	if s == nil {
		return nil
	}
	for _, o := range s.objects {
		if o.selects(r, languages) {
			return o
		}
	}
	return nil
}

// stale reports whether the object's lifetime is over.
func (o *object) stale(now time.Time) bool { return o.facts.TTL(now) <= 0 }
