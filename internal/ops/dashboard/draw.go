package dashboard

import (
	"cmp"
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

// A card is one figure of now with its last five minutes, as paths of a bar for each
// column.
type card struct {
	Name, Value string
	About       string // how high it was
	Level       Level
	Bars, Bad   string // Bad: the part that is errors
}

// bars is the path of values, the highest of which may be as high as the strip.
func bars(values *track, highest float64) string {
	var b strings.Builder
	for i, v := range values {
		if v > 0 {
			fmt.Fprintf(&b, "M%d %dv%.0fh%dV%dz", i*columnWidth, stripHeight, -min(stripHeight, max(1, v/highest*(stripHeight-2))), columnWidth-2, stripHeight)
		}
	}
	return b.String()
}

// track is what has become of one figure in five minutes.
type track [columns]float64

// card draws it below its value of now. highest is the value of a bar as high as the
// drawing; 0: the highest there was.
func (t *track) card(row Row, u Unit, highest float64) card {
	name, _ := row.Values[0].(string)
	value, _ := row.Values[1].(string)
	c := card{Name: name, Value: cmp.Or(value, "–"), About: "none in five minutes"}
	if most := slices.Max(t[:]); most > 0 {
		c.About = "at most " + Show(u, most)
		c.Bars = bars(t, cmp.Or(highest, most))
	}
	return c
}

// cards are the key figures. rows are those of now, in this order: requests, errors, p50,
// p99, bytes sent, connections, CPU and memory.
func cards(rows []Row, seconds []second, cores int) []card {
	var rate, bad, p50, p99, sent, connections, cpu, memory track
	for i, c := range grid(seconds) {
		n := float64(len(c))
		for _, s := range c {
			rate[i] += float64(s.requests) / n
			bad[i] += float64(s.failed) / n
			sent[i] += float64(s.bytes) / n
			cpu[i] += s.cpu.Seconds() / n
			p50[i] = max(p50[i], s.p50.Seconds())
			p99[i] = max(p99[i], s.p99.Seconds())
			connections[i] = max(connections[i], float64(s.connections))
			memory[i] = max(memory[i], float64(s.memory))
		}
	}
	all := []card{
		rate.card(rows[0], Rate, 0),
		bad.card(rows[1], Rate, 0),
		p50.card(rows[2], Seconds, 0),
		p99.card(rows[3], Seconds, 0),
		sent.card(rows[4], ByteRate, 0),
		connections.card(rows[5], Count, 0),
		cpu.card(rows[6], "", float64(cores)),
		memory.card(rows[7], Bytes, 0),
	}
	if most := slices.Max(bad[:]); most > 0 {
		all[0].Bad = bars(&bad, slices.Max(rate[:]))
		all[0].About += "; errors are red"
		all[1].Bad, all[1].Bars = all[1].Bars, ""
	}
	if now, _ := rows[1].Values[2].(float64); now > 0 {
		all[1].Level = Bad
	}
	if most := slices.Max(cpu[:]); most > 0 {
		all[6].About = fmt.Sprintf("at most %.2f", most)
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
