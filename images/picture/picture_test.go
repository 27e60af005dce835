package picture

import (
	"bytes"
	"fmt"
	"image"
	"math"
	"math/rand/v2"
	"testing"
)

// kind is a layout that a picture can have.
type kind struct {
	name    string
	model   Model
	sub     Subsampling
	limited bool
	alpha   bool
}

func models() []kind {
	return []kind{
		{"420", YCbCr, Sub420, false, false},
		{"422", YCbCr, Sub422, false, false},
		{"440", YCbCr, Sub440, false, false},
		{"444", YCbCr, Sub444, false, false},
		{"420limited", YCbCr, Sub420, true, false},
		{"444limited", YCbCr, Sub444, true, false},
		{"420alpha", YCbCr, Sub420, false, true},
		{"gray", Gray, Sub444, false, false},
		{"graylimited", Gray, Sub444, true, false},
		{"grayalpha", Gray, Sub444, false, true},
		{"NRGBA", NRGBA, Sub444, false, false},
		{"NRGBAalpha", NRGBA, Sub444, false, true},
		{"CMYK", CMYK, Sub444, false, false},
	}
}

// planes lists what a picture's samples are in, with the bytes of a row.
func (p *Picture) planes() (list []Plane, widths, heights []int) {
	add := func(pl Plane, w, h int) {
		list, widths, heights = append(list, pl), append(widths, w), append(heights, h)
	}
	if !p.planar() {
		add(p.pixels(), 4*p.Width, p.Height)
		return list, widths, heights
	}
	add(p.Y, p.Width, p.Height)
	if p.Model == YCbCr {
		cw, ch := p.Sub.size(p.Width, p.Height)
		add(p.Cb, cw, ch)
		add(p.Cr, cw, ch)
	}
	if len(p.A.Pix) > 0 {
		add(p.A, p.Width, p.Height)
	}
	return list, widths, heights
}

// pictureOf makes a picture whose samples are what f says; its rows are padded
// by a few bytes that must never be seen.
func pictureOf(w, h int, k kind, f func(plane, x, y int) byte) *Picture {
	p := New(w, h, k.model, k.sub)
	p.Limited = k.limited
	if k.alpha && p.planar() {
		p.A = Plane{make([]byte, w*h), w}
	}
	list, widths, heights := p.planes()
	for i, pl := range list {
		stride := widths[i] + 3
		b := bytes.Repeat([]byte{77}, stride*heights[i])[:stride*heights[i]-3]
		for y := range heights[i] {
			for x := range widths[i] {
				v := f(i, x, y)
				switch {
				case k.model == NRGBA && x%4 == 3 && !k.alpha:
					v = 255
				case k.limited && i == 0:
					v = 16 + v%220
				case k.limited && i < 3:
					v = 16 + v%225
				}
				b[y*stride+x] = v
			}
		}
		pl.Pix, pl.Stride = b, stride
		switch {
		case !p.planar():
			p.Pix, p.Stride = pl.Pix, pl.Stride
		case i == len(list)-1 && k.alpha:
			p.A = pl
		default:
			*[]*Plane{&p.Y, &p.Cb, &p.Cr}[i] = pl
		}
	}
	return p
}

func noise(w, h int, k kind, seed uint64) *Picture {
	r := rand.New(rand.NewPCG(seed, 2))
	return pictureOf(w, h, k, func(int, int, int) byte { return byte(r.Uint32()) })
}

// check fails if a picture's fields don't fit together.
func check(t *testing.T, p *Picture) {
	t.Helper()
	if p.Width < 1 || p.Height < 1 {
		t.Fatalf("%d × %d pixels", p.Width, p.Height)
	}
	list, widths, heights := p.planes()
	for i, pl := range list {
		if pl.Stride < widths[i] || len(pl.Pix) < (heights[i]-1)*pl.Stride+widths[i] {
			t.Fatalf("plane %d of %d × %d: %d bytes with a stride of %d", i, p.Width, p.Height, len(pl.Pix), pl.Stride)
		}
	}
}

// difference is the largest between samples of two pictures of one kind.
func difference(t *testing.T, a, b *Picture) int {
	t.Helper()
	check(t, a)
	check(t, b)
	if a.Width != b.Width || a.Height != b.Height || a.Model != b.Model || a.Sub != b.Sub || a.Limited != b.Limited {
		t.Fatalf("%d × %d model %d sub %d limited %v and %d × %d model %d sub %d limited %v",
			a.Width, a.Height, a.Model, a.Sub, a.Limited, b.Width, b.Height, b.Model, b.Sub, b.Limited)
	}
	as, widths, heights := a.planes()
	bs, _, _ := b.planes()
	if len(as) != len(bs) {
		t.Fatalf("%d and %d planes", len(as), len(bs))
	}
	most := 0
	for i := range as {
		for y := range heights[i] {
			x, z := as[i].row(y, widths[i]), bs[i].row(y, widths[i])
			for j := range x {
				most = max(most, int(math.Abs(float64(x[j])-float64(z[j]))))
			}
		}
	}
	return most
}

// sizes are small and odd ones, and some around the width of words and tiles.
func sizes() [][2]int {
	return [][2]int{
		{1, 1},
		{1, 2},
		{2, 1},
		{2, 2},
		{3, 3},
		{1, 9},
		{9, 1},
		{7, 5},
		{8, 8},
		{15, 17},
		{16, 16},
		{17, 3},
		{31, 64},
		{65, 33},
		{64, 64},
		{66, 70},
		{129, 131},
	}
}

// each runs a test for every kind of noise at every size.
func each(t *testing.T, f func(t *testing.T, p *Picture, k kind)) {
	for _, k := range models() {
		t.Run(k.name, func(t *testing.T) {
			for i, s := range sizes() {
				f(t, noise(s[0], s[1], k, uint64(i)), k)
			}
		})
	}
}

// unchanged fails if f changes the picture.
func unchanged(t *testing.T, p *Picture, f func()) {
	t.Helper()
	var before [][]byte
	list, _, _ := p.planes()
	for _, pl := range list {
		before = append(before, bytes.Clone(pl.Pix))
	}
	f()
	for i, pl := range list {
		if !bytes.Equal(before[i], pl.Pix) {
			t.Errorf("plane %d was changed", i)
		}
	}
}

func TestNew(t *testing.T) {
	for _, k := range models() {
		p := New(5, 3, k.model, k.sub)
		check(t, p)
		want := [4]byte{0, 0, 0, 255}
		if k.model == NRGBA {
			want[3] = 0
		}
		n := p.NRGBA()
		for i := 0; i < len(n.Pix); i += 4 {
			if [4]byte(n.Pix[i:]) != want {
				t.Errorf("%s: a pixel of %v", k.name, n.Pix[i:i+4])
			}
		}
		if k.model == YCbCr && int(p.Bytes()) != cap(p.Y.Pix) {
			t.Errorf("%s: the planes are not contiguous", k.name)
		}
	}
	check(t, New(0, -5, YCbCr, Sub420))
}

func TestOpaque(t *testing.T) {
	for _, k := range models() {
		for _, s := range sizes() {
			p := pictureOf(s[0], s[1], k, func(int, int, int) byte { return 255 })
			if !p.Opaque() {
				t.Errorf("%s: %v is not opaque", k.name, s)
			}
			if !k.alpha {
				continue
			}
			for range 20 {
				x, y := rand.IntN(s[0]), rand.IntN(s[1])
				at := &p.A
				o := y*at.Stride + x
				if k.model == NRGBA {
					at = &Plane{p.Pix, p.Stride}
					o = y*at.Stride + 4*x + 3
				}
				at.Pix[o] = 254
				if p.Opaque() {
					t.Errorf("%s: %v is opaque with a hole at %d, %d", k.name, s, x, y)
				}
				at.Pix[o] = 255
			}
		}
	}
}

func TestCrop(t *testing.T) {
	each(t, func(t *testing.T, p *Picture, _ kind) {
		n := p.NRGBA()
		for range 8 {
			x, y := rand.IntN(p.Width), rand.IntN(p.Height)
			r := image.Rect(x, y, x+1+rand.IntN(p.Width-x), y+1+rand.IntN(p.Height-y))
			c := p.Crop(r)
			if c.Width != r.Dx() || c.Height != r.Dy() {
				t.Fatalf("%v became %d × %d", r, c.Width, c.Height)
			}
			sx, sy := 0, 0
			if p.Model == YCbCr {
				sx, sy = p.Sub.shifts()
			}
			r = r.Sub(image.Pt(x-x>>sx<<sx, y-y>>sy<<sy))
			if d := difference(t, c.NRGBA(), n.Crop(r)); d != 0 {
				t.Errorf("%v of %d × %d differs by %d", r, p.Width, p.Height, d)
			}
		}
		for _, r := range []image.Rectangle{{}, image.Rect(-9, -9, 999, 999), image.Rect(500, 500, 501, 501), image.Rect(-5, -5, -4, -4)} {
			check(t, p.Crop(r))
		}
	})
}

func TestBytes(t *testing.T) {
	for _, c := range []struct {
		k    kind
		want int64
	}{
		{kind{model: YCbCr, sub: Sub420}, 15 + 2*6},
		{kind{model: Gray}, 15},
		{kind{model: NRGBA}, 60},
	} {
		if n := New(5, 3, c.k.model, c.k.sub).Bytes(); n != c.want {
			t.Errorf("%v: %d bytes instead of %d", c.k, n, c.want)
		}
	}
	p := New(5, 3, NRGBA, Sub444).Limited420()
	if p.Bytes() != 15+12+15 {
		t.Errorf("%d bytes with alpha", p.Bytes())
	}
}

func ExamplePicture_Orient() {
	p := New(400, 300, YCbCr, Sub422)
	q := p.Orient(6).Resize(30, 40)
	fmt.Println(q.Width, q.Height, q.Sub == Sub440)
	// Output: 30 40 true
}
