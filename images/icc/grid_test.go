package icc

import (
	"bytes"
	"math"
	"testing"

	"millrace/images/picture"
)

// p3XYZ makes the way from Display P3 to XYZ under D50.
func p3XYZ() colour {
	m := primP3.toD50()
	return func(d []float64) [3]float64 {
		return m.mul([3]float64{lightSRGB(d[0]), lightSRGB(d[1]), lightSRGB(d[2])})
	}
}

func encodeXYZ(v [3]float64) [3]float64 {
	for i := range v {
		v[i] *= 32768. / 65535
	}
	return v
}

// Display P3 as tables of every kind comes out as it does by its primaries.
func TestTablesOfRGB(t *testing.T) {
	p3, m := p3XYZ(), primP3.toD50()
	inLab8 := func(d []float64) [3]float64 { return lab8(labOf(p3(d))) }
	inLab16 := func(d []float64) [3]float64 { return lab16(labOf(p3(d))) }
	inXYZ := func(d []float64) [3]float64 { return encodeXYZ(p3(d)) }
	linearXYZ := func(d []float64) [3]float64 { return encodeXYZ(m.mul([3]float64(d))) }
	half := 32768. / 65535
	line := func(g float64) [][]byte { return repeat(tagPara(0, g), 3) }
	square, root := lightPower(2), lightPower(0.5)
	for _, c := range []struct {
		name      string
		data      []byte
		tolerance float64
	}{
		// Its steps of half a percent of lightness are seen in the dark.
		{"mft1, Lab", build("2 mntr RGB Lab ", tag{"A2B0", tagMFT(1, 3, 33, inLab8, same, same)}), 14},
		{"mft2, Lab", build("2 mntr RGB Lab ", tag{"A2B0", tagMFT(2, 3, 33, inLab16, same, same)}), 3},
		{"mft2, Lab, version 4", build("4 mntr RGB Lab ", tag{"A2B1", tagMFT(2, 3, 33, inLab16, same, same)}), 3},
		{"mft2, Lab, curves", build("2 mntr RGB Lab ", tag{"A2B0", tagMFT(2, 3, 33, func(d []float64) [3]float64 {
			v := inLab16([]float64{square(d[0]), square(d[1]), square(d[2])})
			return [3]float64{square(v[0]), square(v[1]), square(v[2])}
		}, root, root)}), 8},
		{"mft2, XYZ, linear by curves", build("2 mntr RGB XYZ ", tag{"A2B0", tagMFT(2, 3, 2, linearXYZ, lightSRGB, same)}), 6},
		{"mAB, Lab", build("4 mntr RGB Lab ", tag{"A2B1", tagMAB(3, elements{
			a: line(1), points: 33, width: 2, grid: inLab8, m: line(1), b: line(1), matrix: []float64{1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0},
		})}), 3},
		{"mAB, XYZ", build("4 mntr RGB XYZ ", tag{"A2B0", tagMAB(3, elements{a: line(1), points: 33, width: 2, grid: inXYZ, b: line(1)})}), 4},
		{"mAB, matrix only", build("4 mntr RGB XYZ ", tag{"A2B0", tagMAB(3, elements{
			m: repeat(paraSRGB(), 3), b: line(1), matrix: []float64{
				half * m[0][0], half * m[0][1], half * m[0][2], half * m[1][0], half * m[1][1], half * m[1][2],
				half * m[2][0], half * m[2][1], half * m[2][2], 0, 0, 0,
			},
		})}), 3},
		{"A2B1 before A2B0 and matrix", build("4 mntr RGB XYZ ", append(p3Tags()[1:],
			tag{"A2B0", tagMAB(3, elements{b: line(1)})},
			tag{"A2B1", tagMFT(2, 3, 2, linearXYZ, lightSRGB, same)})...), 6},
	} {
		p := mustParse(t, c.data)
		if p.IsSRGB() {
			t.Errorf("%s: taken for sRGB", c.name)
		}
		want := primP3.reference(lightSRGB)
		for _, in := range []*picture.Picture{spread(8), noise(picture.NRGBA, 200, 180)} { // exact, and by the grid
			ends := []byte{255, 255, 255, 255, 0, 0, 0, 255}
			copy(in.Pix, ends)
			out := convertTo(t, c.data, in)
			compare(t, c.name, in, out, c.tolerance, want)
			if !bytes.Equal(out.Pix[:8], ends) {
				t.Errorf("%s: white and black became %v", c.name, out.Pix[:8])
			}
		}
	}
}

// press is a printing press that exists on paper only: each ink takes away
// light of one sRGB primary by a power, black from all; never all of it, as real ones.
func press(d []float64) [3]float64 {
	var lin [3]float64
	for i := range lin {
		lin[i] = math.Pow((1-0.75*d[i])*(1-0.8*d[3]), 2.2)
	}
	return lin
}

func pressLab() colour {
	m := primSRGB.toD50()
	return func(d []float64) [3]float64 { return labOf(m.mul(press(d))) }
}

func TestTablesOfCMYK(t *testing.T) {
	line := func(n int) [][]byte { return repeat(tagPara(0, 1), n) }
	lab := pressLab()
	inLab8 := func(d []float64) [3]float64 { return lab8(lab(d)) }
	inLab16 := func(d []float64) [3]float64 { return lab16(lab(d)) }
	var results [][]byte
	// A grid of 9 points is itself two levels off in the shadows.
	for _, c := range []struct {
		name      string
		data      []byte
		tolerance float64
	}{
		{"mft1", build("2 prtr CMYKLab ", tag{"A2B0", tagMFT(1, 4, 11, inLab8, same, same)}), 5},
		{"mft2", build("2 prtr CMYKLab ", tag{"A2B1", tagMFT(2, 4, 9, inLab16, same, same)}), 4},
		{"mft2 with curves", build("2 prtr CMYKLab ", tag{"A2B1", tagMFT(2, 4, 9, func(d []float64) [3]float64 {
			return inLab16([]float64{d[0] * d[0], d[1] * d[1], d[2] * d[2], d[3] * d[3]})
		}, math.Sqrt, same)}), 6},
		{"mAB of 2 bytes", build("4 prtr CMYKLab ", tag{"A2B1", tagMAB(4, elements{a: line(4), points: 9, width: 2, grid: inLab8, b: line(3)})}), 4},
		{"mAB of 1 byte", build("4 prtr CMYKLab ", tag{"A2B0", tagMAB(4, elements{a: line(4), points: 17, width: 1, grid: inLab8, b: line(3)})}), 5},
	} {
		for _, in := range []*picture.Picture{noise(picture.CMYK, 60, 50), noise(picture.CMYK, 300, 300)} { // exact, and by the grid
			copy(in.Pix, []byte{0, 0, 0, 0, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 255})
			out := convertTo(t, c.data, in)
			worst := 0.0
			for i := 0; i < len(in.Pix); i += 4 {
				d := make([]float64, 4)
				for j := range d {
					d[j] = float64(in.Pix[i+j]) / 255
				}
				for j, light := range press(d) {
					off := math.Abs(float64(out.Pix[i+j]) - 255*signalSRGB(light))
					if worst = max(worst, off); off > c.tolerance {
						t.Fatalf("%s: ink %v became %v, channel %d should be %.1f", c.name, in.Pix[i:i+4], out.Pix[i:i+3], j, 255*signalSRGB(light))
					}
				}
				if out.Pix[i+3] != 255 {
					t.Fatalf("%s: alpha is %d", c.name, out.Pix[i+3])
				}
			}
			t.Logf("%s: at most %.2f off", c.name, worst)
			if white := out.Pix[:4]; !bytes.Equal(white, []byte{255, 255, 255, 255}) {
				t.Errorf("%s: paper became %v", c.name, white)
			}
			if c.name == "mft2" || c.name == "mAB of 2 bytes" {
				results = append(results, out.Pix)
			}
		}
	}
	for i := range results[1] { // versions 2 and 4
		if d := int(results[1][i]) - int(results[3][i]); d < -1 || d > 1 {
			t.Fatalf("versions 2 and 4 differ at byte %d: %d and %d", i, results[1][i], results[3][i])
		}
	}
}

// The grid's interpolation against a function that it can follow exactly.
func TestSimplexIsLinear(t *testing.T) {
	s := &simplex{inputs: 4, nodes: make([]uint64, 81)}
	for i := range s.nodes {
		k, y, m, c := i%3, i/3%3, i/9%3, i/27
		for j, sum := range []int{6*c + m, y + 3*k, 1 + c + m + y + k} {
			s.nodes[i] |= uint64(100*sum) << (j * nodeField)
		}
	}
	step := uint64(1)
	for j := 3; j >= 0; j-- {
		for v := range 256 {
			pos := v * 2 // in 256ths of a cell, of 512
			cell := min(pos>>8, 1)
			s.axes[j][v] = axis{base: uint64(cell) * step, key: uint64(pos-cell<<8)<<32 | step}
		}
		step *= 3
	}
	for i := range s.out {
		s.out[i] = byte(i / 100)
	}
	in := noise(picture.CMYK, 100, 100)
	out := newNRGBA(in)
	s.rows(out, in)
	for i := 0; i < len(in.Pix); i += 4 {
		f := func(j int) float64 { return float64(in.Pix[i+j]) / 128 }
		want := []float64{6*f(0) + f(1), f(2) + 3*f(3), 1 + f(0) + f(1) + f(2) + f(3)}
		got := out.Pix[i : i+4]
		for j := range want {
			if d := want[j] - float64(got[j]); d < -0.01 || d > 1 {
				t.Fatalf("%v: %v, want %v", in.Pix[i:i+4], got, want)
			}
		}
	}
}

func TestCompand(t *testing.T) {
	for i := -200; i <= 360; i++ {
		x := float64(i) / 100
		if got := expand(compand(x)); math.Abs(got-x) > 1e-9 {
			t.Errorf("%v came back as %v", x, got)
		}
	}
	if math.Abs(compand(1)-1) > 1e-9 || compand(0) != 0 {
		t.Errorf("ends at %v and %v", compand(0), compand(1))
	}
}

func TestGridPoints(t *testing.T) {
	for _, c := range []struct{ inputs, own, want int }{
		{3, 2, 33},
		{3, 9, 33},
		{3, 17, 33},
		{3, 31, 61},
		{3, 33, 33},
		{3, 50, 50},
		{3, 255, 33},
		{4, 2, 17},
		{4, 9, 17},
		{4, 11, 21},
		{4, 16, 17},
		{4, 17, 17},
		{4, 33, 17},
	} {
		l := &lut{inputs: c.inputs, grid: &clut{points: [maxInputs]int{c.own, 2, 2, 2}}}
		if got := l.points(); got != c.want {
			t.Errorf("%d inputs, %d points: %d, want %d", c.inputs, c.own, got, c.want)
		}
	}
	if got := (&lut{inputs: 3}).points(); got != 33 {
		t.Errorf("without a grid: %d", got)
	}
}
