package meter

import (
	"sync"
	"sync/atomic"
	"time"
)

// Presence counts clients that are connected, and runs upkeep for as long as there are
// some: a server without clients has no timer pending. The zero value is ready; nil counts
// nothing.
type Presence struct {
	n       atomic.Int64
	arrived atomic.Uint64 // clients since the start
	asleep  atomic.Bool   // an upkeep may be asleep, and Add must look

	mu    sync.Mutex
	tasks map[*upkeep]struct{}
}

// Upkeep is work that only clients need done.
type Upkeep struct {
	// Every returns the time until the next turn.
	Every func() time.Duration
	// Turn does the work. Without clients it is the last one, unless it returns true.
	Turn func(now time.Time) (more bool)
	// First is called when the first client comes after the last turn, and its Add
	// returns afterwards. It must not use the Presence. Nil: nothing is called.
	First func()
}

// upkeep is an Upkeep that was begun.
type upkeep struct {
	Upkeep
	asleep bool // Presence.mu guards it
	wake   chan struct{}
}

// Load returns how many clients there are.
func (p *Presence) Load() int64 { return p.n.Load() }

// Add records that n clients have come, or have gone if n is negative.
func (p *Presence) Add(n int64) {
	if p == nil {
		return
	}
	if p.n.Add(n); n <= 0 {
		return
	}
	p.arrived.Add(uint64(n))
	if p.asleep.Load() {
		p.wake(true)
	}
}

// Poke has every Upkeep that sleeps take one more turn, when it is time for one. It is for
// work that has come up without a client.
func (p *Presence) Poke() {
	if p.asleep.Load() {
		p.wake(false)
	}
}

// wake ends the sleep of each Upkeep: because of a client, or for one turn.
func (p *Presence) wake(client bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for u := range p.tasks {
		if !u.asleep {
			continue
		}
		if client {
			u.asleep = false
			if u.First != nil {
				u.First()
			}
		}
		select {
		case u.wake <- struct{}{}:
		default:
		}
	}
	if client {
		p.asleep.Store(false)
	}
}

// Keep does the work until stop is closed.
func (p *Presence) Keep(stop <-chan struct{}, work Upkeep) {
	u := &upkeep{Upkeep: work, wake: make(chan struct{}, 1)}
	p.mu.Lock()
	if p.tasks == nil {
		p.tasks = map[*upkeep]struct{}{}
	}
	p.tasks[u] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.tasks, u)
		p.mu.Unlock()
	}()
	for {
		arrived := p.arrived.Load()
		timer := time.NewTimer(u.Every())
		select {
		case <-stop:
			timer.Stop()
			return
		case now := <-timer.C:
			if u.Turn(now) || !p.sleep(u, arrived) {
				continue
			}
		}
		select {
		case <-stop:
			return
		case <-u.wake:
		}
	}
}

// sleep puts u to sleep, unless there are clients, or more have come than arrived says: then
// there may be something to do that the last turn has not seen.
func (p *Presence) sleep(u *upkeep, arrived uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asleep.Store(true) // before looking: either Add sees this, or what Add did is seen here
	u.asleep = p.n.Load() <= 0 && p.arrived.Load() == arrived
	return u.asleep
}
