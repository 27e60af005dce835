package picture

import (
	"image/color"
	"math"
	"testing"
)

func TestTables(t *testing.T) {
	luma, chroma := expandTables()
	for i := range 256 {
		y := 16 + float64(i)*219/255
		c := 128 + float64(i-128)*224/255
		if v := limitedLuma().sample(byte(i)); float64(v) != math.Round(y) {
			t.Errorf("luma %d becomes %d instead of %.2f", i, v, y)
		}
		if v := limitedChroma().sample(byte(i)); math.Abs(float64(v)-c) > 0.5 {
			t.Errorf("chroma %d becomes %d instead of %.2f", i, v, c)
		}
		if i >= 16 && i <= 235 {
			if v := luma[i]; float64(v) != math.Round(float64(i-16)*255/219) {
				t.Errorf("limited luma %d becomes %d", i, v)
			}
		}
		if i >= 16 && i <= 240 {
			want := min(128+float64(i-128)*255/224, 255)
			if v := chroma[i]; math.Abs(float64(v)-want) > 0.501 {
				t.Errorf("limited chroma %d becomes %d instead of %.2f", i, v, want)
			}
		}
	}
	if luma[0] != 0 || luma[255] != 255 || chroma[0] != 0 || chroma[255] != 255 {
		t.Error("out of range, tables don't clamp")
	}
}

func TestNRGBAKnown(t *testing.T) {
	for _, c := range []struct {
		p    *Picture
		want [3]byte
	}{
		{one(kind{model: YCbCr, sub: Sub420}, 76, 85, 255), [3]byte{254, 0, 0}},
		{one(kind{model: YCbCr, limited: true}, 16, 128, 128), [3]byte{0, 0, 0}},
		{one(kind{model: YCbCr, limited: true}, 235, 128, 128), [3]byte{255, 255, 255}},
		{one(kind{model: YCbCr, limited: true}, 81, 90, 240), [3]byte{254, 0, 0}},
		{one(kind{model: YCbCr, limited: true}, 145, 54, 34), [3]byte{0, 255, 1}},
		{one(kind{model: YCbCr, limited: true}, 41, 240, 110), [3]byte{0, 0, 255}},
		{one(kind{model: Gray, limited: true}, 235), [3]byte{255, 255, 255}},
		{one(kind{model: CMYK}, 0, 0, 0, 255), [3]byte{0, 0, 0}},
		{one(kind{model: CMYK}, 255, 0, 0, 0), [3]byte{0, 255, 255}},
		{one(kind{model: CMYK}, 0, 51, 0, 51), [3]byte{204, 163, 204}},
	} {
		if have := [3]byte(c.p.NRGBA().Pix); far(have[:], c.want[:]) > 1 {
			t.Errorf("%v instead of %v", have, c.want)
		}
	}
}

func far(a, b []byte) int {
	most := 0
	for i := range b {
		most = max(most, int(a[i])-int(b[i]), int(b[i])-int(a[i]))
	}
	return most
}

// one is a picture of a single pixel.
func one(k kind, samples ...byte) *Picture {
	return pictureOf(1, 1, k, func(plane, x, _ int) byte {
		if k.limited && plane < 3 {
			return samples[plane] - 16
		}
		return samples[plane+x]
	})
}

func TestLimited420Layout(t *testing.T) {
	each(t, func(t *testing.T, p *Picture, _ kind) {
		p.ICC = []byte("profile's")
		var q *Picture
		unchanged(t, p, func() { q = p.Limited420() })
		check(t, q)
		w, h := p.Width, p.Height
		n, c := w*h, ((w+1)/2)*((h+1)/2)
		if q.Width != w || q.Height != h || q.Model != YCbCr || q.Sub != Sub420 || !q.Limited {
			t.Fatalf("%+v", q)
		}
		all := q.Y.Pix[:q.Bytes()]
		if len(all) != 2*n+2*c || &all[n] != &q.Cb.Pix[0] || &all[n+c] != &q.Cr.Pix[0] || &all[n+2*c] != &q.A.Pix[0] {
			t.Error("the planes are not contiguous")
		}
		if q.Y.Stride != w || q.A.Stride != w || q.Cb.Stride != (w+1)/2 || q.Cr.Stride != q.Cb.Stride {
			t.Error("the rows are padded")
		}
		if q.Opaque() != p.Opaque() {
			t.Error("alpha was lost")
		}
		for i, v := range all[:n+2*c] {
			if v < 16 || v > 240 || i < n && v > 235 {
				t.Fatalf("sample %d is %d", i, v)
			}
		}
	})
}

// TestLimited420 compares with a slow way: each pixel by floating point.
func TestLimited420(t *testing.T) {
	each(t, func(t *testing.T, p *Picture, k kind) {
		q := p.Limited420()
		limit := 1.01
		if k.model == CMYK {
			limit = 2.01 // two roundings, and image/color's
		}
		for y := range p.Height {
			for x := range p.Width {
				v, _, _, _ := exactYCbCr(p, x, y)
				if d := math.Abs(float64(q.Y.Pix[y*q.Y.Stride+x]) - v); d > limit {
					t.Fatalf("luma of %d, %d is off by %.2f", x, y, d)
				}
			}
		}
		cw, ch := q.Sub.size(q.Width, q.Height)
		for y := range ch {
			for x := range cw {
				var cb, cr, weight, plainB, plainR float64
				for i := range 4 {
					_, b, r, a := exactYCbCr(p, min(2*x+i%2, p.Width-1), min(2*y+i/2, p.Height-1))
					if k.model != NRGBA {
						a = 1
					}
					cb, cr, weight = cb+b*a, cr+r*a, weight+a
					plainB, plainR = plainB+b/4, plainR+r/4
				}
				if weight == 0 {
					cb, cr, weight = plainB, plainR, 1
				}
				db := math.Abs(float64(q.Cb.Pix[y*cw+x]) - cb/weight)
				dr := math.Abs(float64(q.Cr.Pix[y*cw+x]) - cr/weight)
				if db > limit || dr > limit {
					t.Fatalf("chroma %d, %d of %d × %d is off by %.2f and %.2f", x, y, p.Width, p.Height, db, dr)
				}
			}
		}
	})
}

// exactYCbCr is a pixel in limited range, and its alpha.
func exactYCbCr(p *Picture, x, y int) (luma, cb, cr, alpha float64) {
	if p.planar() {
		sx, sy := p.Sub.shifts()
		luma, cb, cr = float64(p.Y.Pix[y*p.Y.Stride+x]), 128, 128
		if p.Model == YCbCr {
			cb = float64(p.Cb.Pix[y>>sy*p.Cb.Stride+x>>sx])
			cr = float64(p.Cr.Pix[y>>sy*p.Cr.Stride+x>>sx])
		}
		if p.Limited {
			return luma, cb, cr, 1
		}
		return 16 + luma*219/255, 128 + (cb-128)*224/255, 128 + (cr-128)*224/255, 1
	}
	px := p.Pix[y*p.Stride+4*x:][:4]
	r, g, b, alpha := float64(px[0]), float64(px[1]), float64(px[2]), float64(px[3])/255
	if p.Model == CMYK {
		c := color.NRGBAModel.Convert(color.CMYK{C: px[0], M: px[1], Y: px[2], K: px[3]}).(color.NRGBA)
		r, g, b, alpha = float64(c.R), float64(c.G), float64(c.B), 1
	}
	luma = 0.299*r + 0.587*g + 0.114*b
	return 16 + luma*219/255, 128 + (b-luma)/1.772*224/255, 128 + (r-luma)/1.402*224/255, alpha
}

func TestHiddenColours(t *testing.T) {
	// Green pixels that nobody sees beside red ones must not make them brown.
	p := New(2, 2, NRGBA, Sub444)
	for i, px := range [][4]byte{{255, 0, 0, 255}, {0, 255, 0, 0}, {0, 255, 0, 0}, {0, 255, 0, 0}} {
		copy(p.Pix[4*i:], px[:])
	}
	if q := p.Limited420(); far([]byte{q.Cb.Pix[0], q.Cr.Pix[0]}, []byte{90, 240}) > 1 {
		t.Errorf("chroma is %d, %d", q.Cb.Pix[0], q.Cr.Pix[0])
	}
	q := p.Resize(1, 1)
	if q.Pix[0] < 254 || q.Pix[1] > 1 || far(q.Pix[3:4], []byte{64}) > 1 {
		t.Errorf("scaled to %v", q.Pix)
	}
}

func TestRoundTrip(t *testing.T) {
	// Repeating chroma and averaging it again gives nearly what it was.
	k := kind{model: YCbCr, sub: Sub420}
	p := pictureOf(33, 21, k, func(plane, x, y int) byte { return byte(100 + 3*x/2 + y + 10*plane) })
	if d := difference(t, p.NRGBA().Limited420(), p.Limited420()); d > 1 {
		t.Errorf("through RGB it differs by %d", d)
	}
}

func TestProfiles(t *testing.T) {
	rgb := []byte("0123456789abcdefRGB and more")
	for _, c := range []struct {
		m    Model
		icc  string
		kept bool
	}{
		{YCbCr, string(rgb), true},
		{NRGBA, "short", true},
		{Gray, "0123456789abcdefGRAY", false},
		{Gray, string(rgb), true},
		{CMYK, "0123456789abcdefCMYK", false},
		{CMYK, "", false},
	} {
		p := New(2, 2, c.m, Sub444)
		p.ICC = []byte(c.icc)
		if kept := len(p.NRGBA().ICC) > 0; kept != c.kept {
			t.Errorf("%v: NRGBA has a profile: %v", c, kept)
		}
		if kept := len(p.Limited420().ICC) > 0; kept != c.kept {
			t.Errorf("%v: Limited420 has a profile: %v", c, kept)
		}
		if c.icc != "" && (len(p.Orient(6).ICC) == 0 || len(p.Resize(1, 1).ICC) == 0 || len(p.Crop(p.Image().Bounds()).ICC) == 0) {
			t.Errorf("%v: the profile was lost", c)
		}
	}
}
