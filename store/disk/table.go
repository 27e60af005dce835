package disk

import "encoding/binary"

// flags are the bits beside an object's size in the table.
type flags uint32

const (
	used     flags = 1 << 31 // asked for since the hand of the clock came by
	verified flags = 1 << 30 // its body agrees with its checksum
	seen     flags = 1 << 29 // its file was met while walking
	allFlags       = used | verified | seen

	// maxBlocks is the largest object that an entry can tell of: 2 TiB.
	maxBlocks = 1<<29 - 1
	// maxScan bounds how many entries the hand of the clock passes for one
	// eviction, while everyone waits: a few hundred microseconds.
	maxScan = 1 << 16
)

// A table knows what is in a store, for its quota and the order of eviction,
// in about 30 bytes for each object: entries in one slice, found by a hash
// table of positions with linear probing. Its zero value is empty.
//
// Eviction is by CLOCK (F. J. Corbató, A Paging Experiment with the Multics
// System, 1968): a hand goes round the entries, skips those that were used
// since its last visit, and takes the others. It is close to the order of last
// use, and a use costs one bit.
type table struct {
	entries []entry
	free    []uint32 // positions of entries without an object
	slots   []uint32 // position + 1, or 0; as many as a power of two
	hand    int
}

// entry is one object; word is its size in blocks and its flags, 0 for none.
type entry struct {
	id   id
	word uint32
}

func (e *entry) blocks() int64 { return int64(e.word &^ uint32(allFlags)) }

func (t *table) len() int { return len(t.entries) - len(t.free) }

// firstSlot is the slot where the search for i begins. The id is a cryptographic
// hash already.
func (t *table) firstSlot(i id) uint64 {
	return binary.LittleEndian.Uint64(i[:]) & uint64(len(t.slots)-1)
}

// find returns the slot of i, or the empty one where it would be.
func (t *table) find(i id) (slot uint64, e *entry) {
	if len(t.slots) == 0 {
		return 0, nil
	}
	for slot = t.firstSlot(i); t.slots[slot] != 0; slot = (slot + 1) & uint64(len(t.slots)-1) {
		if e := &t.entries[t.slots[slot]-1]; e.id == i {
			return slot, e
		}
	}
	return slot, nil
}

// blocks is the size of an object, 0 if it is not there.
func (t *table) blocks(i id) int64 {
	if _, e := t.find(i); e != nil {
		return e.blocks()
	}
	return 0
}

func (t *table) flag(i id, f flags) {
	if _, e := t.find(i); e != nil {
		e.word |= uint32(f)
	}
}

func (t *table) flagged(i id, f flags) bool {
	_, e := t.find(i)
	return e != nil && e.word&uint32(f) != 0
}

// put adds or replaces an object, and returns the size it had before. blocks
// is from 1 to maxBlocks. A new object has no flags; one that replaces another
// keeps its place in the order, and so counts as used.
func (t *table) put(i id, blocks int64) (before int64) {
	if _, e := t.find(i); e != nil {
		before = e.blocks()
		e.word = uint32(blocks) | uint32(used)
		return before
	}
	if 4*(t.len()+1) > 3*len(t.slots) { // three quarters full: searches get long
		t.grow()
	}
	slot, _ := t.find(i)
	e := entry{id: i, word: uint32(blocks)}
	if n := len(t.free); n > 0 {
		// The position freed last: mostly the one the hand has just passed, which
		// is the end of the queue.
		at := t.free[n-1]
		t.free = t.free[:n-1]
		t.entries[at] = e
		t.slots[slot] = at + 1
		return 0
	}
	t.entries = append(t.entries, e)
	t.slots[slot] = uint32(len(t.entries))
	return 0
}

func (t *table) grow() {
	t.slots = make([]uint32, max(64, 2*len(t.slots)))
	for at := range t.entries {
		if e := &t.entries[at]; e.word != 0 {
			slot, _ := t.find(e.id)
			t.slots[slot] = uint32(at + 1)
		}
	}
}

// remove takes an object out and returns its size, 0 if it is not there.
func (t *table) remove(i id) int64 {
	slot, e := t.find(i)
	if e == nil {
		return 0
	}
	blocks := e.blocks()
	e.word = 0
	e.id = id{}
	t.free = append(t.free, t.slots[slot]-1)
	// Close the gap: move up what was pushed past it.
	mask := uint64(len(t.slots) - 1)
	for next := (slot + 1) & mask; t.slots[next] != 0; next = (next + 1) & mask {
		first := t.firstSlot(t.entries[t.slots[next]-1].id)
		if (next-first)&mask >= (next-slot)&mask {
			t.slots[slot] = t.slots[next]
			slot = next
		}
	}
	t.slots[slot] = 0
	return blocks
}

// victim is the object to evict next; the hand has passed it then.
func (t *table) victim() (i id, ok bool) {
	if t.len() == 0 {
		return i, false
	}
	for scanned := 0; ; scanned++ {
		e := &t.entries[t.hand%len(t.entries)]
		t.hand = (t.hand + 1) % len(t.entries)
		switch {
		case e.word == 0:
		case e.word&uint32(used) != 0 && scanned < maxScan:
			e.word &^= uint32(used)
		default:
			return e.id, true
		}
	}
}

// inOrder calls yield for every object, the next to be evicted first.
func (t *table) inOrder(yield func(e *entry) bool) {
	for n := range t.entries {
		e := &t.entries[(t.hand+n)%len(t.entries)]
		if e.word != 0 && !yield(e) {
			return
		}
	}
}

func (t *table) ids() []id {
	ids := make([]id, 0, t.len())
	for e := range t.inOrder {
		ids = append(ids, e.id)
	}
	return ids
}
