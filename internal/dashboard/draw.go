package dashboard

import (
	"fmt"
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
	rateHeight  = 72
	heatRow     = 14
	heatLeft    = 62 // room for the labels
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

// drawRate draws requests per second, and errors below them.
func drawRate(seconds []second) markup {
	var rates, failed [columns]float64
	highest := 0.0
	cells := grid(seconds)
	for i, c := range cells {
		for _, s := range c {
			rates[i] += float64(s.requests) / float64(len(c))
			failed[i] += float64(s.failed) / float64(len(c))
		}
		highest = max(highest, rates[i])
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="rate" viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="Requests per second in the last five minutes, at most %s">`,
		drawWidth, rateHeight, chart.Figure(highest, "1/s"))
	bars := func(class string, values *[columns]float64) {
		fmt.Fprintf(&b, `<path class="%s" d="`, class)
		for i, v := range values {
			if v > 0 {
				fmt.Fprintf(&b, "M%d %dv%.1fh%dV%dz", i*columnWidth, rateHeight, -max(1, v/highest*(rateHeight-2)), columnWidth-2, rateHeight)
			}
		}
		b.WriteString(`"/>`)
	}
	bars("bar", &rates)
	bars("bar-bad", &failed)
	b.WriteString(`</svg>`)
	return markup(b.String())
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
			fmt.Fprintf(&shades[shade], "M%d %dh%dv%dh-%dz", heatLeft+i*columnWidth, (top-row)*heatRow, columnWidth-1, heatRow-1, columnWidth-1)
		}
	}
	height := (top - low + 1) * heatRow
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="heat" viewBox="0 0 %d %d" role="img" aria-label="How long requests took in the last five minutes; the table below has the figures">`, heatLeft+drawWidth, height)
	for row := low; row <= top; row++ {
		text := "more"
		if row < len(heatBounds) {
			text = "≤ " + shortTime(heatBounds[row])
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`, heatLeft-6, (top-row)*heatRow+heatRow-3, text)
	}
	for i := range shades {
		if shades[i].Len() > 0 {
			fmt.Fprintf(&b, `<path class="heat-%d" d="%s"/>`, i+1, shades[i].String())
		}
	}
	b.WriteString(`</svg>`)
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
