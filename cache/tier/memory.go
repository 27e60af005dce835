package tier

import (
	"fmt"
	"hash/maphash"
	"math"
	"slices"

	"github.com/maypok86/otter/v2"

	"millrace/cache/object"
	"millrace/internal/lane"
)

const (
	// keyOverhead is what a key costs beside its text: its node in the table
	// and the Variants it leads to.
	keyOverhead = 180
	// freeShare is the part of the budget that is left free: when answers of all
	// sizes come and go, the pages they leave are never quite full again. With a
	// million URLs of 1 KB through 256 MiB the process had 1.33 times the budget
	// without it, of which 15 % are the collector's allowance.
	freeShare = 16
	// MinMemory is the least budget: below it not even hit-for-miss works.
	MinMemory = 1 << 20
)

// Memory is the tier in memory: bounded in bytes, evicting what is asked for
// least (W-TinyLFU).
type Memory struct {
	cache *otter.Cache[string, *object.Variants]
	seed  maphash.Seed
	// generations invalidate what the fast lane has when anything changes under
	// one of their keys. They are fewer than the keys, and not part of the
	// objects: an answer that is hot in the lane looks unused here, may be
	// evicted, and must still be invalidated when a newer one comes.
	generations [stripes]lane.Generation
}

// stripes is how many generations there are: with a million keys, a change under
// one sends 60 others past the fast lane once. 128 KiB.
const stripes = 1 << 14

// NewMemory makes a tier with a budget in bytes; evicted is called for each key that
// goes to make room.
func NewMemory(budget int64, evicted func()) (*Memory, error) {
	c, err := otter.New(&otter.Options[string, *object.Variants]{
		MaximumWeight: uint64(max(budget-budget/freeShare, MinMemory)),
		Weigher:       weigh,
		OnAtomicDeletion: func(e otter.DeletionEvent[string, *object.Variants]) {
			if e.WasEvicted() {
				evicted()
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("making the cache in memory: %w", err)
	}
	return &Memory{cache: c, seed: maphash.MakeSeed()}, nil
}

// Generation is the one that is invalidated when something changes under a key.
func (m *Memory) Generation(key string) *lane.Generation {
	return &m.generations[maphash.String(m.seed, key)%stripes]
}

func weigh(key string, s *object.Variants) uint32 {
	n := int64(len(key)) + keyOverhead
	for _, o := range s.Objects {
		n += o.Cost()
	}
	return uint32(min(n, math.MaxUint32))
}

// Get returns what is stored under a key, nil for nothing.
func (m *Memory) Get(key string) *object.Variants {
	s, _ := m.cache.GetIfPresent(key)
	return s
}

// Look is get without counting as a use.
func (m *Memory) Look(key string) *object.Variants {
	if e, ok := m.cache.GetEntryQuietly(key); ok {
		return e.Value
	}
	return nil
}

// Put stores an answer, unless one that was asked for later is there already.
func (m *Memory) Put(key string, o *object.Object) (stored bool) {
	m.cache.Compute(key, func(old *object.Variants, found bool) (*object.Variants, otter.ComputeOp) {
		stored = true
		if found {
			for _, x := range old.Objects {
				if x != o && x.SameVariant(o) && x.Facts.Received.After(o.Facts.Received) {
					stored = false
					return old, otter.CancelOp
				}
			}
		}
		return old.With(o), otter.WriteOp
	})
	if stored {
		m.Generation(key).Invalidate()
	}
	return stored
}

// Swap puts next in old's place, if that is still there.
func (m *Memory) Swap(key string, old, next *object.Object) bool {
	done := false
	m.cache.ComputeIfPresent(key, func(s *object.Variants) (*object.Variants, otter.ComputeOp) {
		for i, x := range s.Objects {
			if x == old {
				done = true
				fresh := &object.Variants{Objects: slices.Clone(s.Objects)}
				fresh.Objects[i] = next
				return fresh, otter.WriteOp
			}
		}
		return s, otter.CancelOp
	})
	if done {
		m.Generation(key).Invalidate()
	}
	return done
}

// Drop forgets one answer.
func (m *Memory) Drop(key string, o *object.Object) {
	m.cache.ComputeIfPresent(key, func(s *object.Variants) (*object.Variants, otter.ComputeOp) {
		if rest := s.Without(o); rest != nil {
			return rest, otter.WriteOp
		}
		return nil, otter.InvalidateOp
	})
	m.Generation(key).Invalidate()
}

// Forget drops all answers under a key.
func (m *Memory) Forget(key string) bool {
	_, found := m.cache.Invalidate(key)
	m.Generation(key).Invalidate()
	return found
}

// Bytes is what is taken of the budget.
func (m *Memory) Bytes() int64 { return int64(m.cache.WeightedSize()) }

// Entries is the number of keys.
func (m *Memory) Entries() int64 { return int64(m.cache.EstimatedSize()) }

// Close gives the memory back. There is no goroutine to end without expiry.
func (m *Memory) Close() {
	m.cache.InvalidateAll()
	for i := range m.generations {
		m.generations[i].Invalidate()
	}
}
