package convert

import (
	"image"
	"math"
	"math/rand/v2"
	"testing"

	"millrace/images/codec"
	"millrace/images/header"
)

func TestPlan(t *testing.T) {
	for _, c := range []struct {
		w, h   int
		turned bool
		boxW   int
		boxH   int
		fit    Fit
		to     image.Point
		part   image.Rectangle
		denom  int
	}{
		{4000, 3000, false, 0, 0, "", image.Pt(4000, 3000), image.Rect(0, 0, 4000, 3000), 1},
		{4000, 3000, false, 1000, 1000, Contain, image.Pt(1000, 750), image.Rect(0, 0, 4000, 3000), 2},
		{4000, 3000, false, 1000, 1000, "", image.Pt(1000, 750), image.Rect(0, 0, 4000, 3000), 2},
		{4000, 3000, false, 800, 0, "", image.Pt(800, 600), image.Rect(0, 0, 4000, 3000), 4},
		{4000, 3000, false, 801, 0, "", image.Pt(801, 601), image.Rect(0, 0, 4000, 3000), 2},
		{4000, 3000, false, 500, 0, Cover, image.Pt(500, 375), image.Rect(0, 0, 4000, 3000), 4},
		{4000, 3000, false, 0, 300, Fill, image.Pt(400, 300), image.Rect(0, 0, 4000, 3000), 8},
		{4000, 3000, true, 1000, 1000, Contain, image.Pt(1000, 750), image.Rect(0, 0, 4000, 3000), 2},
		{4000, 3000, true, 300, 0, Contain, image.Pt(400, 300), image.Rect(0, 0, 4000, 3000), 8},
		{4000, 3000, false, 1000, 1000, Cover, image.Pt(1000, 1000), image.Rect(500, 0, 3500, 3000), 2},
		{4000, 3000, false, 1000, 1000, Outside, image.Pt(1333, 1000), image.Rect(0, 0, 4000, 3000), 2},
		{4000, 3000, false, 1000, 1000, Fill, image.Pt(1000, 1000), image.Rect(0, 0, 4000, 3000), 2},
		// Never larger: the box keeps its own proportions where they matter.
		{400, 100, false, 1000, 1000, Contain, image.Pt(400, 100), image.Rect(0, 0, 400, 100), 1},
		{400, 100, false, 200, 200, Cover, image.Pt(100, 100), image.Rect(150, 0, 250, 100), 1},
		{400, 100, false, 200, 200, Fill, image.Pt(100, 100), image.Rect(0, 0, 400, 100), 1},
		{400, 100, false, 200, 200, Outside, image.Pt(400, 100), image.Rect(0, 0, 400, 100), 1},
		// A line stays a line.
		{10000, 1, false, 10, 10, Contain, image.Pt(10, 1), image.Rect(0, 0, 10000, 1), 8},
	} {
		p := planFor(c.w, c.h, c.turned, Spec{Width: c.boxW, Height: c.boxH, Fit: c.fit})
		if p.to != c.to || p.part != c.part || p.denominator() != c.denom {
			t.Errorf("%d × %d (turned %t) in %d × %d by %q: %+v, 1/%d",
				c.w, c.h, c.turned, c.boxW, c.boxH, c.fit, p, p.denominator())
		}
	}
}

// Whatever the sizes: a result is no larger than what it is made of, which lies
// in the image, and what is decoded for it is no smaller.
func TestPlanHolds(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		w, h := 1+rnd.IntN(3000), 1+rnd.IntN(3000)
		s := Spec{Width: rnd.IntN(4000), Height: rnd.IntN(4000), Fit: []Fit{Contain, Cover, Fill, Outside}[rnd.IntN(4)]}
		p := planFor(w, h, rnd.IntN(2) == 0, s)
		d := p.denominator()
		nw, nh := ceil(w, d), ceil(h, d)
		r := scaled(p.part, nw, w, nh, h)
		if p.to.X < 1 || p.to.Y < 1 || p.to.X > p.part.Dx() || p.to.Y > p.part.Dy() ||
			!p.part.In(image.Rect(0, 0, w, h)) || !r.In(image.Rect(0, 0, nw, nh)) || r.Dx() < p.to.X || r.Dy() < p.to.Y {
			t.Fatalf("%d × %d by %+v: %+v, 1/%d, part %v", w, h, s, p, d, r)
		}
	}
}

// More of everything takes more memory, and a progressive JPEG much more.
func TestMemory(t *testing.T) {
	i := header.Info{Format: header.JPEG, Width: 4000, Height: 3000, Components: 3, Frames: 1, Depth: 8}
	s := Spec{Format: codec.WebP}
	base := Memory(i, s, "tools")
	if base < 50e6 || base > 500e6 {
		t.Errorf("12 megapixels take %d MB", base/1e6)
	}
	i.Progressive = true
	progressive := Memory(i, s, "tools")
	small := s
	small.Width = 400
	half := s
	half.Width = 2000
	if scaled := Memory(i, half, "tools"); scaled >= progressive || scaled < 48e6 {
		t.Errorf("half of a progressive one takes %d MB, the whole %d", scaled/1e6, progressive/1e6)
	}
	if scaled := Memory(i, small, "tools"); scaled >= progressive/2 {
		t.Errorf("a small picture of a progressive one takes %d MB, the whole %d", scaled/1e6, progressive/1e6)
	}
	if progressive < 48e6+34e6 {
		t.Errorf("a progressive one takes %d MB", progressive/1e6)
	}
	i.Progressive = false
	if scaled := Memory(i, small, "tools"); scaled >= base {
		t.Errorf("a small picture takes %d MB, the whole %d", scaled/1e6, base/1e6)
	}
	p := header.Info{Format: header.PNG, Lossless: true, Width: 4000, Height: 3000, Frames: 1, Depth: 8}
	deep := p
	deep.Depth = 16
	if Memory(deep, s, "tools") <= Memory(p, s, "tools") || Memory(p, s, "tools") < 4*12e6 {
		t.Error("16 bits take no more than 8")
	}
	// A graphic that is too large to be coded without loss takes less again.
	p.Palette = true
	p.Width = 1150 // 3.45 megapixels
	below := Memory(p, s, "embedded")
	p.Width = 1300
	if above := Memory(p, s, "embedded"); above >= below || below < 500e6 {
		t.Errorf("3.45 megapixels of a palette take %d MB, 3.9 %d", below/1e6, above/1e6)
	}
	g := header.Info{Format: header.GIF, Width: 500, Height: 500, Frames: 100, Depth: 8, Palette: true, Lossless: true}
	if n := Memory(g, s, "embedded"); n < 25e6 || n > 200e6 {
		t.Errorf("a hundred frames of 0.25 megapixels take %d MB", n/1e6)
	}
}

// A drawing fits into the memory that there is if a larger one does: it is
// coded lossy where coding without loss would not fit.
func TestMemoryHasNoGap(t *testing.T) {
	for _, level := range []string{"tools", "embedded"} {
		for _, depth := range []int{8, 16} {
			for _, budget := range []int64{0, 128 << 20, 2 << 30} {
				most := budget
				if budget == 0 {
					most = 512 << 20
				}
				tooMuch := 0
				for side := 100; side <= 7000; side += 100 {
					i := header.Info{Format: header.PNG, Width: side, Height: side, Frames: 1, Depth: depth, Lossless: true}
					n := Memory(i, Spec{Format: codec.WebP, Memory: budget}, level)
					switch {
					case n > most && tooMuch == 0:
						tooMuch = side
					case n <= most && tooMuch > 0:
						t.Fatalf("%s, %d bits, %d bytes: a side of %d takes too much, and %d does not", level, depth, most, tooMuch, side)
					}
				}
				if tooMuch > 0 && tooMuch < 2300 && most >= 512<<20 {
					t.Errorf("%s, %d bits: a side of %d is too much", level, depth, tooMuch)
				}
			}
		}
	}
}

// TestFinePattern: rings too fine for the result become gray, not other rings,
// also at the size that a JPEG could be decoded at.
func TestFinePattern(t *testing.T) {
	const side, k = 512, 4
	m := image.NewGray(image.Rect(0, 0, side, side))
	for i := range m.Pix {
		x, y := float64(i%side), float64(i/side)
		m.Pix[i] = byte(127.5 + 127.5*math.Cos((x*x+y*y)*math.Pi/(2*side)))
	}
	f := &fakeEncoder{}
	convertTo(t, &Converter{Encoder: f}, asJPEG(t, m), Spec{Width: side / k})
	p := f.pictures[0]
	var sum float64
	n := 0
	for y := p.Height / 2; y < p.Height; y++ { // beyond the result's finest by half and more
		for _, v := range p.Y.Pix[y*p.Y.Stride:][:p.Width] {
			sum += (float64(v) - 127.5) * (float64(v) - 127.5)
			n++
		}
	}
	if deviation := math.Sqrt(sum / float64(n)); deviation > 4 {
		t.Errorf("rings that are not in the picture, by %.1f of 255 in the mean", deviation)
	}
}
