package cache

import (
	"fmt"
	"hash/maphash"
	"math"

	"github.com/maypok86/otter/v2"

	"millrace/internal/lane"
)

const (
	// keyOverhead is what a key costs beside its text: its node in the table
	// and the resource it leads to.
	keyOverhead = 180
	// spareShare is the part of the budget that is left free: when answers of all
	// sizes come and go, the pages they leave are never quite full again. With a
	// million URLs of 1 KB through 256 MiB the process had 1.33 times the budget
	// without it, of which 15 % are the collector's allowance.
	spareShare = 16
	// minMemory is the least budget: below it not even hit-for-miss works.
	minMemory = 1 << 20
)

// memory is the tier in memory: bounded in bytes, evicting what is asked for
// least (W-TinyLFU).
type memory struct {
	cache *otter.Cache[string, *resource]
	seed  maphash.Seed
	// gens fall when anything changes under one of their keys, and with them
	// what the fast lane has. They are fewer than the keys, and not part of the
	// objects: an answer that is hot in the lane looks unused here, may be
	// evicted, and must still fall when a newer one comes.
	gens [stripes]lane.Generation
}

// stripes is how many keys share a fate in the fast lane: a change under one
// of a million keys sends 60 others through the slow lane once. 128 KiB.
const stripes = 1 << 14

func newMemory(budget int64, evicted func()) (*memory, error) {
	c, err := otter.New(&otter.Options[string, *resource]{
		MaximumWeight: uint64(max(budget-budget/spareShare, minMemory)),
		Weigher:       weigh,
		OnAtomicDeletion: func(e otter.DeletionEvent[string, *resource]) {
			if e.WasEvicted() {
				evicted()
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("making the cache in memory: %w", err)
	}
	return &memory{cache: c, seed: maphash.MakeSeed()}, nil
}

// gen is what falls when something changes under a key.
func (m *memory) gen(key string) *lane.Generation {
	return &m.gens[maphash.String(m.seed, key)%stripes]
}

func weigh(key string, s *resource) uint32 {
	n := int64(len(key)) + keyOverhead
	for _, o := range s.objects {
		n += o.cost()
	}
	return uint32(min(n, math.MaxUint32))
}

func (m *memory) get(key string) *resource {
	s, _ := m.cache.GetIfPresent(key)
	return s
}

// look is get without counting as a use.
func (m *memory) look(key string) *resource {
	if e, ok := m.cache.GetEntryQuietly(key); ok {
		return e.Value
	}
	return nil
}

// put stores an answer, unless one that was asked for later is there already.
func (m *memory) put(key string, o *object) (stored bool) {
	m.cache.Compute(key, func(old *resource, found bool) (*resource, otter.ComputeOp) {
		stored = true
		if found {
			for _, x := range old.objects {
				if x != o && x.sameVariant(o) && x.facts.Received.After(o.facts.Received) {
					stored = false
					return old, otter.CancelOp
				}
			}
		}
		return old.with(o), otter.WriteOp
	})
	if stored {
		m.gen(key).Void()
	}
	return stored
}

// swap puts next in old's place, if that is still there.
func (m *memory) swap(key string, old, next *object) bool {
	done := false
	m.cache.ComputeIfPresent(key, func(s *resource) (*resource, otter.ComputeOp) {
		for i, x := range s.objects {
			if x == old {
				done = true
				fresh := &resource{objects: append([]*object(nil), s.objects...)}
				fresh.objects[i] = next
				return fresh, otter.WriteOp
			}
		}
		return s, otter.CancelOp
	})
	if done {
		m.gen(key).Void()
	}
	return done
}

// drop forgets one answer.
func (m *memory) drop(key string, o *object) {
	m.cache.ComputeIfPresent(key, func(s *resource) (*resource, otter.ComputeOp) {
		if rest := s.without(o); rest != nil {
			return rest, otter.WriteOp
		}
		return nil, otter.InvalidateOp
	})
	m.gen(key).Void()
}

// forget drops all answers under a key.
func (m *memory) forget(key string) bool {
	_, found := m.cache.Invalidate(key)
	m.gen(key).Void()
	return found
}

func (m *memory) bytes() int64   { return int64(m.cache.WeightedSize()) }
func (m *memory) entries() int64 { return int64(m.cache.EstimatedSize()) }

// close gives the memory back. There is no goroutine to end without expiry.
func (m *memory) close() {
	m.cache.InvalidateAll()
	for i := range m.gens {
		m.gens[i].Void()
	}
}
