package lane

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"millrace/internal/observe/meter"
	"millrace/internal/wire/negotiate"
	"millrace/internal/wire/send"
)

const (
	// ways is how many slots a key has to choose from: eight pointers are one cache line.
	ways = 8
	// slotBytes is how much of the budget there is for each slot. Finished answers of
	// small files cost two to four KiB each, so there are more slots than answers.
	slotBytes = 1 << 10
	// minSlots avoids collisions with a tiny budget.
	minSlots = 1 << 10
	// maxSlots bounds the table itself to 8 MiB of pointers.
	maxSlots = 1 << 20
	// maxVariants is how many variants of one resource are kept: for instance five
	// codings, and a few values of another header.
	maxVariants = 16
	// maxShare: one answer may take 1/maxShare of the budget, so that all variants of
	// a resource together stay below a half.
	maxShare = 2 * maxVariants
)

// table has the finished answers. Readers take no lock: a slot is an atomic pointer to an
// immutable entry. The table is a set-associative cache that evicts by the clock
// algorithm. Its slots bound the number of entries, its budget their bytes.
type table struct {
	seed   maphash.Seed
	mask   uint64
	slots  []atomic.Pointer[entry]
	budget int64
	meters *meter.Meters

	preferences preferences

	full atomic.Bool     // an entry was evicted, and less than a quarter of the budget is free since
	seen []atomic.Uint32 // marks of keys that were offered once: see admits; as many as slots

	mu       sync.Mutex // for writers
	used     int64      // bytes
	count    int64
	clockPos uint64 // the slot at which evict looks next
}

// key names a resource by its site, which stands for the listener, the scheme and all
// that is configured for them, and by its path, or its raw target where the answer
// depends on the query.
type key struct {
	site      uint64
	target    string
	withQuery bool
}

// entry is a resource with its variants. It is replaced, never changed.
type entry struct {
	key
	demands
	hash     uint64
	variants []variant
	recent   *atomic.Bool // used since evict last looked; [Rule.Used], or shared by the entries that replace this one
}

// demands are what all variants of an entry want of a request.
type demands struct {
	varyOn []headerID // kept headers that each variant has values of
	absent []string   // fields that must not come, with their canonical names
	// strict: no field may come that no list has, and none twice. It is for handlers of
	// other programs, which do not say what they look at.
	strict bool
}

func (d *demands) equal(o *demands) bool {
	return slices.Equal(d.varyOn, o.varyOn) && slices.Equal(d.absent, o.absent) && d.strict == o.strict
}

// allow reports whether one of the variants may answer a request.
func (d *demands) allow(b []byte, q *request) bool {
	return len(d.absent) == 0 && !d.strict || d.allowRare(b, q)
}

// allowRare is allow where there are demands.
func (d *demands) allowRare(b []byte, q *request) bool {
	if d.strict && (q.unknown || q.repeated != 0) {
		return false
	}
	for _, name := range d.absent {
		if q.hasField(b, name) {
			return false
		}
	}
	return true
}

// variant is a response, and what a request must say to get it.
type variant struct {
	negotiated bool // the answer varies on what Accept-Encoding comes to: preference
	preference negotiate.Preference
	values     []string // of varyOn; "": the field must be absent (an empty value never matches)
	response   *response
}

func newTable(budget int64, meters *meter.Meters) *table {
	slots := uint64(minSlots)
	for int64(slots)*slotBytes < budget && slots < maxSlots {
		slots *= 2
	}
	return &table{
		seed:   maphash.MakeSeed(),
		mask:   slots - 1,
		slots:  make([]atomic.Pointer[entry], slots),
		seen:   make([]atomic.Uint32, slots),
		budget: budget,
		meters: meters,
	}
}

// find returns the answer to a matched request, nil if there is none that is valid. It
// takes no lock and allocates nothing.
func (t *table) find(site uint64, b []byte, q *request, second int64) *response {
	path := b[q.path.from:q.path.to]
	if r := t.lookup(site, path, false, b, q, second); r != nil {
		return r
	}
	target := path
	if q.hasQuery {
		target = b[q.path.from:q.query.to]
	}
	return t.lookup(site, target, true, b, q, second)
}

func (t *table) lookup(site uint64, target []byte, withQuery bool, b []byte, q *request, second int64) *response {
	h := t.hash(site, target, withQuery)
	bucket := h & t.mask &^ (ways - 1)
	for i := range uint64(ways) {
		e := t.slots[bucket+i].Load()
		if e == nil || e.hash != h || e.site != site || e.withQuery != withQuery || e.target != string(target) {
			continue
		}
		r := e.choose(b, q, &t.preferences)
		if r == nil || !r.valid(second) {
			return nil
		}
		if !e.recent.Load() {
			e.recent.Store(true)
		}
		return r
	}
	return nil
}

func (t *table) hash(site uint64, target []byte, withQuery bool) uint64 {
	h := maphash.Bytes(t.seed, target)
	if withQuery {
		h = ^h
	}
	return h ^ site*0x9e3779b97f4a7c15
}

// choose returns the response of the variant for a request, nil if there is none.
func (e *entry) choose(b []byte, q *request, known *preferences) *response {
	if !e.allow(b, q) {
		return nil
	}
	var preference negotiate.Preference
	asked := false
next:
	for i := range e.variants {
		v := &e.variants[i]
		if v.negotiated {
			if !asked {
				if q.repeats(hdrAcceptEncoding) {
					return nil
				}
				preference, asked = known.of(q.value(b, hdrAcceptEncoding)), true
			}
			if v.preference != preference {
				continue
			}
		}
		for j, id := range e.varyOn {
			if string(q.value(b, id)) != v.values[j] || q.repeats(id) {
				continue next
			}
		}
		return v.response
	}
	return nil
}

// put adds or replaces a variant. It reports false when the answer is too
// large to be kept.
func (t *table) put(k key, d demands, v variant) bool {
	if v.response.cost > t.budget/maxShare {
		return false
	}
	if f := v.response.answer.File; f != nil {
		if !f.Retain() { // closed while the offer was made
			return false
		}
		defer f.Release()
	}
	h := t.hash(k.site, []byte(k.target), k.withQuery)
	t.mu.Lock()
	defer t.mu.Unlock()
	slot, old := t.slotFor(h, k)
	e := &entry{key: k, demands: d, hash: h, recent: v.response.used}
	if old != nil && old.key == k && old.equal(&d) {
		e.variants = old.kept(&v)
		e.recent = cmp.Or(e.recent, old.recent)
	}
	if e.recent == nil {
		e.recent = new(atomic.Bool)
	}
	e.variants = append(e.variants, v)
	t.setSlot(slot, e)
	for t.used > t.budget {
		t.full.Store(true)
		t.evict(e)
	}
	return true
}

// admits reports whether an answer may be stored. While there is room every one may. In a
// full table, one with a query in its key must be offered twice: the first offer only
// leaves a mark. So a crawler that asks for each address once evicts nothing that is asked
// for again (TestScanLeavesTheHot). An offer that is not admitted costs about 1 µs instead
// of 10 (BenchmarkOffer): a million of them took half a second, against 13 s, most of it
// for the garbage collector. A mark ages by being overwritten with another key's.
func (t *table) admits(k key) bool {
	if !k.withQuery { // there are no more such keys than the job has paths
		return true
	}
	h := t.hash(k.site, []byte(k.target), true)
	bucket := h & t.mask &^ (ways - 1)
	room := false
	for i := range uint64(ways) {
		switch e := t.slots[bucket+i].Load(); {
		case e == nil:
			room = !t.full.Load()
		case e.key == k:
			return true
		}
	}
	mark := uint32(h>>32) | 1 // bits that do not choose the slot; never 0
	return room || t.seen[h&t.mask].Swap(mark) == mark
}

// has reports whether exactly this answer is stored already: a request that the lane does
// not match offers it again each time.
func (t *table) has(k key, d *demands, v variant, a *send.Answer, rule Rule) bool {
	offer := offeredAs(a, &rule)
	h := t.hash(k.site, []byte(k.target), k.withQuery)
	bucket := h & t.mask &^ (ways - 1)
	for i := range uint64(ways) {
		e := t.slots[bucket+i].Load()
		if e == nil || e.key != k || !e.equal(d) {
			continue
		}
		for j := range e.variants {
			o := &e.variants[j]
			if o.response.offered == offer && o.sameRequest(&v) {
				return true
			}
		}
	}
	return false
}

// kept returns the variants to keep beside v: not the one that v replaces, none that are
// invalid, and at most maxVariants-1. If another variant has the same response, v gets
// that one.
func (e *entry) kept(v *variant) []variant {
	kept := make([]variant, 0, len(e.variants)+1)
	for _, o := range e.variants {
		if !o.response.current() || o.sameRequest(v) {
			continue
		}
		if o.response.same(v.response) {
			v.response = o.response
		}
		kept = append(kept, o)
	}
	if len(kept) >= maxVariants {
		kept = kept[1:] // the oldest
	}
	return kept
}

func (v *variant) sameRequest(o *variant) bool {
	if v.negotiated != o.negotiated || v.preference != o.preference || len(v.values) != len(o.values) {
		return false
	}
	for i := range v.values {
		if v.values[i] != o.values[i] {
			return false
		}
	}
	return true
}

// slotFor returns the slot for a key: its own, with the entry in it, an empty one, or that
// of an entry to evict from the bucket.
func (t *table) slotFor(h uint64, k key) (slot uint64, old *entry) {
	bucket := h & t.mask &^ (ways - 1)
	free := ^uint64(0)
	for i := range uint64(ways) {
		switch e := t.slots[bucket+i].Load(); {
		case e == nil:
			free = min(free, bucket+i)
		case e.key == k:
			return bucket + i, e
		}
	}
	if free != ^uint64(0) {
		return free, nil
	}
	victim := bucket + uint64(t.count)%ways
	for i := range uint64(ways) {
		if e := t.slots[bucket+i].Load(); !e.recent.Swap(false) {
			victim = bucket + i
			break
		}
	}
	t.meters.LaneEvicted.Add(0, 1)
	return victim, nil
}

// setSlot puts e, or nil, into a slot, and updates the counts of bytes and entries and
// the references to open files.
func (t *table) setSlot(slot uint64, e *entry) {
	if e != nil {
		e.each(func(r *response) {
			t.used += r.cost
			if r.answer.File != nil {
				r.answer.File.Retain()
			}
		})
		t.count++
	}
	if old := t.slots[slot].Swap(e); old != nil {
		t.count--
		old.each(func(r *response) {
			t.used -= r.cost
			if r.answer.File != nil {
				r.answer.File.Release()
			}
		})
	}
	if t.used < t.budget/4*3 {
		t.full.Store(false)
	}
	t.meters.LaneBytes.Set(t.used)
	t.meters.LaneEntries.Set(t.count)
}

// each calls visit once for every response, also for one that several variants share.
func (e *entry) each(visit func(*response)) {
next:
	for i, v := range e.variants {
		for _, earlier := range e.variants[:i] {
			if earlier.response == v.response {
				continue next
			}
		}
		visit(v.response)
	}
}

// evict removes the next entry that was not used since evict last looked at it, but never
// keep, which was just stored. After two rounds it removes any: under load every entry may
// be used again within a round.
func (t *table) evict(keep *entry) {
	for steps := 0; ; steps++ {
		slot := t.clockPos & t.mask
		t.clockPos++
		e := t.slots[slot].Load()
		if e == nil || e == keep || (e.recent.Swap(false) && steps < 2*len(t.slots)) {
			continue
		}
		t.setSlot(slot, nil)
		t.meters.LaneEvicted.Add(0, 1)
		return
	}
}

// sweep removes what can never be used again: invalid and expired answers, those of sites
// that are gone, and stamped copies of an earlier second.
func (t *table) sweep(second int64, gone func(site uint64) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for slot := range t.slots {
		e := t.slots[slot].Load()
		if e == nil {
			continue
		}
		live := false
		if !gone(e.site) {
			for _, v := range e.variants {
				live = live || v.response.valid(second)
				v.response.forgetStamps(second)
			}
		}
		if !live {
			t.setSlot(uint64(slot), nil)
			t.meters.LaneVoided.Add(0, 1)
		}
	}
}

// close removes everything.
func (t *table) close() { t.sweep(0, func(uint64) bool { return true }) }
