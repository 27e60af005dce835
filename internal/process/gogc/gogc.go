// Package gogc sets the percentage of Go's garbage collector (GOGC) to a
// budget of bytes, and says how much memory there is to make budgets of (Memory).
//
// Go lets a heap grow to twice what is in use before it collects. For a server
// of small requests that is a good trade; with a cache it means that 256 MiB of
// answers, all of them in use, take 512. A cache should cost what its options
// say and a little more, so the garbage that may pile up is a share of the
// budget and not of whatever is in use:
//
//	full cache:  the heap may grow by garbageShare of the budget
//	empty cache: the same number of bytes is a large share of a small heap, so
//	             collections are no more frequent than Go's own
//
// It is a percentage and not a memory limit (GOMEMLIMIT): a limit does not know
// where memory goes, so many connections beside a full cache would make the
// collector run without end. docs/decisions/0008 has the figures.
package gogc

import (
	"cmp"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"

	"millrace/internal/bytesize"
)

const (
	// garbageShare of the budget, in percent. With 15 a full cache and its
	// garbage have 1.15 of the budget; the rest up to 1.3 is for what the
	// runtime itself needs and for the holes that answers of many sizes leave.
	garbageShare = 15
	// leastGarbage keeps small budgets from making collections frequent.
	leastGarbage bytesize.Size = 8 << 20
	// goPercent is Go's own default, and the most that is ever set.
	goPercent = 100
	// soonerPercent holds from CollectSooner to its done. With 30, reading and building a
	// config of 10,000 sites takes a third more CPU than with 100, and 40 MB less.
	soonerPercent = 30
)

// percentFor is what GOGC should be while live bytes are in use.
func percentFor(budget, live bytesize.Size) int {
	garbage := max(leastGarbage, budget/100*garbageShare)
	return int(min(goPercent, max(garbageShare, garbage*100/max(1, live))))
}

// Governor sets GOGC anew after each collection. GOGC belongs to the process:
// where there are several governors, the one that was set last counts.
type Governor struct {
	mu      sync.Mutex
	budget  bytesize.Size // 0: none
	callers int           // how many have called CollectSooner
	percent int           // what was set last; 0: GOGC is left alone
	before  int           // what was set then
	watched bool          // a sentinel is alive
}

// New returns nil, whose methods do nothing, if the user has set GOGC or
// GOMEMLIMIT.
func New() *Governor {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	return &Governor{}
}

// Budget makes b the budget, in bytes; 0 restores what GOGC was before.
func (g *Governor) Budget(b bytesize.Size) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.budget = b
	g.set()
	if b > 0 && !g.watched {
		g.watched = true
		watchCollections(g)
	}
}

// CollectSooner has garbage collected sooner until done is called: for work that takes much
// memory for a short time.
func (g *Governor) CollectSooner() (done func()) {
	if g == nil {
		return func() {}
	}
	g.addCallers(1)
	return sync.OnceFunc(func() { g.addCallers(-1) })
}

func (g *Governor) addCallers(more int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.callers += more
	g.set()
}

// set puts into force what is wanted now. g.mu must be held.
func (g *Governor) set() {
	want := 0
	if g.budget > 0 {
		want = percentFor(g.budget, liveHeap())
	}
	if g.callers > 0 {
		want = min(cmp.Or(want, soonerPercent), soonerPercent)
	}
	switch want {
	case g.percent: // setting it stops the world for some microseconds
	case 0:
		debug.SetGCPercent(g.before)
	default:
		if was := debug.SetGCPercent(want); g.percent == 0 {
			g.before = was
		}
	}
	g.percent = want
}

// sentinel is garbage at once, so that the next collection finds it. It must
// hold a pointer: small objects without one share their memory, and may live
// as long as their neighbours.
type sentinel struct{ of *Governor }

// watchCollections calls adjust after the next collection, on the runtime's
// own goroutine for cleanups.
func watchCollections(g *Governor) {
	runtime.AddCleanup(&sentinel{g}, func(g *Governor) { g.adjust() }, g)
}

// adjust follows the heap.
func (g *Governor) adjust() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.budget == 0 {
		g.watched = false
		return
	}
	g.set()
	watchCollections(g)
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
