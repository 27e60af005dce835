package millrace

import (
	"cmp"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"

	"millrace/internal/bytesize"
	"millrace/internal/config"
)

// Go's collector lets a heap grow to twice what is in use before it looks for
// garbage. For a server of small requests that is a good trade; with a cache it
// means that 256 MiB of answers, which are all in use, take 512. What a cache
// may cost is what its options say and a little, so the allowance for garbage
// is a share of the budget instead of a share of whatever is in use:
//
//	full cache:  the heap may grow by garbageShare of the budgets, and that is
//	             what the percentage is set to
//	empty cache: the same number of bytes is a large share of a small heap, so
//	             collections are no more frequent than Go's own
//
// It is a percentage and not a memory limit (GOMEMLIMIT): a limit does not know
// where memory goes, so that many connections beside a full cache would make
// the collector run without end. docs/decisions/0008 has the figures.
const (
	// garbageShare of the budgets, in percent. With 15 a full cache and its
	// garbage have 1.15 of the budget; the rest up to 1.3 is for what the
	// runtime itself needs and for the holes that answers of many sizes leave.
	garbageShare = 15
	// leastGarbage keeps small budgets from making collections frequent.
	leastGarbage bytesize.Size = 8 << 20
	// goPercent is Go's own default, and the most that is ever set.
	goPercent = 100

	defaultCacheMemory bytesize.Size = 256 << 20 // cache.Options.Memory
	defaultLaneMemory  bytesize.Size = 64 << 20  // lane.Options.Memory
)

// budget is how many bytes of answers cfg allows to be held in memory; 0
// without a cache.
func budget(cfg *config.Config) (total bytesize.Size) {
	seen := map[string]bool{} // caches with the same options are one
	for _, s := range cfg.Sites {
		for _, r := range s.Routes {
			if r.Cache == nil || seen[keyOf("cache", r.Cache)] {
				continue
			}
			seen[keyOf("cache", r.Cache)] = true
			total += cmp.Or(r.Cache.Memory, defaultCacheMemory)
		}
	}
	if total > 0 && !cfg.Lane.Off {
		total += cmp.Or(cfg.Lane.Memory, defaultLaneMemory)
	}
	return total
}

// percentFor is what GOGC should be while live bytes are in use.
func percentFor(budget, live bytesize.Size) int {
	garbage := max(leastGarbage, budget/100*garbageShare)
	return int(min(goPercent, max(garbageShare, garbage*100/max(1, live))))
}

// collector sets Go's garbage collector to a budget, after each collection
// anew. It is the process's: the last server that was started counts.
type collector struct {
	mu      sync.Mutex
	budget  bytesize.Size // 0: left alone
	percent int           // what was set last
	before  int           // what was set when the first budget came
	watched bool          // a sentinel is alive
}

// newCollector returns nil, whose methods do nothing, if the user has said how
// to collect.
func newCollector() *collector {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	return &collector{}
}

// set makes b the budget; 0 gives the collector back.
func (c *collector) set(b bytesize.Size) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch b {
	case c.budget:
		return
	case 0:
		debug.SetGCPercent(c.before)
		c.budget = 0
		return
	}
	first := c.budget == 0
	c.budget = b
	percent := percentFor(b, liveHeap())
	if before := debug.SetGCPercent(percent); first {
		c.before = before
	}
	c.percent = percent
	if !c.watched {
		c.watched = true
		watchCollections(c)
	}
}

// sentinel is garbage at once, so that the next collection finds it. It must
// hold a pointer: small objects without one share their memory, and may live
// as long as their neighbours.
type sentinel struct{ of *collector }

// watchCollections calls adjust after the next collection, on the runtime's
// own goroutine for such things.
func watchCollections(c *collector) {
	runtime.AddCleanup(&sentinel{c}, func(c *collector) { c.adjust() }, c)
}

// adjust follows the heap.
func (c *collector) adjust() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.budget == 0 {
		c.watched = false
		return
	}
	if percent := percentFor(c.budget, liveHeap()); percent != c.percent {
		debug.SetGCPercent(percent) // stops the world for some microseconds
		c.percent = percent
	}
	watchCollections(c)
}

// liveHeap is what the last collection found to be in use.
func liveHeap() bytesize.Size {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return bytesize.Size(s[0].Value.Uint64())
}
