package gogc

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
	// waveCalm without a new connection ends it.
	waveCalm = 2 * time.Second
	// waveRest is the least time between two such collections: they go through
	// the whole heap, which may hold much else.
	waveRest = 30 * time.Second
)

// Wave watches for the end of a wave of connections, to give back to the system
// what handshakes have left behind. The garbage collector by itself lets the heap
// grow to twice of what is in use, and returns pages slowly: with ten thousand
// quiet connections that is more than they take themselves. The zero value is
// ready.
type Wave struct {
	seen, freed int64     // connections since the start: when last asked, and when memory was last given back
	since, last time.Time // when the last one came, and when memory was given back
}

// Over reports, once for each, that a wave has ended. It is to be asked a few
// times a second; opened is how many connections there have been since the start.
func (w *Wave) Over(opened int64, now time.Time) bool {
	if opened != w.seen {
		w.seen, w.since = opened, now
		return false
	}
	if now.Sub(w.since) < waveCalm || opened-w.freed < waveSize || now.Sub(w.last) < waveRest {
		return false
	}
	w.freed, w.last = opened, now
	return true
}

// Pending reports whether Over will report the end of a wave later on.
func (w *Wave) Pending(opened int64) bool { return opened-w.freed >= waveSize }

// GiveBack returns memory to the system. It takes as long as a collection of
// the heap, mostly beside everything else.
func GiveBack() { debug.FreeOSMemory() }
