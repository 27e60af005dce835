package dashboard

import (
	"fmt"
	"slices"
	"strings"

	"millrace/internal/ops/chart"
)

// The sizes of the drawings, in their own units; page.html has them too. A column is
// five seconds: then the drawing changes every five seconds, and not more is sent.
const (
	perColumn   = 5
	columns     = history / perColumn
	columnWidth = 12
	stripHeight = 72
	heatRow     = 14 // pixels, as the style sheet has it for the labels
)

// grid has the seconds in columns by the clock, the youngest on the right, so that
// a column stays the same once it is full.
func grid(seconds []second) (cells [columns][]second) {
	if len(seconds) == 0 {
		return cells
	}
	last := seconds[len(seconds)-1].at.Unix() / perColumn
	for i := range seconds {
		if c := int64(columns-1) - (last - seconds[i].at.Unix()/perColumn); c >= 0 && c < columns {
			cells[c] = append(cells[c], seconds[i])
		}
	}
	return cells
}

// A strip is one figure over the last five minutes, as paths of a bar for each column.
type strip struct {
	About     string // what it is, and how high it was
	Bars, Bad string // Bad: the part that is errors
}

// bars is the path of values, the highest of which may be as high as the strip.
func bars(values *[columns]float64, highest float64) string {
	var b strings.Builder
	for i, v := range values {
		if v > 0 {
			fmt.Fprintf(&b, "M%d %dv%.0fh%dV%dz", i*columnWidth, stripHeight, -max(1, v/highest*(stripHeight-2)), columnWidth-2, stripHeight)
		}
	}
	return b.String()
}

// strips are requests per second with the errors among them, CPU and memory.
func strips(seconds []second, cores int) []strip {
	var rate, bad, cpu, memory [columns]float64
	for i, c := range grid(seconds) {
		for _, s := range c {
			rate[i] += float64(s.requests) / float64(len(c))
			bad[i] += float64(s.failed) / float64(len(c))
			cpu[i] += s.cpu.Seconds() / float64(len(c))
			memory[i] = max(memory[i], float64(s.memory))
		}
	}
	highest := slices.Max(rate[:])
	requests := strip{"Requests per second, at most " + chart.Figure(highest, "1/s"), bars(&rate, highest), bars(&bad, highest)}
	if slices.Max(bad[:]) > 0 {
		requests.About += "; errors (5xx) are red"
	}
	all := []strip{requests}
	if most := slices.Max(cpu[:]); most > 0 {
		all = append(all, strip{About: fmt.Sprintf("CPU, at most %.2f of %d cores", most, cores), Bars: bars(&cpu, float64(cores))})
	}
	if most := slices.Max(memory[:]); most > 0 {
		all = append(all, strip{About: "Memory, at most " + chart.Figure(most, "bytes"), Bars: bars(&memory, most)})
	}
	return all
}

// levels is how many shades a cell of the heat strip may have.
const levels = 5

// A heat strip is the distribution of times in each column: a row for each range of
// times, the longest at the top.
type heat struct {
	Rows   []string // what they are called
	Height int
	Shades []shade
}

// A shade is the path of all cells that have it, from 1 for the palest on.
type shade struct {
	N     int
	Cells string
}

func heatOf(seconds []second) *heat {
	var cells [columns][heatRows]uint64
	top, low := 0, heatRows-1
	for i, column := range grid(seconds) {
		for _, s := range column {
			for row, n := range s.heat {
				cells[i][row] += n
				if n > 0 {
					top, low = max(top, row), min(low, row)
				}
			}
		}
	}
	top, low = min(heatRows-1, max(top, low)+1), max(0, low-1) // a row above and below
	var shades [levels]strings.Builder
	for i := range cells {
		var sum uint64
		for _, n := range cells[i] {
			sum += n
		}
		for row, n := range cells[i] {
			if n > 0 {
				fmt.Fprintf(&shades[shadeOf(float64(n)/float64(sum))], "M%d %dh%dv%dh-%dz", i*columnWidth, (top-row)*heatRow, columnWidth-1, heatRow-1, columnWidth-1)
			}
		}
	}
	h := &heat{Height: (top - low + 1) * heatRow}
	for i := range shades {
		if shades[i].Len() > 0 {
			h.Shades = append(h.Shades, shade{i + 1, shades[i].String()})
		}
	}
	for row := top; row >= low; row-- {
		text := "more"
		if row < len(heatBounds) {
			text = "≤ " + chart.Figure(heatBounds[row].Seconds(), "s")
		}
		h.Rows = append(h.Rows, text)
	}
	return h
}

// shadeOf is the shade for a share of a column's requests. A single slow request
// among thousands must be seen, so the steps are not even.
func shadeOf(share float64) int {
	for i, least := range []float64{0.5, 0.2, 0.05, 0.005} {
		if share >= least {
			return levels - 1 - i
		}
	}
	return 0
}
