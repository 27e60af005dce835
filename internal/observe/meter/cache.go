package meter

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Cache counts what the cache of one route decided, and what it holds.
type Cache struct {
	Route string

	Hit       Counter // answered from here, the fast lane's not included
	Stale     Counter // answered from here although stale
	Coalesced Counter // answered from another request's fill
	Miss      Counter // answered by the upstream, to be kept
	Validated Counter // answered from here after the upstream said 304
	Pass      Counter // answered by the upstream, known or found not to be kept
	Bypass    Counter // never looked up: see Reasons
	Error     Counter // answered with an error of our own
	Refreshed Counter // refreshes in the background
	Purges    Counter
	Evicted   Counter

	Upstream     Histogram // from a request's start to its answer's header
	FromUpstream Counter   // body bytes
	Fills        Gauge     // under way
	Memory       Gauge     // bytes
	Objects      Gauge     // in memory
	DiskBytes    Gauge
	DiskObjects  Gauge

	Reasons Reasons // why requests were bypassed or answers not kept

	Shared atomic.Pointer[Store] // of the machines that share it; nil: there is none
}

// Reasons counts by a few words that the program knows. The zero value is ready.
//
// The words are in a table that is copied when one is new, so that counting a
// known one takes no lock.
type Reasons struct {
	table atomic.Pointer[map[string]*reasonCount]
	mu    sync.Mutex // held by who copies the table
}

type reasonCount struct {
	n atomic.Uint64
	_ [cacheLine - 8]byte
}

const (
	// maxReasons bounds the table: a route's cache has some two dozen reasons;
	// the bound is there for a mistake that makes them up from requests.
	maxReasons = 64

	// overflowReason is what is counted for reasons beyond maxReasons.
	overflowReason = "other"
)

// Add counts one more for a reason, from the tables of the program, never from
// a client. It takes a lock only for a reason that is new; those beyond 64 are
// counted as "other".
func (r *Reasons) Add(reason string) {
	if t := r.table.Load(); t != nil {
		if c := (*t)[reason]; c != nil {
			c.n.Add(1)
			return
		}
		// A full table changes no more: nobody needs the lock to see that.
		if c := (*t)[overflowReason]; c != nil && len(*t) >= maxReasons {
			c.n.Add(1)
			return
		}
	}
	r.enter(reason).n.Add(1)
}

// enter finds a reason's count, or makes it.
func (r *Reasons) enter(reason string) *reasonCount {
	r.mu.Lock()
	defer r.mu.Unlock()
	var old map[string]*reasonCount
	if t := r.table.Load(); t != nil {
		old = *t
	}
	if c := old[reason]; c != nil {
		return c
	}
	if len(old) >= maxReasons {
		reason = overflowReason
		if c := old[reason]; c != nil {
			return c
		}
	}
	table := make(map[string]*reasonCount, len(old)+1)
	maps.Copy(table, old)
	c := new(reasonCount)
	table[reason] = c
	r.table.Store(&table)
	return c
}

// Each calls f for every reason that was counted, in alphabetical order.
func (r *Reasons) Each(f func(reason string, n uint64)) {
	t := r.table.Load()
	if t == nil {
		return
	}
	for _, reason := range slices.Sorted(maps.Keys(*t)) {
		f(reason, (*t)[reason].n.Load())
	}
}

// Cache returns the counters of a route's cache and makes them at the first
// call, as Job does: it locks and searches, so ask once when the cache is
// built. The same route has the same counters for the life of the process.
func (m *Meters) Cache(route string) *Cache {
	return m.caches.get(route, func(route string) *Cache { return &Cache{Route: route} })
}

// Caches lists the caches that exist, ordered by route.
func (m *Meters) Caches() []*Cache { return m.caches.list() }
