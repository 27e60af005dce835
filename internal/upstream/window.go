package upstream

import "time"

// windowCells divides a window: what leaves it at once is a tenth.
const windowCells = 10

// window counts two kinds of events over the recent past. The zero value with
// a cell is ready.
type window struct {
	cell  time.Duration // length of one of windowCells
	at    int64         // number of the current cell
	cells [windowCells][2]uint32
	sum   [2]uint64
}

// add counts an event of a kind, 0 or 1.
func (w *window) add(now time.Duration, kind int) {
	w.roll(now)
	w.cells[w.at%windowCells][kind]++
	w.sum[kind]++
}

// counts is how many of each kind the window holds.
func (w *window) counts(now time.Duration) (zeros, ones uint64) {
	w.roll(now)
	return w.sum[0], w.sum[1]
}

// roll empties the cells that have left the window.
func (w *window) roll(now time.Duration) {
	at := int64(now / w.cell)
	for steps := min(at-w.at, windowCells); steps > 0; steps-- {
		c := &w.cells[(at-steps+1)%windowCells]
		w.sum[0] -= uint64(c[0])
		w.sum[1] -= uint64(c[1])
		*c = [2]uint32{}
	}
	w.at = max(w.at, at)
}

// clear forgets everything.
func (w *window) clear() { *w = window{cell: w.cell, at: w.at} }
