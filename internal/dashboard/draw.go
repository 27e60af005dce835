package dashboard

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"millrace/internal/chart"
)

// The sizes of the drawings, in their own units. A column is five seconds: then the
// drawing changes every five seconds, and not more is sent.
const (
	perColumn   = 5
	columns     = history / perColumn
	columnWidth = 12
	drawWidth   = columns * columnWidth
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

// strip is one figure over the last five minutes.
type strip struct {
	about   string // what it is, and how high it was
	values  [columns]float64
	bad     [columns]float64 // the part of values that is errors
	highest float64          // the upper end
}

// draw draws a bar for each column.
func (s *strip) draw() markup {
	var b strings.Builder
	fmt.Fprintf(&b, `<figure><figcaption>%s</figcaption><svg class="strip" viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="%s">`,
		s.about, drawWidth, stripHeight, s.about)
	bars := func(class string, values *[columns]float64) {
		fmt.Fprintf(&b, `<path class="%s" d="`, class)
		for i, v := range values {
			if v > 0 {
				fmt.Fprintf(&b, "M%d %dv%.0fh%dV%dz", i*columnWidth, stripHeight, -max(1, v/s.highest*(stripHeight-2)), columnWidth-2, stripHeight)
			}
		}
		b.WriteString(`"/>`)
	}
	bars("bar", &s.values)
	bars("bar-bad", &s.bad)
	b.WriteString(`</svg></figure>`)
	return markup(b.String())
}

// drawNow draws requests per second with the errors among them, CPU and memory.
func drawNow(seconds []second, cores int) markup {
	var rate, cpu, memory strip
	cpuMost := 0.0
	for i, c := range grid(seconds) {
		for _, s := range c {
			rate.values[i] += float64(s.requests) / float64(len(c))
			rate.bad[i] += float64(s.failed) / float64(len(c))
			cpu.values[i] += s.cpu.Seconds() / float64(len(c))
			memory.values[i] = max(memory.values[i], float64(s.memory))
		}
		rate.highest = max(rate.highest, rate.values[i])
		cpuMost = max(cpuMost, cpu.values[i])
		memory.highest = max(memory.highest, memory.values[i])
	}
	cpu.highest = float64(cores)
	rate.about = "Requests per second, at most " + chart.Figure(rate.highest, "1/s")
	if slices.Max(rate.bad[:]) > 0 {
		rate.about += "; errors (5xx) are red"
	}
	cpu.about = fmt.Sprintf("CPU, at most %.2f of %d cores", cpuMost, cores)
	memory.about = "Memory, at most " + chart.Figure(memory.highest, "bytes")
	drawn := `<div class="strips">` + rate.draw()
	if cpuMost > 0 {
		drawn += cpu.draw()
	}
	if memory.highest > 0 {
		drawn += memory.draw()
	}
	return drawn + `</div>`
}

// levels is how many shades a cell of the heat strip may have.
const levels = 5

// drawHeat draws the distribution of times in each column.
func drawHeat(seconds []second) markup {
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
			if n == 0 {
				continue
			}
			shade := shadeOf(float64(n) / float64(sum))
			fmt.Fprintf(&shades[shade], "M%d %dh%dv%dh-%dz", i*columnWidth, (top-row)*heatRow, columnWidth-1, heatRow-1, columnWidth-1)
		}
	}
	var b strings.Builder
	b.WriteString(`<div class="heat"><ul aria-hidden="true">`)
	for row := top; row >= low; row-- {
		text := "more"
		if row < len(heatBounds) {
			text = "≤ " + shortTime(heatBounds[row])
		}
		fmt.Fprintf(&b, `<li>%s</li>`, text)
	}
	height := (top - low + 1) * heatRow
	fmt.Fprintf(&b, `</ul><svg viewBox="0 0 %d %d" height="%d" preserveAspectRatio="none" role="img" aria-label="How long requests took in the last five minutes; the table below has the figures">`, drawWidth, height, height)
	for i := range shades {
		if shades[i].Len() > 0 {
			fmt.Fprintf(&b, `<path class="heat-%d" d="%s"/>`, i+1, shades[i].String())
		}
	}
	b.WriteString(`</svg></div>`)
	return markup(b.String())
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

func shortTime(d time.Duration) string { return chart.Figure(d.Seconds(), "s") }
