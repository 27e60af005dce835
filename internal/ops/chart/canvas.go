package chart

import (
	"strings"
	"unicode/utf8"
)

// A canvas is what charts are drawn on. There are two, SVG and PNG: the charts
// don't know which.
type canvas interface {
	// line draws through points.
	line(points []point, s stroke)
	// area fills a polygon, and draws its border if s has a width.
	area(points []point, fill paint, s stroke)
	// disc fills a circle, and draws its border if s has a width.
	disc(center point, radius float64, fill paint, s stroke)
	// text writes a line of text; at is on its baseline.
	text(at point, s string, f font)
	// begin opens a group with a class for scripts and a tooltip, either may be
	// empty; end closes it.
	begin(class, tooltip string)
	end()
}

type point struct{ x, y float64 }

// A paint is the role of a colour; paints has the colours themselves.
type paint string

const (
	none  paint = ""
	ink   paint = "ink"
	muted paint = "muted"
	grid  paint = "grid"
	band  paint = "band"
	paper paint = "paper"
	good  paint = "good"
	bad   paint = "bad"
	same  paint = "same"
	open  paint = "open"
)

// paints are the colours of a light image, which a page may replace.
var paints = map[paint]string{
	ink: "#1b1f24", muted: "#5b6470", grid: "#e2e5e9", band: "#eceff2", paper: "#ffffff",
	good: "#1a7f4b", bad: "#b3362b", same: "#4a5562", open: "#8a6a00",
	"1": "#2563a8", "2": "#c2571a", "3": "#2f8552", "4": "#8450a6",
	"5": "#9a7500", "6": "#1f8a95", "7": "#b0446f", "8": "#6a7280",
	"flame-1": "#f0d9b5", "flame-2": "#ecc9a0", "flame-3": "#f3e2c7", "flame-4": "#e6d3b3",
	"more-1": "#f3d9d4", "more-2": "#e5a79d", "more-3": "#d4766a",
	"less-1": "#d7e3f1", "less-2": "#a5c3e3", "less-3": "#73a0d0",
}

// seriesPaints are the colours of lines, in order; a ninth line has the first
// colour again and is dashed.
var seriesPaints = []paint{"1", "2", "3", "4", "5", "6", "7", "8"}

// dashes tell lines of the same colour apart.
var dashes = [][]float64{nil, {6, 3}, {2, 3}, {9, 3, 2, 3}}

// seriesStroke is how the i-th line is drawn.
func seriesStroke(i int) stroke {
	n := len(seriesPaints)
	return stroke{paint: seriesPaints[i%n], width: 1.6, dash: dashes[i/n%len(dashes)]}
}

type stroke struct {
	paint paint
	width float64
	dash  []float64 // lengths drawn and left out, in turn; nil: all is drawn
}

type anchor int

const (
	start anchor = iota
	middle
	end
)

// A font is how text looks.
type font struct {
	size   float64
	paint  paint
	anchor anchor
	bold   bool
}

// The sizes of text.
const (
	textSize  = 12
	smallSize = 11
	titleSize = 15
)

// box are the corners of a rectangle.
func box(x, y, width, height float64) []point {
	return []point{{x, y}, {x + width, y}, {x + width, y + height}, {x, y + height}}
}

// textWidth estimates how wide text is. The reader's font is not known here;
// the estimate suits the usual sans-serif ones and is rather too wide.
func textWidth(s string, size float64) float64 {
	var w float64
	for _, r := range s {
		switch {
		case strings.ContainsRune("iljtfrI.,:;|!'()[]/ \u00a0·", r):
			w += 0.36
		case strings.ContainsRune("mwMW%@…—", r):
			w += 0.95
		case r >= 'A' && r <= 'Z':
			w += 0.71
		case r >= 0x1100:
			w += 0.95
		default:
			w += 0.62
		}
	}
	return w * size
}

// cut shortens text to a width, with an ellipsis.
func cut(s string, width, size float64) string {
	if textWidth(s, size) <= width {
		return s
	}
	for s != "" {
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
		if textWidth(s+"…", size) <= width {
			return strings.TrimRight(s, " ") + "…"
		}
	}
	return ""
}

// maxText bounds any text of an image, in bytes: names come from command lines
// and profiles, and may be of any length.
const maxText = 400

// clean makes one line of text that is short enough and holds no control
// characters.
func clean(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "…"
	}
	s = strings.ToValidUTF8(s, "\ufffd")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == 0xfffe || r == 0xffff {
			return ' '
		}
		return r
	}, s)
}
