// Package chart draws lines, intervals and flame graphs as SVG that is
// readable without scripts, and lines as PNG. It knows nothing of what the
// figures mean. All colours are CSS custom properties with a fallback, so that
// a page decides on dark and light.
//
// The properties are --chart-ink, -muted, -grid, -band, -paper, -1 to -8 (the
// series), -good, -bad, -same, -open (the marks of intervals), and
// -flame-1 to -flame-4, -more-1 to -more-3, -less-1 to -less-3 (frames). A page
// that sets none of them gets a light image.
//
// An SVG carries its title as its label for screen readers and does not draw
// it: the page has a heading or a caption for that. A PNG stands alone and
// draws it. Text of any kind may come from outside: it is escaped, cut where it
// would not fit, and kept whole in the tooltip.
package chart

import "math"

// A Size is how large an image is, in CSS pixels. Zero and senseless fields
// have the image's own defaults; charts that have a row per figure ignore the
// height. A PNG has twice as many pixels each way, so that it is sharp on dense
// screens.
type Size struct{ Width, Height int }

// The sizes of images.
const (
	defaultWidth  = 720
	defaultHeight = 300
	leastWidth    = 200
	leastHeight   = 120
	// maxSide bounds an image, so that a wrong figure cannot ask for all of the
	// memory: a PNG of one chart of this size takes 92 MB.
	maxSide = 2400
)

// or fills in what is not said and cuts what is too much.
func (s Size) or(width, height int) Size {
	if s.Width <= 0 {
		s.Width = width
	}
	if s.Height <= 0 {
		s.Height = height
	}
	s.Width = min(max(s.Width, leastWidth), maxSide)
	s.Height = min(max(s.Height, leastHeight), maxSide)
	return s
}

// An Axis is one of a chart's two.
type Axis struct {
	Name string
	// Unit is that of the figures: "ns", "s", "bytes", "bytes/s", "KiB", "1/s",
	// "" for counts, or any other word. Known ones are shown with a prefix; see
	// Figure.
	Unit string
	// Log asks for a logarithmic axis. Figures that are not above 0 are not
	// drawn on one.
	Log bool
}

// A Series is one line of a chart.
type Series struct {
	Name string
	// Points are x and y, x rising. A y that is not a number is a gap.
	Points [][2]float64
}

// hugest is how far from zero a figure may be. Beyond it the arithmetic of a
// scale could overflow; such figures are treated as no numbers.
const hugest = 1e300

// finite reports whether a figure can be drawn.
func finite(v float64) bool { return math.Abs(v) <= hugest } // false for NaN, too

// Downsample makes at most n points of a series (n is at least 4) by keeping the
// least and the greatest figure of each stretch, in their order, and both ends:
// spikes stay. A stretch without any number stays a gap. The points given are
// not changed, and returned as they are when they are few enough.
func Downsample(points [][2]float64, n int) [][2]float64 {
	n = max(n, 4)
	if len(points) <= n {
		return points
	}
	inner := points[1 : len(points)-1]
	stretches := (n - 2) / 2
	kept := make([][2]float64, 0, n)
	kept = append(kept, points[0])
	for i := range stretches {
		stretch := inner[i*len(inner)/stretches : (i+1)*len(inner)/stretches]
		kept = appendExtremes(kept, stretch)
	}
	return append(kept, points[len(points)-1])
}

// appendExtremes adds the least and the greatest point of a stretch.
func appendExtremes(to, stretch [][2]float64) [][2]float64 {
	least, greatest := -1, -1
	for i, p := range stretch {
		if !finite(p[1]) {
			continue
		}
		if least < 0 || p[1] < stretch[least][1] {
			least = i
		}
		if greatest < 0 || p[1] > stretch[greatest][1] {
			greatest = i
		}
	}
	switch {
	case least < 0 && len(stretch) > 0:
		return append(to, stretch[0])
	case least < 0:
		return to
	case least == greatest:
		return append(to, stretch[least])
	}
	return append(to, stretch[min(least, greatest)], stretch[max(least, greatest)])
}
