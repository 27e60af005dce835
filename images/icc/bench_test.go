package icc

import (
	"testing"

	"millrace/images/picture"
)

// scene is an image of a megapixel whose neighbours are alike, as in
// photographs.
func scene(m picture.Model) *picture.Picture {
	p := noise(m, 1000, 1000)
	for i := range p.Pix {
		p.Pix[i] = p.Pix[i]&7 + byte(i/40%200+i/4000/20%40)
	}
	return p
}

func benchmark(b *testing.B, data []byte, pic *picture.Picture) {
	p := mustParse(b, data)
	b.SetBytes(1e6) // so MB/s is megapixels a second
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.ToSRGB(pic); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMatrix(b *testing.B) {
	benchmark(b, matrixProfile(4, primP3.toD50(), paraSRGB()), scene(picture.NRGBA))
}

func BenchmarkYCbCr(b *testing.B) {
	pic := picture.New(1000, 1000, picture.YCbCr, picture.Sub420)
	for i := range pic.Y.Pix {
		pic.Y.Pix[i] = byte(i)
	}
	benchmark(b, matrixProfile(4, primP3.toD50(), paraSRGB()), pic)
}

func BenchmarkGray(b *testing.B) {
	pic := picture.New(1000, 1000, picture.Gray, 0)
	benchmark(b, grayProfile("XYZ ", tagGamma(1.8)), pic)
}

func BenchmarkTableRGB(b *testing.B) {
	p3 := p3XYZ()
	grid := func(d []float64) [3]float64 { return lab16(labOf(p3(d))) }
	benchmark(b, build("2 mntr RGB Lab ", tag{"A2B0", tagMFT(2, 3, 17, grid, same, same)}), scene(picture.NRGBA))
}

func pressProfile() []byte {
	lab := pressLab()
	grid := func(d []float64) [3]float64 { return lab16(lab(d)) }
	return build("2 prtr CMYKLab ", tag{"A2B0", tagMFT(2, 4, 9, grid, same, same)})
}

func BenchmarkTableCMYK(b *testing.B) { benchmark(b, pressProfile(), scene(picture.CMYK)) }

// BenchmarkGridCMYK is what BenchmarkTableCMYK does once an image.
func BenchmarkGridCMYK(b *testing.B) {
	p := mustParse(b, pressProfile())
	for b.Loop() {
		p.newSimplex(&picture.Picture{Width: 1000, Height: 1000})
	}
}

func BenchmarkParse(b *testing.B) {
	data := matrixProfile(2, primSRGB.toD50(), tagTable(1024, lightSRGB))
	b.ReportAllocs()
	for b.Loop() {
		if p, err := Parse(data); err != nil || !p.IsSRGB() {
			b.Fatal(err)
		}
	}
}
