package picture

import "testing"

func TestOrientMovesPixels(t *testing.T) {
	each(t, func(t *testing.T, p *Picture, _ kind) {
		n := p.NRGBA()
		for o := 0; o <= 9; o++ {
			var q *Picture
			unchanged(t, p, func() { q = p.Orient(o) })
			// Where EXIF says that the first row and column of what is stored
			// are seen: orientation, and the pixel shown at x, y.
			w, h := p.Width, p.Height
			at := map[int]func(x, y int) (int, int){
				2: func(x, y int) (int, int) { return w - 1 - x, y },
				3: func(x, y int) (int, int) { return w - 1 - x, h - 1 - y },
				4: func(x, y int) (int, int) { return x, h - 1 - y },
				5: func(x, y int) (int, int) { return y, x },
				6: func(x, y int) (int, int) { return y, h - 1 - x },
				7: func(x, y int) (int, int) { return w - 1 - y, h - 1 - x },
				8: func(x, y int) (int, int) { return w - 1 - y, x },
			}[o]
			if at == nil {
				if q != p {
					t.Fatalf("orientation %d makes another picture", o)
				}
				continue
			}
			if o >= 5 {
				w, h = h, w
			}
			want := New(w, h, NRGBA, Sub444)
			for y := range h {
				for x := range w {
					sx, sy := p.Width, p.Height
					w, h = sx, sy
					sx, sy = at(x, y)
					copy(want.Pix[y*want.Stride+4*x:][:4], n.Pix[sy*n.Stride+4*sx:])
				}
				w, h = want.Width, want.Height
			}
			if d := difference(t, q.NRGBA(), want); d != 0 {
				t.Errorf("%d × %d, orientation %d: differs by %d", p.Width, p.Height, o, d)
			}
		}
	})
}

func TestOrientAndBack(t *testing.T) {
	each(t, func(t *testing.T, p *Picture, _ kind) {
		for o, back := range []int{1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 8, 7: 7, 8: 6} {
			q := p.Orient(o).Orient(back)
			if d := difference(t, q.NRGBA(), p.NRGBA()); d != 0 {
				t.Errorf("%d × %d: %d and %d differ by %d", p.Width, p.Height, o, back, d)
			}
			if p.Width%2 == 0 && p.Height%2 == 0 && difference(t, q, p) != 0 {
				t.Errorf("%d × %d: %d and %d change samples", p.Width, p.Height, o, back)
			}
		}
	})
}

func TestOrientSubsampling(t *testing.T) {
	for _, c := range []struct {
		sub    Subsampling
		w, h   int
		exif   int
		result Subsampling
	}{
		{Sub422, 8, 8, 6, Sub440},
		{Sub440, 8, 8, 8, Sub422},
		{Sub420, 8, 8, 5, Sub420},
		{Sub420, 7, 8, 2, Sub440}, // columns begin with the lone one
		{Sub420, 7, 8, 4, Sub420},
		{Sub420, 7, 7, 3, Sub444},
		{Sub420, 8, 7, 6, Sub440}, // rows become columns
	} {
		q := New(c.w, c.h, YCbCr, c.sub).Orient(c.exif)
		if q.Sub != c.result {
			t.Errorf("%v became %d", c, q.Sub)
		}
	}
}
