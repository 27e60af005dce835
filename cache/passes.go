package cache

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// passTime is how long a key whose answer was not to be shared is
	// remembered, at least; at most twice that. Meanwhile nobody waits for
	// another's answer. One that can be shared after all ends it at once.
	passTime = 15 * time.Second
	// maxPasses bounds the keys remembered: some 10 MB with long URLs.
	maxPasses = 1 << 16
)

// passes remembers keys in two generations (hit-for-miss). The zero value is ready.
type passes struct {
	mu         sync.RWMutex
	young, old map[string]struct{}
	turned     time.Time

	serial atomic.Uint64 // of journeys that go alone
}

func (p *passes) has(key string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if len(p.young) == 0 && len(p.old) == 0 || time.Since(p.turned) >= 2*passTime {
		return false
	}
	if _, ok := p.young[key]; ok {
		return true
	}
	_, ok := p.old[key]
	return ok && time.Since(p.turned) < passTime
}

func (p *passes) add(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if age := time.Since(p.turned); p.young == nil || age >= passTime || len(p.young) >= maxPasses/2 {
		p.old = p.young
		if age >= 2*passTime {
			p.old = nil
		}
		p.young, p.turned = map[string]struct{}{}, time.Now()
	}
	p.young[key] = struct{}{}
}

func (p *passes) remove(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.young, key)
	delete(p.old, key)
}
