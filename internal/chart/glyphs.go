package chart

import (
	"bytes"
	"compress/flate"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// glyphData are the outlines of the Go fonts, regular and bold, of all characters
// that they have, without what is there for hints (Bigelow & Holmes, under the
// licence of golang.org/x/image). The fonts themselves and the packages that read
// them would make the program half a megabyte larger (decision 42). A test makes
// the file anew, and holds it against the fonts.
//
// It is compressed by DEFLATE. Inside, for either weight: how many glyphs there
// are, and each with its character as the difference to the one before, its
// advance, how many segments its outline has, and these: a byte that says the
// kind, and for each point the differences to the point before. Numbers are
// varints of encoding/binary.
//
//go:embed glyphs.bin
var glyphData []byte

// unitsPerEm is how many units of an outline the size of a font is.
const unitsPerEm = 2048

// maxGlyphData bounds what glyphData inflates to, in bytes.
const maxGlyphData = 1 << 20

// kind is what a segment does.
type kind byte

const (
	moveTo kind = iota // begins another contour
	lineTo
	quadTo // a quadratic curve by way of the first point to the second
)

// points are how many a kind of segment has.
func (k kind) points() int {
	if k == quadTo {
		return 2
	}
	return 1
}

// A segment is part of an outline. Coordinates are in units, y grows downwards.
type segment struct {
	kind kind
	at   [2][2]int // x and y of its points
}

// A glyph is how a character looks.
type glyph struct {
	advance  int
	segments []segment
}

// glyphs are those of one weight. Character 0 stands for what the font has not.
type glyphs map[rune]glyph

func (g glyphs) of(r rune) glyph {
	if found, ok := g[r]; ok {
		return found
	}
	return g[0]
}

// readGlyphs reads what glyphData holds: the regular weight and the bold one.
func readGlyphs(data []byte) (weights [2]glyphs, err error) {
	raw, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(data)), maxGlyphData))
	if err != nil {
		return weights, fmt.Errorf("reading the font of charts: %w", err)
	}
	in := glyphReader{left: raw}
	for i := range weights {
		weights[i] = in.weight()
	}
	if in.bad || len(in.left) > 0 {
		return weights, errGlyphs
	}
	return weights, nil
}

var errGlyphs = errors.New("reading the font of charts: its data is damaged")

// A glyphReader takes numbers off what is left. Past the end, or at a number that
// is none, it is bad, and everything else that it reads is 0.
type glyphReader struct {
	left []byte
	bad  bool
}

func (in *glyphReader) weight() glyphs {
	found := glyphs{}
	char := rune(0)
	for range in.count() {
		char += rune(in.uint())
		found[char] = in.glyph()
	}
	return found
}

func (in *glyphReader) glyph() glyph {
	g := glyph{advance: in.uint()}
	var x, y int
	for range in.count() {
		var s segment
		if s.kind = kind(in.uint()); s.kind > quadTo {
			in.bad = true
			return g
		}
		for i := range s.kind.points() {
			x, y = x+in.int(), y+in.int()
			s.at[i] = [2]int{x, y}
		}
		g.segments = append(g.segments, s)
	}
	return g
}

// count is how many things follow: no more than there are bytes.
func (in *glyphReader) count() int {
	n := in.uint()
	if n > len(in.left) {
		in.bad = true
		return 0
	}
	return n
}

func (in *glyphReader) uint() int {
	v, n := binary.Uvarint(in.left)
	return int(v) & in.taken(n)
}

func (in *glyphReader) int() int {
	v, n := binary.Varint(in.left)
	return int(v) & in.taken(n)
}

// taken goes on behind a number of n bytes. It is all ones, or 0 where there was
// no number.
func (in *glyphReader) taken(n int) int {
	if n <= 0 || in.bad {
		in.bad, in.left = true, nil
		return 0
	}
	in.left = in.left[n:]
	return -1
}
