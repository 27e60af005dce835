package disk

import (
	"encoding/binary"
	"sync"

	"millrace/store"
)

// An Admission remembers what was offered to a store, or to a cache, lately: about 65,536
// keys, in 512 KiB. Each key belongs to one of many small rows, in which the
// newest pushes out the oldest. Two keys are taken for one once in some
// 2^60 times, and then one of them is stored a little early.
type Admission struct {
	mu   sync.Mutex
	rows [1 << 14][4]uint64
}

// Again reports whether a key was offered before, and remembers it.
func (a *Admission) Again(key string) bool { return a.again(idOf(key)) }

// again reports whether a key was offered before, and remembers it.
func (a *Admission) again(i id) bool {
	row := &a.rows[binary.LittleEndian.Uint64(i[:])%uint64(len(a.rows))]
	rest := binary.LittleEndian.Uint64(i[8:])
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range row {
		if p == rest {
			return true
		}
	}
	copy(row[1:], row[:])
	row[0] = rest
	return false
}

// wanted applies the options to an object that is about to be written; size is
// -1 if it is not known.
func (d *Store) wanted(i id, size int64) error {
	if err := d.takes(size); size >= 0 && err != nil {
		return err
	}
	o := &d.options
	if !o.Second || o.SecondBelow > 0 && size >= int64(o.SecondBelow) {
		return nil
	}
	d.mu.Lock()
	stored := d.table.blocks(i) > 0
	d.mu.Unlock()
	if !stored && !d.first.again(i) {
		return store.ErrNotYet
	}
	return nil
}
