package chart

import (
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"strconv"
	"strings"
)

// A Frame is one function in a flame graph, with what it called.
type Frame struct {
	Name string
	// Value is its own and its children's. Where it is less than the children's
	// sum, that sum counts.
	Value float64
	// Delta is by how much Value is more than it was in what it is compared
	// with; only drawn in a difference.
	Delta    float64
	Children []Frame // drawn in their order
}

// A Flame graph shows a tree from the top down (an icicle): each frame as wide
// as its value.
type Flame struct {
	Title, About string
	Unit         string // see Figure
	Root         Frame
	// Difference colours frames by Delta: red where it grew, blue where it
	// shrank, stronger for more; names get a + or − so that it needs no colour.
	Difference bool
}

// The bounds of a flame graph. They keep it small: what they leave out is less
// than a pixel wide or deeper than anybody reads.
const (
	leastShare = 0.001 // of the whole, for a frame to be drawn
	maxDepth   = 64
	maxFrames  = 2500
	frameRow   = 18
)

// SVG draws the frames that are at least 0.1 % of the whole; the width is 1200
// if the size is zero, the height is what the deepest stack needs.
func (f *Flame) SVG(w io.Writer, size Size) error {
	size = size.or(1200, defaultHeight)
	d := &flameDrawing{Flame: f, width: float64(size.Width), least: leastShare}
	d.total = d.value(&f.Root, 0)
	for { // a tree that is wide everywhere is drawn coarser
		d.frames, d.deepest = d.frames[:0], 0
		if d.total > 0 && finite(d.total) {
			d.place(&f.Root, 0, 0)
		}
		if len(d.frames) <= maxFrames {
			break
		}
		d.least *= 2
	}
	rows := d.deepest + 1
	if len(d.frames) == 0 {
		rows = 2
	}
	s := newSVG(Size{size.Width, rows*frameRow + 2}, f.Title, f.About, "class", "chart-flame")
	if len(d.frames) == 0 {
		s.text(point{8, 22}, "no data", font{size: textSize, paint: muted})
	}
	for _, p := range d.frames {
		d.draw(s, p)
	}
	return s.writeTo(w)
}

type flameDrawing struct {
	*Flame
	width   float64
	total   float64
	least   float64 // share of the whole
	frames  []placedFrame
	deepest int
}

type placedFrame struct {
	*Frame
	value float64
	x     float64 // in the unit of values, from the left
	depth int
}

// value is what a frame is drawn with: never less than its children.
func (d *flameDrawing) value(f *Frame, depth int) float64 {
	var sum float64
	if depth < maxDepth {
		for i := range f.Children {
			sum += d.value(&f.Children[i], depth+1)
		}
	}
	if finite(f.Value) && f.Value > sum {
		return f.Value
	}
	return sum
}

// place finds the frames that are wide enough.
func (d *flameDrawing) place(f *Frame, x float64, depth int) {
	v := d.value(f, depth)
	if v < d.least*d.total || depth > maxDepth || len(d.frames) > maxFrames {
		return
	}
	d.frames = append(d.frames, placedFrame{f, v, x, depth})
	d.deepest = max(d.deepest, depth)
	for i := range f.Children {
		d.place(&f.Children[i], x, depth+1)
		x += d.value(&f.Children[i], depth+1)
	}
}

func (d *flameDrawing) draw(c canvas, p placedFrame) {
	x, w := p.x/d.total*d.width, p.value/d.total*d.width
	y := float64(p.depth)*frameRow + 1
	sign := ""
	tip := fmt.Sprintf("%s: %s, %s", p.Name, Figure(p.value, d.Unit), percent(p.value/d.total))
	if d.Difference && finite(p.Delta) {
		switch level := d.level(p); {
		case level > 0:
			sign = "+ "
		case level < 0:
			sign = "− "
		}
		change := Figure(p.Delta, d.Unit)
		if p.Delta > 0 {
			change = "+" + change
		}
		tip += ", changed by " + change
	}
	c.begin("", tip)
	c.area(box(x, y, math.Max(w-0.6, 0.4), frameRow-1), d.paint(p), stroke{})
	if w > 30 {
		c.text(point{x + 4, y + 12.5}, cut(sign+clean(p.Name), w-8, smallSize), font{size: smallSize, paint: ink})
	}
	c.end()
}

// level is how much a frame changed, from −3 to 3, as a share of the whole: a
// quarter of a percent shows.
func (d *flameDrawing) level(p placedFrame) int {
	share := math.Abs(p.Delta) / d.total
	level := 0
	switch {
	case share >= 0.02:
		level = 3
	case share >= 0.0075:
		level = 2
	case share >= 0.0025:
		level = 1
	}
	if p.Delta < 0 {
		return -level
	}
	return level
}

// paint is a frame's colour: how it changed in a difference; otherwise one of
// four close ones, the same for all functions of a package.
func (d *flameDrawing) paint(p placedFrame) paint {
	if d.Difference {
		if !finite(p.Delta) {
			return band
		}
		switch level := d.level(p); {
		case level > 0:
			return paint("more-" + strconv.Itoa(level))
		case level < 0:
			return paint("less-" + strconv.Itoa(-level))
		}
		return band
	}
	h := fnv.New32a()
	_, _ = io.WriteString(h, packageOf(p.Name)) // a hash takes anything
	return paint("flame-" + strconv.Itoa(int(h.Sum32()%4)+1))
}

// packageOf is the import path in a Go function's name: what stands before the
// first dot after the last slash.
func packageOf(name string) string {
	slash := strings.LastIndexByte(name, '/') + 1
	if dot := strings.IndexByte(name[slash:], '.'); dot >= 0 {
		return name[:slash+dot]
	}
	return name
}

func percent(share float64) string {
	return tickText(roundTo3(share*100)) + " %"
}
