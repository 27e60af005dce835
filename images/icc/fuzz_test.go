package icc

import (
	"errors"
	"math"
	"testing"

	"millrace/images/picture"
)

// FuzzParse: whatever the bytes, no panic, and an image or an error.
func FuzzParse(f *testing.F) {
	zero := func(d []float64) [3]float64 { return [3]float64{d[0], 0.5, 0.5} }
	m := primP3.toD50()
	f.Add(matrixProfile(2, m, tagGamma(2.2)))
	f.Add(matrixProfile(2, m, tagTable(26, lightSRGB)))
	f.Add(matrixProfile(4, m, paraSRGB()))
	f.Add(matrixProfile(4, m, tagPara(4, 2, 1, 0, 0.5, 0.5, 0.25, 0.125)))
	f.Add(matrixProfile(4, mat{{1e4, -1e4, 1}, {1, 1, -1}, {1e4, 0, -1e4}}, tagPara(1, -3, 1, -1)))
	f.Add(grayProfile("Lab ", tagPara(2, 2, 1, 0, 0.1)))
	f.Add(build("4 mntr RGB Lab ", tag{"desc", tagDesc4("deDE", "ü", "enUS", "u")}, tag{"A2B0", tagMFT(1, 3, 2, zero, same, same)}))
	f.Add(build("2 prtr CMYKLab ", tag{"A2B1", tagMFT(1, 4, 2, zero, same, same)}))
	f.Add(build("2 prtr GRAYLab ", tag{"A2B1", tagMFT(2, 1, 2, zero, same, same)}))
	line := func(n int) [][]byte { return repeat(tagGamma(1), n) }
	f.Add(build("4 prtr CMYKLab ", tag{"A2B1", tagMAB(4, elements{a: line(4), points: 2, width: 1, grid: zero, b: line(3)})}))
	f.Add(build("4 mntr RGB XYZ ", tag{"A2B1", tagMAB(3, elements{
		a: line(3), points: 3, width: 2, grid: zero, m: line(3), b: line(3), matrix: []float64{9, 8, 7, 6, 5, 4, 3, 2, 1, 0, -1, -2},
	})}))
	f.Add(build("2 link RGB RGB "))
	f.Add(heavyMatrixProfile(2, m, tagTable(600, lightSRGB)))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse(data)
		if err != nil {
			if p != nil || !errors.Is(err, ErrBroken) {
				t.Fatalf("%v, %v", p, err)
			}
			return
		}
		if len(p.Description) > maxDescription {
			t.Fatalf("a description of %d bytes", len(p.Description))
		}
		p.IsSRGB()
		if compact := p.Compact(); compact != nil {
			q, err := Parse(compact)
			if err != nil || q.table != nil || len(compact) > len(data) {
				t.Fatalf("the short form, of %d bytes, is %+v, %v", len(compact), q, err)
			}
			for _, v := range [][maxInputs]float64{{0, 0.2, 0.4}, {1, 0.6, 0.8}} {
				long, short := p.xyz(v), q.xyz(v)
				for i := range long {
					if math.Abs(long[i]-short[i]) > 1e-4*max(1, math.Abs(p.matrix[i][0])+math.Abs(p.matrix[i][1])+math.Abs(p.matrix[i][2])) {
						t.Fatalf("%v is %v by the profile and %v by its short form", v, long, short)
					}
				}
			}
		}
		cmyk := spread(3)
		cmyk.Model = picture.CMYK
		for _, pic := range []*picture.Picture{spread(3), cmyk, ramp()} {
			out, err := p.ToSRGB(pic)
			switch {
			case err != nil && (out != nil || !errors.Is(err, ErrUnsupported)):
				t.Fatalf("%v, %v", out, err)
			case err == nil && (out.Width != pic.Width || out.Height != pic.Height || out.ICC != nil):
				t.Fatalf("became %d × %d", out.Width, out.Height)
			}
		}
		if p.table != nil { // what the small images do without
			s := p.newSimplex(&picture.Picture{Width: 1000, Height: 1000})
			s.rows(spread(5), spread(5))
		}
	})
}
