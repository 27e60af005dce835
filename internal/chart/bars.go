package chart

import (
	"fmt"
	"io"
	"math"
)

// A Bar is one row of a bar chart.
type Bar struct {
	Label   string
	Value   float64 // not a number: no bar, and "–" as its figure
	Mark    Mark    // its colour
	Note    string  // after the figure
	Tooltip string
}

// Bars are figures as horizontal bars from zero, one row each.
type Bars struct {
	Title, About string
	Unit         string // see Figure
	Rows         []Bar
}

// SVG draws the bars; the width is 720 if the size is zero, the height is what
// the rows need.
func (b *Bars) SVG(w io.Writer, size Size) error {
	size = size.or(defaultWidth, defaultHeight)
	rows := b.Rows[:min(len(b.Rows), maxRows)]
	const row = 22
	height := max(len(rows), 1) * row
	if len(rows) < len(b.Rows) {
		height += row
	}
	s := newSVG(Size{size.Width, height}, b.Title, b.About, "class", "chart-bars")
	b.draw(s, rows, float64(size.Width))
	switch {
	case len(rows) == 0:
		s.text(point{8, 15}, "no data", font{size: textSize, paint: muted})
	case len(rows) < len(b.Rows):
		s.text(point{8, float64(height) - 7}, fmt.Sprintf("and %d more, not drawn", len(b.Rows)-len(rows)), font{size: smallSize, paint: muted})
	}
	return s.writeTo(w)
}

// figure is the text beside a bar.
func (b *Bars) figure(r Bar) string {
	s := Figure(r.Value, b.Unit)
	if r.Note != "" {
		s += "  " + clean(r.Note)
	}
	return s
}

func (b *Bars) draw(c canvas, rows []Bar, width float64) {
	label, figure := 0.0, 0.0
	e := extent{0, 0, true}
	for _, r := range rows {
		label = math.Max(label, textWidth(clean(r.Label), textSize)+12)
		figure = math.Max(figure, textWidth(b.figure(r), smallSize)+12)
		e.add(r.Value, false)
	}
	label, figure = math.Min(label, width*0.36), math.Min(figure, width*0.4)
	if e.min == e.max {
		e.max = 1
	}
	left := label
	if e.min < 0 {
		left += figure // figures of negative bars stand on their left
	}
	x := scale{min: e.min, max: e.max, from: left, to: math.Max(width-figure, left+20)}
	for i, r := range rows {
		b.drawRow(c, float64(i)*22, r, x, label)
	}
}

func (b *Bars) drawRow(c canvas, y float64, r Bar, x scale, label float64) {
	tip := r.Tooltip
	if tip == "" {
		tip = clean(r.Label) + ": " + b.figure(r)
	}
	c.begin("", tip)
	defer c.end()
	c.text(point{0, y + 15}, cut(clean(r.Label), label-10, textSize), font{size: textSize, paint: ink})
	zero := x.at(0)
	text := font{size: smallSize, paint: ink}
	if !finite(r.Value) {
		c.text(point{zero + 6, y + 15}, b.figure(r), text)
		return
	}
	v := x.at(r.Value)
	lo, hi := math.Min(zero, v), math.Max(math.Max(zero, v), math.Min(zero, v)+1)
	c.area(box(lo, y+4, hi-lo, 14), r.Mark.paint(), stroke{})
	if r.Value < 0 {
		text.anchor = end
		c.text(point{lo - 6, y + 15}, b.figure(r), text)
		return
	}
	c.text(point{hi + 6, y + 15}, b.figure(r), text)
}
