package chart

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"flag"
	"image"
	"image/color"
	"image/draw"
	"os"
	"reflect"
	"testing"

	xfont "golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
)

var update = flag.Bool("update", false, "write glyphs.bin anew from the Go fonts")

// fontsOf are the Go fonts: regular and bold.
func fontsOf(t *testing.T) (fonts [2]*sfnt.Font) {
	t.Helper()
	for i, data := range [][]byte{goregular.TTF, gobold.TTF} {
		f, err := sfnt.Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		if f.UnitsPerEm() != unitsPerEm {
			t.Fatalf("%d units per em", f.UnitsPerEm())
		}
		fonts[i] = f
	}
	return fonts
}

// glyphsOf are all glyphs of a font. At a size of its units per em its outlines
// are whole units.
func glyphsOf(t *testing.T, f *sfnt.Font) glyphs {
	t.Helper()
	all, buf := glyphs{}, new(sfnt.Buffer)
	for r := rune(0); r <= 0xffff; r++ {
		x, err := f.GlyphIndex(buf, r)
		if err != nil {
			t.Fatal(err)
		}
		if r == 0 {
			x = 0 // what stands for characters that there are not
		} else if x == 0 {
			continue
		}
		advance, err := f.GlyphAdvance(buf, x, unitsPerEm, xfont.HintingNone)
		if err != nil {
			t.Fatal(err)
		}
		g := glyph{advance: int(advance)}
		segments, err := f.LoadGlyph(buf, x, unitsPerEm, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range segments {
			var own segment
			switch s.Op {
			case sfnt.SegmentOpMoveTo:
				own.kind = moveTo
			case sfnt.SegmentOpLineTo:
				own.kind = lineTo
			case sfnt.SegmentOpQuadTo:
				own.kind = quadTo
			default:
				t.Fatalf("%q has a segment of kind %d", r, s.Op)
			}
			for i := range own.kind.points() {
				own.at[i] = [2]int{int(s.Args[i].X), int(s.Args[i].Y)}
			}
			g.segments = append(g.segments, own)
		}
		all[r] = g
	}
	return all
}

// appendGlyphs writes glyphs as glyphData has them.
func appendGlyphs(b []byte, all glyphs) []byte {
	b = binary.AppendUvarint(b, uint64(len(all)))
	before := rune(0)
	for r := rune(0); r <= 0xffff; r++ {
		g, ok := all[r]
		if !ok {
			continue
		}
		b = binary.AppendUvarint(b, uint64(r-before))
		b = binary.AppendUvarint(b, uint64(g.advance))
		b = binary.AppendUvarint(b, uint64(len(g.segments)))
		var x, y int
		for _, s := range g.segments {
			b = binary.AppendUvarint(b, uint64(s.kind))
			for i := range s.kind.points() {
				b = binary.AppendVarint(b, int64(s.at[i][0]-x))
				b = binary.AppendVarint(b, int64(s.at[i][1]-y))
				x, y = s.at[i][0], s.at[i][1]
			}
		}
		before = r
	}
	return b
}

// TestGlyphs: the outlines are those of the fonts, of every character.
func TestGlyphs(t *testing.T) {
	fonts := fontsOf(t)
	if *update {
		var raw []byte
		for _, f := range fonts {
			raw = appendGlyphs(raw, glyphsOf(t, f))
		}
		var packed bytes.Buffer
		w, err := flate.NewWriter(&packed, flate.BestCompression)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(raw); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("glyphs.bin", packed.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		glyphData = packed.Bytes()
	}
	weights, err := readGlyphs(glyphData)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range fonts {
		want := glyphsOf(t, f)
		if len(want) < 600 || len(weights[i]) != len(want) {
			t.Errorf("%d glyphs, the font has %d", len(weights[i]), len(want))
		}
		for r, g := range want {
			if !reflect.DeepEqual(weights[i][r], g) {
				t.Errorf("%q differs from the font's: go test ./internal/chart -run TestGlyphs -update writes the file anew", r)
			}
		}
	}
}

// TestTextIsTheFonts: drawn text looks as golang.org/x/image draws it.
func TestTextIsTheFonts(t *testing.T) {
	const text = "Łódź × 3.5 µs, 100 % − AV ₴ \u4e2d"
	for weight, f := range fontsOf(t) {
		r, err := newRaster(260, 40)
		if err != nil {
			t.Fatal(err)
		}
		r.text(point{10, 25}, text, font{size: titleSize, paint: ink, bold: weight == 1})
		face, err := opentype.NewFace(f, &opentype.FaceOptions{Size: titleSize * density, DPI: 72, Hinting: xfont.HintingNone})
		if err != nil {
			t.Fatal(err)
		}
		want := image.NewRGBA(r.img.Bounds())
		draw.Draw(want, want.Bounds(), image.NewUniform(rgba(paper)), image.Point{}, draw.Src)
		d := xfont.Drawer{Dst: want, Src: image.NewUniform(rgba(ink)), Face: face, Dot: fixed.P(10*density, 25*density)}
		d.DrawString(text)
		dark, differ := 0, 0
		for y := range want.Bounds().Dy() {
			for x := range want.Bounds().Dx() {
				a, b := color.GrayModel.Convert(want.At(x, y)).(color.Gray), color.GrayModel.Convert(r.img.At(x, y)).(color.Gray)
				if a.Y < 128 {
					dark++
				}
				if d := int(a.Y) - int(b.Y); d > 40 || d < -40 { // rounded to 64ths of a pixel by one of them
					differ++
				}
			}
		}
		if dark < 500 || differ > dark/50 {
			t.Errorf("weight %d: %d of %d dark pixels differ", weight, differ, dark)
		}
	}
}

// TestTextBeyondTheEdges: text that does not fit is cut off, and is no fault.
func TestTextBeyondTheEdges(t *testing.T) {
	r, err := newRaster(60, 20)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []point{{-500, 10}, {500, 10}, {10, -50}, {10, 500}, {-20, 2}, {50, 19}} {
		for _, a := range []anchor{start, middle, end} {
			r.text(at, "longer than the picture is wide", font{size: textSize, paint: ink, anchor: a})
		}
	}
	r.text(point{10, 10}, "", font{size: textSize, paint: ink})
}

func FuzzGlyphs(f *testing.F) {
	weights, err := readGlyphs(glyphData)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(appendGlyphs(appendGlyphs(nil, weights[0]), glyphs{}))
	f.Add([]byte{1, 0, 200, 1, 3, 0, 1, 1, 2, 2, 2, 3, 3, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		in := glyphReader{left: raw}
		for range 2 {
			for r, g := range in.weight() {
				if len(g.segments) > len(raw) {
					t.Errorf("%q has %d segments in %d bytes", r, len(g.segments), len(raw))
				}
			}
		}
	})
}
