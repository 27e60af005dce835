package conn

import (
	"runtime/debug"
	"time"
)

// A wave is many new connections in a short time: all clients of a site come
// back at once when a server is started again.
const (
	// waveSize is how many connections make one: their handshakes leave some
	// 20 KB of garbage each, which is worth a collection from here on.
	waveSize = 1000
	// waveCalm is how many ticks without a new connection end it.
	waveCalm = 4
	// waveRest is the least time between two such collections: they go through
	// the whole heap, which may hold much else.
	waveRest = 30 * time.Second
)

// wave watches for the end of one, to give back to the system what handshakes
// have left behind. The garbage collector by itself lets the heap grow to
// twice of what is in use, and returns pages slowly: with ten thousand quiet
// connections that is more than they take themselves.
type wave struct {
	seen, freed int64 // connections since the start: at the last tick, and when memory was last given back
	calm        int   // ticks since the last new one
	last        time.Time
}

// tick is called by the engine's clock.
func (w *wave) tick(opened int64, now time.Time) (over bool) {
	if opened != w.seen {
		w.seen, w.calm = opened, 0
		return false
	}
	w.calm++
	if w.calm < waveCalm || opened-w.freed < waveSize || now.Sub(w.last) < waveRest {
		return false
	}
	w.freed, w.last = opened, now
	return true
}

// giveBack returns memory to the system. It takes as long as a collection of
// the heap, mostly beside everything else.
func giveBack() { debug.FreeOSMemory() }
