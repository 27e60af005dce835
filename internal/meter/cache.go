package meter

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
}

// Reasons counts by a few words that the program knows. The zero value is ready.
type Reasons struct{}

// Add counts one more for a reason, from the tables of the program, never from a client.
func (r *Reasons) Add(reason string) { panic("not built") }

// Each calls f for every reason that was counted, in order.
func (r *Reasons) Each(f func(reason string, n uint64)) { panic("not built") }

// Cache returns the counters of a route's cache and makes them at the first
// call, as Job does.
func (m *Meters) Cache(route string) *Cache { panic("not built") }

// Caches lists the caches that exist, ordered by route.
func (m *Meters) Caches() []*Cache { panic("not built") }
