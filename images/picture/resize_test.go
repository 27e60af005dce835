package picture

import (
	"math"
	"testing"
)

// targets are sizes to scale to, from a w × h picture.
func targets(w, h int) [][2]int {
	return [][2]int{
		{1, 1},
		{w, 1},
		{1, h},
		{2, 3},
		{(w + 1) / 2, (h + 1) / 2},
		{w - 1, h - 1},
		{w, h + 1},
		{w/3 + 1, h/4 + 1},
		{2 * w, 2 * h},
		{w + 7, h/2 + 1},
		{50, 3},
	}
}

func TestResizeConstant(t *testing.T) {
	for _, k := range models() {
		for _, s := range sizes() {
			p := pictureOf(s[0], s[1], k, func(plane, x, y int) byte {
				if !k.limited && k.model == NRGBA || k.model == CMYK {
					plane = x % 4
				}
				return []byte{200, 3, 77, 9}[plane]
			})
			for _, to := range targets(s[0], s[1]) {
				q := p.Resize(to[0], to[1])
				want := p
				if q == p {
					continue
				}
				if !p.Opaque() {
					want = p.NRGBA()
				}
				px := []byte{}
				planes, _, _ := want.planes()
				for _, pl := range planes {
					px = append(px, pl.Pix[0])
				}
				list, widths, heights := q.planes()
				for i, pl := range list {
					for y := range heights[i] {
						for x, v := range pl.row(y, widths[i]) {
							w := px[i]
							if !q.planar() {
								w = want.Pix[x%4]
							}
							if v != w {
								t.Fatalf("%s: %v to %v: %d instead of %d", k.name, s, to, v, w)
							}
						}
					}
				}
			}
		}
	}
}

func TestResizeSame(t *testing.T) {
	each(t, func(t *testing.T, p *Picture, _ kind) {
		if q := p.Resize(p.Width, p.Height); q != p {
			t.Error("the same size makes another picture")
		}
		// With one axis the same, nothing is mixed along it.
		check(t, p.Resize(p.Width, 0))
	})
	for _, from := range []int{1, 2, 7, 100} {
		f := newFilter(from, from, 1)
		for i := range from {
			for k, w := range f.of(i) {
				if at := int(f.start[i]) + k; at == i && w != weightOne || at != i && w != 0 {
					t.Errorf("%d: sample %d has %d of %d", from, i, w, at)
				}
			}
		}
	}
}

func TestResizeGradient(t *testing.T) {
	for _, c := range []kind{{model: Gray}, {model: NRGBA}, {model: YCbCr, sub: Sub420}} {
		for _, n := range []int{3, 64, 255, 1000} {
			for _, to := range []int{1, 2, 3, 10, 63, 64, 100, 254, 256, 999, 2000} {
				p := pictureOf(n, 5, c, func(_, x, _ int) byte {
					if c.model == NRGBA {
						x /= 4
					}
					return byte(x * 255 / n)
				})
				q := p.Resize(to, 3)
				row := q.Y.Pix
				if c.model == NRGBA {
					row = q.NRGBA().Pix
				}
				last := byte(0)
				for x := range to {
					v := row[x]
					if c.model == NRGBA {
						v = row[4*x]
					}
					if v < last {
						t.Fatalf("%v: %d to %d: %d after %d at %d", c, n, to, v, last, x)
					}
					last = v
				}
			}
		}
	}
}

// TestResizeExact compares with the definition of the filter, in floating point
// and two dimensions at once.
func TestResizeExact(t *testing.T) {
	for _, k := range []kind{{model: Gray}, {model: YCbCr, sub: Sub420}, {model: NRGBA}, {model: NRGBA, alpha: true}, {model: CMYK}} {
		p := noise(37, 29, k, 5)
		for _, to := range [][2]int{{1, 1}, {5, 9}, {18, 14}, {20, 29}, {36, 28}, {41, 60}} {
			q := p.Resize(to[0], to[1])
			check(t, q)
			if !q.planar() {
				if d := exactPixels(p, q); d > 1.01 {
					t.Errorf("%v: to %v: off by %.2f", k, to, d)
				}
				continue
			}
			sx, sy := float64(p.Width)/float64(to[0]), float64(p.Height)/float64(to[1])
			from, fw, fh := p.planes()
			into, tw, th := q.planes()
			for i := range into {
				for y := range th[i] {
					for x := range tw[i] {
						sum, weight := 0.0, 0.0
						weigh2(x, y, sx, sy, func(u, v int, w float64) {
							if u < fw[i] && v < fh[i] {
								sum, weight = sum+w*float64(from[i].row(v, fw[i])[u]), weight+w
							}
						})
						want := min(max(sum/weight, 0), 255)
						if have := float64(into[i].row(y, tw[i])[x]); math.Abs(have-want) > 1.01 {
							t.Fatalf("%v: to %v: plane %d, %d, %d: %v instead of %.2f", k, to, i, x, y, have, want)
						}
					}
				}
			}
		}
	}
}

// weigh2 calls f for all samples, of 0 and above, with a weight for x, y.
func weigh2(x, y int, sx, sy float64, f func(u, v int, w float64)) {
	cx, cy := (float64(x)+0.5)*sx-0.5, (float64(y)+0.5)*sy-0.5
	wx, wy := max(sx, 1), max(sy, 1)
	for v := max(0, int(cy-2*wy)); v <= int(cy+2*wy)+1; v++ {
		for u := max(0, int(cx-2*wx)); u <= int(cx+2*wx)+1; u++ {
			f(u, v, catmullRom((float64(u)-cx)/wx)*catmullRom((float64(v)-cy)/wy))
		}
	}
}

// exactPixels is the largest difference of colours times alpha.
func exactPixels(p, q *Picture) float64 {
	sx, sy := float64(p.Width)/float64(q.Width), float64(p.Height)/float64(q.Height)
	most := 0.0
	for y := range q.Height {
		for x := range q.Width {
			var sum [4]float64
			weight := 0.0
			weigh2(x, y, sx, sy, func(u, v int, w float64) {
				if u >= p.Width || v >= p.Height {
					return
				}
				px := p.Pix[v*p.Stride+4*u:][:4]
				a := float64(px[3]) / 255
				if p.Model == CMYK {
					a = 1
				}
				for i := range 3 {
					sum[i] += w * float64(px[i]) * a
				}
				sum[3] += w * float64(px[3])
				weight += w
			})
			px := q.Pix[y*q.Stride+4*x:][:4]
			alpha := float64(px[3]) / 255
			exact := min(max(sum[3]/weight, 0), 255)
			if q.Model == CMYK {
				alpha = 1
			}
			most = max(most, math.Abs(exact-float64(px[3])))
			for i := range 3 {
				if sum[3] <= 0 || alpha == 0 {
					continue
				}
				want := min(max(255*sum[i]/sum[3], 0), 255)
				if q.Model == CMYK {
					want = min(max(sum[i]/weight, 0), 255)
				}
				most = max(most, math.Abs(want-float64(px[i]))*alpha)
			}
		}
	}
	return most
}

func TestResizeMean(t *testing.T) {
	for _, k := range []kind{{model: NRGBA}, {model: NRGBA, alpha: true}} {
		p := pictureOf(301, 203, k, func(_, x, y int) byte {
			return byte(120 + 80*math.Sin(float64(x)/20)*math.Cos(float64(y)/17))
		})
		want := mean(p)
		for _, to := range [][2]int{{300, 200}, {151, 101}, {100, 50}, {33, 20}, {600, 406}} {
			if have := mean(p.Resize(to[0], to[1])); math.Abs(have-want) > 1 {
				t.Errorf("%v: to %v: mean %.2f instead of %.2f", k, to, have, want)
			}
		}
	}
}

// TestResizeAliasing: stripes finer than the result can show become gray.
func TestResizeAliasing(t *testing.T) {
	p := pictureOf(512, 64, kind{model: Gray}, func(_, x, _ int) byte { return byte(x % 2 * 255) })
	for _, to := range []int{100, 128, 170} {
		q := p.Resize(to, 20)
		for _, v := range q.Y.Pix[to*10+2 : to*11-2] {
			if v < 117 || v > 138 {
				t.Errorf("to %d: %d", to, v)
			}
		}
	}
}

func TestResizeKeeps(t *testing.T) {
	for _, k := range models() {
		p := noise(20, 20, k, 3)
		q := p.Resize(7, 9)
		check(t, q)
		if q.Width != 7 || q.Height != 9 {
			t.Errorf("%s: %d × %d", k.name, q.Width, q.Height)
		}
		if k.alpha {
			if q.Model != NRGBA || q.Opaque() {
				t.Errorf("%s became %d", k.name, q.Model)
			}
			continue
		}
		if q.Model != p.Model || q.Sub != p.Sub || q.Limited != p.Limited {
			t.Errorf("%s became %+v", k.name, q)
		}
	}
	// A gradient's colours stay in place relative to its luma.
	p := pictureOf(101, 10, kind{model: YCbCr, sub: Sub420}, func(plane, x, _ int) byte {
		if plane > 0 {
			return byte(2*(2*x) + 1)
		}
		return byte(2 * x)
	})
	q := p.Resize(33, 5)
	for x := 1; x < 16; x++ {
		luma := (int(q.Y.Pix[2*x]) + int(q.Y.Pix[2*x+1])) / 2
		if d := luma - int(q.Cb.Pix[x]); d > 2 || d < -2 {
			t.Errorf("at %d, chroma lies %d beside luma", x, d)
		}
	}
}
