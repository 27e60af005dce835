package icc

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"millrace/images/picture"
)

// colours makes an opaque NRGBA image of some pixels.
func colours(pixels ...[3]byte) *picture.Picture {
	p := &picture.Picture{Width: len(pixels), Height: 1, Model: picture.NRGBA, Stride: 4 * len(pixels)}
	for _, c := range pixels {
		p.Pix = append(p.Pix, c[0], c[1], c[2], 255)
	}
	return p
}

// spread makes an image of all combinations of n levels of each channel.
func spread(n int) *picture.Picture {
	var pixels [][3]byte
	for i := range n * n * n {
		level := func(k int) byte { return byte(k % n * 255 / (n - 1)) }
		pixels = append(pixels, [3]byte{level(i), level(i / n), level(i / n / n)})
	}
	return colours(pixels...)
}

func convertTo(t testing.TB, data []byte, pic *picture.Picture) *picture.Picture {
	t.Helper()
	pic.ICC = data
	out, err := mustParse(t, data).ToSRGB(pic)
	if err != nil {
		t.Fatal(err)
	}
	if out.ICC != nil || out.Width != pic.Width || out.Height != pic.Height || out == pic {
		t.Fatalf("%d × %d with a profile of %d bytes", out.Width, out.Height, len(out.ICC))
	}
	return out
}

// compare holds every pixel of out against what want makes of the pixel of in.
func compare(t *testing.T, name string, in, out *picture.Picture, tolerance float64, want func([3]byte) [3]float64) {
	t.Helper()
	worst, faults := 0.0, 0
	for y := range in.Height {
		a, b := row(in, y), row(out, y)
		for i := 0; i < len(a); i += 4 {
			w := want([3]byte(a[i:]))
			off := 0.0
			for j := range 3 {
				off = max(off, math.Abs(float64(b[i+j])-w[j]))
			}
			worst = max(worst, off)
			if off > tolerance {
				if faults++; faults < 5 {
					t.Errorf("%s: %v became %v, want %.1f", name, a[i:i+4], b[i:i+3], w)
				}
			}
			if b[i+3] != a[i+3] {
				t.Fatalf("%s: alpha %d became %d", name, a[i+3], b[i+3])
			}
		}
	}
	t.Logf("%s: at most %.2f off", name, worst)
}

// rgbSpaces are the spaces that images come in.
func rgbSpaces() []struct {
	name  string
	prim  primaries
	light func(float64) float64
	para  []byte
} {
	return []struct {
		name  string
		prim  primaries
		light func(float64) float64
		para  []byte
	}{
		{"sRGB", primSRGB, lightSRGB, paraSRGB()},
		{"Display P3", primP3, lightSRGB, paraSRGB()},
		{"Adobe RGB (1998)", primAdobe, lightPower(563. / 256), tagGamma(563. / 256)},
		{"ProPhoto", primProPhoto, lightROMM, tagPara(3, 1.8, 1, 0, 1./16, 16*0.001953125)},
		{"Rec. 2020", prim2020, light2020, tagPara(3, 1/0.45, 1/1.0993, 0.0993/1.0993, 1/4.5, 0.08145)},
		{"power of 1.8", primSRGB, lightPower(1.8), tagPara(0, 1.8)},
		{"power of 2.2", primSRGB, lightPower(2.2), tagPara(0, 2.2)},
	}
}

func TestMatrixProfiles(t *testing.T) {
	for _, s := range rgbSpaces() {
		in := spread(18)
		want := s.prim.reference(s.light)
		v2 := convertTo(t, matrixProfile(2, s.prim.toD50(), tagTable(4096, s.light)), in)
		v4 := convertTo(t, matrixProfile(4, s.prim.toD50(), s.para), in)
		compare(t, s.name+", version 2", in, v2, 1.2, want)
		compare(t, s.name+", version 4", in, v4, 1.2, want)
		for i := range v2.Pix {
			if d := int(v2.Pix[i]) - int(v4.Pix[i]); d < -1 || d > 1 {
				t.Fatalf("%s: versions 2 and 4 differ at byte %d: %d and %d", s.name, i, v2.Pix[i], v4.Pix[i])
			}
		}
		ends := convertTo(t, matrixProfile(4, s.prim.toD50(), s.para), colours([3]byte{255, 255, 255}, [3]byte{}))
		if want := []byte{255, 255, 255, 255, 0, 0, 0, 255}; !bytes.Equal(ends.Pix, want) {
			t.Errorf("%s: white and black became %v", s.name, ends.Pix)
		}
		var grays [][3]byte
		for i := range 256 {
			grays = append(grays, [3]byte{byte(i), byte(i), byte(i)})
		}
		toned := convertTo(t, matrixProfile(4, s.prim.toD50(), s.para), colours(grays...)).Pix
		for v := toned; len(v) != 0; v = v[4:] {
			if v[0] != v[1] || v[1] != v[2] {
				t.Errorf("%s: gray %d became %v", s.name, 255-len(v)/4+1, v[:3])
			}
		}
	}
}

// Values that other programs publish or show: they guard against the same
// mistake in the reference and in the package.
func TestKnownColours(t *testing.T) {
	p3 := matrixProfile(4, primP3.toD50(), paraSRGB())
	adobe := matrixProfile(2, primAdobe.toD50(), tagGamma(563./256))
	proPhoto := matrixProfile(4, primProPhoto.toD50(), tagPara(0, 1.8))
	for _, c := range []struct {
		name     string
		data     []byte
		in, want [3]byte
	}{
		{"P3 red", p3, [3]byte{255, 0, 0}, [3]byte{255, 0, 0}},
		{"P3 green", p3, [3]byte{0, 255, 0}, [3]byte{0, 255, 0}},
		{"P3 of sRGB's red", p3, [3]byte{234, 51, 35}, [3]byte{255, 0, 0}},
		{"P3 of sRGB's green", p3, [3]byte{117, 251, 76}, [3]byte{0, 255, 0}},
		{"P3 of sRGB's blue", p3, [3]byte{0, 0, 245}, [3]byte{0, 0, 255}},
		{"Adobe of sRGB's red", adobe, [3]byte{219, 0, 0}, [3]byte{255, 0, 0}},
		{"Adobe of sRGB's green", adobe, [3]byte{144, 255, 60}, [3]byte{0, 255, 1}},
		{"Adobe (128,200,64)", adobe, [3]byte{128, 200, 64}, [3]byte{77, 201, 44}},
		{"ProPhoto of sRGB's red", proPhoto, [3]byte{179, 70, 26}, [3]byte{255, 0, 0}},
		{"ProPhoto of sRGB's blue", proPhoto, [3]byte{85, 35, 235}, [3]byte{0, 0, 255}},
	} {
		out := convertTo(t, c.data, colours(c.in)).Pix
		for i := range 3 { // dark channels move by several levels with a rounding of the source
			tolerance := 2
			if c.want[i] < 2 {
				tolerance = 14
			}
			if d := int(out[i]) - int(c.want[i]); d < -tolerance || d > tolerance {
				t.Errorf("%s: %v became %v, want %v", c.name, c.in, out[:3], c.want)
				break
			}
		}
	}
}

func TestSourceIsLeftAlone(t *testing.T) {
	in := spread(4)
	for i := range in.Pix {
		if i%4 == 3 {
			in.Pix[i] = byte(i)
		}
	}
	before := bytes.Clone(in.Pix)
	out := convertTo(t, matrixProfile(4, primP3.toD50(), paraSRGB()), in)
	if !bytes.Equal(in.Pix, before) {
		t.Error("the source has changed")
	}
	for i := 3; i < len(before); i += 4 {
		if out.Pix[i] != before[i] {
			t.Fatalf("alpha %d became %d", before[i], out.Pix[i])
		}
	}
}

func TestYCbCr(t *testing.T) {
	in := picture.New(16, 9, picture.YCbCr, picture.Sub420)
	for i := range in.Y.Pix {
		in.Y.Pix[i] = byte(40 + i)
	}
	for i := range in.Cb.Pix {
		in.Cb.Pix[i], in.Cr.Pix[i] = byte(90+i), byte(160-i)
	}
	luma := bytes.Clone(in.Y.Pix)
	data := matrixProfile(4, primP3.toD50(), paraSRGB())
	out, want := convertTo(t, data, in), convertTo(t, data, in.NRGBA())
	if out.Model != picture.NRGBA || !bytes.Equal(out.Pix, want.Pix) {
		t.Error("YCbCr and its NRGBA come out different")
	}
	if !bytes.Equal(in.Y.Pix, luma) {
		t.Error("the source has changed")
	}
}

func TestStride(t *testing.T) {
	whole := spread(6) // 216 pixels
	data := matrixProfile(2, primAdobe.toD50(), tagGamma(2.2))
	want := convertTo(t, data, whole)
	part := &picture.Picture{Width: 7, Height: 10, Model: picture.NRGBA, Stride: 4 * 20, Pix: whole.Pix[4*3 : 4*(3+9*20+7)]}
	got := convertTo(t, data, part)
	for y := range 10 {
		if !bytes.Equal(row(got, y), want.Pix[4*(3+20*y):][:4*7]) {
			t.Errorf("row %d is wrong", y)
		}
	}
}

// ramp is a Gray image of all levels, with alpha.
func ramp() *picture.Picture {
	p := &picture.Picture{Width: 256, Height: 2, Model: picture.Gray}
	p.Y.Stride, p.A.Stride = 256, 256
	for i := range 512 {
		p.Y.Pix = append(p.Y.Pix, byte(i))
		p.A.Pix = append(p.A.Pix, byte(255-i))
	}
	return p
}

func TestGray(t *testing.T) {
	lstar := func(x float64) float64 { // from signal to light
		if x > 0.08 {
			y := (100*x + 16) / 116
			return y * y * y
		}
		return 100 * x * 27 / 24389
	}
	for _, c := range []struct {
		name  string
		data  []byte
		light func(float64) float64
	}{
		{"1.8", grayProfile("XYZ ", tagGamma(1.8)), lightPower(1.80078125)},
		{"sRGB", grayProfile("XYZ ", tagTable(1024, lightSRGB)), lightSRGB},
		{"lightness", grayProfile("Lab ", tagGamma(1)), lstar},
		{"RGB profile", matrixProfile(4, primProPhoto.toD50(), tagPara(0, 1.8)), lightPower(1.8)},
		{"table", build("2 prtr GRAYLab ", tag{"A2B0", tagMFT(2, 1, 33, func(d []float64) [3]float64 {
			return lab16([3]float64{100 * d[0], 0, 0})
		}, same, same)}), lstar},
	} {
		in := ramp()
		out := convertTo(t, c.data, in)
		if out.Model != picture.Gray {
			t.Errorf("%s: became %v", c.name, out.Model)
			continue
		}
		for i, v := range out.Y.Pix {
			want := 255 * signalSRGB(c.light(float64(byte(i))/255))
			if math.Abs(float64(v)-want) > 0.6 {
				t.Errorf("%s: %d became %d, want %.2f", c.name, byte(i), v, want)
			}
		}
		if !bytes.Equal(out.A.Pix, in.A.Pix) {
			t.Errorf("%s: alpha is not kept", c.name)
		}
	}
}

func TestGrayLimited(t *testing.T) {
	in := ramp()
	in.Limited = true
	out := convertTo(t, grayProfile("XYZ ", tagGamma(2.2)), in)
	full := convertTo(t, grayProfile("XYZ ", tagGamma(2.2)), ramp())
	if out.Limited {
		t.Error("still limited")
	}
	for _, c := range [][2]int{{0, 0}, {16, 0}, {126, 128}, {235, 255}, {255, 255}} {
		if got, want := out.Y.Pix[c[0]], full.Y.Pix[c[1]]; got != want {
			t.Errorf("%d became %d, want %d", c[0], got, want)
		}
	}
}

// A toned gray becomes a colour image, and a gray profile fits NRGBA without
// colours: both keep alpha.
func TestGrayAndColours(t *testing.T) {
	sepia := build("2 prtr GRAYLab ", tag{"A2B1", tagMFT(1, 1, 17, func(d []float64) [3]float64 {
		return lab8([3]float64{100 * d[0], 10, 20})
	}, same, same)})
	in := ramp()
	out := convertTo(t, sepia, in)
	if out.Model != picture.NRGBA || out.Pix[4*128] <= out.Pix[4*128+2]+20 || out.Pix[4*128+3] != in.A.Pix[128] {
		t.Errorf("sepia became model %v, %v", out.Model, out.Pix[4*128:][:4])
	}
	pixels := colours([3]byte{100, 100, 100}, [3]byte{200, 200, 201})
	pixels.Pix[3] = 7
	got := convertTo(t, grayProfile("XYZ ", tagGamma(1.8)), pixels)
	want := convertTo(t, grayProfile("XYZ ", tagGamma(1.8)), ramp()).Y.Pix
	if v := got.Pix; v[0] != want[100] || v[2] != want[100] || v[3] != 7 || v[4] != want[200] || v[6] != want[200] {
		t.Errorf("gray pixels became %v", v)
	}
}

func TestUnsupported(t *testing.T) {
	rgb, gray := spread(2), ramp()
	cmyk := &picture.Picture{Width: 1, Height: 1, Model: picture.CMYK, Pix: make([]byte, 4), Stride: 4}
	p3 := p3Tags()
	ink := build("2 prtr CMYKLab ", tag{"A2B0", tagMFT(1, 4, 2, func([]float64) [3]float64 { return [3]float64{} }, same, same)})
	for _, c := range []struct {
		data []byte
		pic  *picture.Picture
		want string
	}{
		{build("2 nmcl RGB Lab "), rgb, "named colours"},
		{build("2 link RGB RGB ", p3...), rgb, "device link"},
		{build("2 abst RGB Lab ", p3...), rgb, "abstract"},
		{build("4 prtr 6CLRLab "), rgb, "6 colour channels"},
		{build("4 spac Lab XYZ "), rgb, `colours of kind "Lab "`},
		{build("4 spac HSV XYZ "), cmyk, `colours of kind "HSV "`},
		{build("5 mntr RGB XYZ ", p3...), rgb, "ICC version 5"},
		{build("4 mntr RGB XYZ ", p3...), cmyk, "for RGB"},
		{ink, rgb, "for CMYK"},
		{ink, gray, "for CMYK"},
		{grayProfile("XYZ ", tagGamma(2)), rgb, "has colours"},
		{grayProfile("XYZ ", tagGamma(2)), cmyk, "for gray"},
	} {
		p := mustParse(t, c.data)
		out, err := p.ToSRGB(c.pic)
		if out != nil || !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want ErrUnsupported with %q", err, c.want)
		}
		if p.unsupported != "" && p.IsSRGB() {
			t.Errorf("%s is taken for sRGB", c.want)
		}
	}
}

// noise is an image of random pixels, large enough for the grid to be used.
func noise(m picture.Model, width, height int) *picture.Picture {
	p := &picture.Picture{Width: width, Height: height, Model: m, Stride: 4 * width, Pix: make([]byte, 4*width*height)}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range p.Pix {
		p.Pix[i] = byte(r.Uint32())
	}
	return p
}
