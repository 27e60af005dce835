package fetch

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// passTime is how long a key whose answer was not to be shared is
	// remembered, at least; at most twice that. Meanwhile nobody waits for
	// another's answer. One that can be shared after all ends it at once.
	passTime = 15 * time.Second
	// maxPasses bounds the keys remembered: 2 MB, however long they are.
	maxPasses = 1 << 16
)

// passes remembers keys in two generations (hit-for-miss), by their hash. If two
// keys have the same hash, one of them is fetched once more than it had to be.
// The zero value is ready.
type passes struct {
	mu         sync.RWMutex
	seed       maphash.Seed // of the maps, when there is one
	young, old map[uint64]struct{}
	turned     time.Time

	serial atomic.Uint64 // of fetches that go alone
}

func (p *passes) has(key string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if len(p.young) == 0 && len(p.old) == 0 || time.Since(p.turned) >= 2*passTime {
		return false
	}
	sum := maphash.String(p.seed, key)
	if _, ok := p.young[sum]; ok {
		return true
	}
	_, ok := p.old[sum]
	return ok && time.Since(p.turned) < passTime
}

func (p *passes) add(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if age := time.Since(p.turned); p.young == nil || age >= passTime || len(p.young) >= maxPasses/2 {
		if p.young == nil {
			p.seed = maphash.MakeSeed()
		}
		p.old = p.young
		if age >= 2*passTime {
			p.old = nil
		}
		p.young, p.turned = map[uint64]struct{}{}, time.Now()
	}
	p.young[maphash.String(p.seed, key)] = struct{}{}
}

func (p *passes) remove(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.young == nil {
		return
	}
	sum := maphash.String(p.seed, key)
	delete(p.young, sum)
	delete(p.old, sum)
}
