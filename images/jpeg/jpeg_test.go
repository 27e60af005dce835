package jpeg

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	stdjpeg "image/jpeg"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"millrace/images/picture"
)

// stdPictures are the JPEG files among the test images of the standard library.
func stdPictures(t testing.TB) map[string][]byte {
	t.Helper()
	pictures := map[string][]byte{}
	for _, pattern := range []string{"src/image/testdata/*.jpeg", "src/image/jpeg/testdata/*.jpeg"} {
		names, err := filepath.Glob(filepath.Join(runtime.GOROOT(), pattern)) //nolint:staticcheck // where else
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			pictures[filepath.Base(name)] = data
		}
	}
	if len(pictures) == 0 {
		t.Skip("no test pictures of the standard library at GOROOT")
	}
	return pictures
}

// TestStandardPictures compares with image/jpeg on its own test pictures.
func TestStandardPictures(t *testing.T) {
	for name, data := range stdPictures(t) {
		t.Run(name, func(t *testing.T) {
			matchStd(t, data)
			// Of the truncated one, scans are missing and no data.
			if _, err := Decode(data, Options{Whole: true}); err != nil {
				t.Errorf("as a whole: %v", err)
			}
		})
	}
}

// TestSizes decodes images of all small sizes, so with MCUs that hang over.
func TestSizes(t *testing.T) {
	whole := drawn(70, 70)
	for size := 1; size < 36; size++ {
		rect := image.Rect(20, 20, 20+size, 20+37-size)
		m := whole.SubImage(rect)
		matchStd(t, encode(t, m, 75+size%25))
		grayscale := image.NewGray(rect)
		draw.Draw(grayscale, rect, m, rect.Min, draw.Src)
		matchStd(t, encode(t, grayscale, 60+size))
	}
}

// TestStrong decodes what leaves the range of samples and is clamped.
func TestStrong(t *testing.T) {
	m := image.NewRGBA(image.Rect(0, 0, 64, 64))
	random := rand.New(rand.NewPCG(3, 4))
	for i := range m.Pix {
		m.Pix[i] = uint8(random.IntN(2) * 255)
	}
	for _, quality := range []int{1, 10, 50, 100} {
		matchStd(t, encode(t, m, quality))
	}
}

// matchStd decodes a file as image/jpeg does, or nearly.
func matchStd(t *testing.T, data []byte) {
	t.Helper()
	want, err := stdjpeg.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("image/jpeg: %v", err)
	}
	got, err := Decode(data, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := sound(got); err != nil {
		t.Fatal(err)
	}
	if err := differ(got, want, 2, false); err != nil {
		t.Error(err)
	}
}

// sound checks what an image promises.
func sound(p *picture.Picture) error {
	check := func(name string, plane picture.Plane, width, height int) error {
		if plane.Stride < width || len(plane.Pix) < plane.Stride*height {
			return fmt.Errorf("plane %s: %d bytes in rows of %d for %d × %d", name, len(plane.Pix), plane.Stride, width, height)
		}
		return nil
	}
	switch p.Model {
	case picture.Gray:
		return check("Y", p.Y, p.Width, p.Height)
	case picture.YCbCr:
		sx, sy := subsampling(p)
		width, height := ceilDiv(p.Width, sx), ceilDiv(p.Height, sy)
		return errors.Join(check("Y", p.Y, p.Width, p.Height), check("Cb", p.Cb, width, height), check("Cr", p.Cr, width, height))
	}
	if p.Stride < 4*p.Width || len(p.Pix) < p.Stride*p.Height {
		return fmt.Errorf("%d bytes in rows of %d for %d × %d", len(p.Pix), p.Stride, p.Width, p.Height)
	}
	return nil
}

func subsampling(p *picture.Picture) (sx, sy int) {
	switch p.Sub {
	case picture.Sub422:
		return 2, 1
	case picture.Sub420:
		return 2, 2
	case picture.Sub440:
		return 1, 2
	}
	return 1, 1
}

// sampleOf returns one channel of a pixel.
func sampleOf(p *picture.Picture, x, y, channel int) uint8 {
	switch {
	case p.Model == picture.NRGBA || p.Model == picture.CMYK:
		return p.Pix[y*p.Stride+4*x+channel]
	case channel == 0:
		return p.Y.Pix[y*p.Y.Stride+x]
	}
	plane := p.Cb
	if channel == 2 {
		plane = p.Cr
	}
	sx, sy := subsampling(p)
	return plane.Pix[y/sy*plane.Stride+x/sx]
}

// stdSample is sampleOf for the standard library.
func stdSample(m image.Image, x, y, channel int) uint8 {
	switch m := m.(type) {
	case *image.Gray:
		return m.GrayAt(x, y).Y
	case *image.YCbCr:
		c := m.YCbCrAt(x, y)
		return [3]uint8{c.Y, c.Cb, c.Cr}[channel]
	case *image.RGBA:
		return m.Pix[m.PixOffset(x, y)+channel]
	case *image.CMYK:
		return m.Pix[m.PixOffset(x, y)+channel]
	}
	panic(fmt.Sprintf("%T", m))
}

// differ says where images differ by more than limit. With calm, blocks in
// which a sample is at the end of its range are left out: there the standard
// library or this package may have clamped, or left the range of its numbers.
func differ(got *picture.Picture, want image.Image, limit int, calm bool) error {
	if want.Bounds().Dx() != got.Width || want.Bounds().Dy() != got.Height {
		return fmt.Errorf("%d × %d instead of %v", got.Width, got.Height, want.Bounds().Size())
	}
	models := map[picture.Model]string{picture.Gray: "*image.Gray", picture.YCbCr: "*image.YCbCr", picture.NRGBA: "*image.RGBA", picture.CMYK: "*image.CMYK"}
	if model := fmt.Sprintf("%T", want); models[got.Model] != model {
		return fmt.Errorf("the model is %d instead of %s", got.Model, model)
	}
	channels := map[picture.Model]int{picture.Gray: 1, picture.YCbCr: 3, picture.NRGBA: 3, picture.CMYK: 4}[got.Model]
	for channel := range channels {
		ends := map[image.Point]bool{}
		type fault struct{ x, y, got, want int }
		var faults []fault
		for y := range got.Height {
			for x := range got.Width {
				g, w := sampleOf(got, x, y, channel), stdSample(want, x, y, channel)
				if calm && (g == 0 || g == 255 || w == 0 || w == 255) {
					ends[image.Pt(x/32, y/32)] = true // 32: the largest MCU
				}
				if d := int(g) - int(w); d > limit || d < -limit {
					faults = append(faults, fault{x, y, int(g), int(w)})
				}
			}
		}
		for _, f := range faults {
			if !ends[image.Pt(f.x/32, f.y/32)] {
				return fmt.Errorf("channel %d at %d, %d is %d instead of %d", channel, f.x, f.y, f.got, f.want)
			}
		}
	}
	return nil
}

// TestScaled compares with the mean of the pixels that one stands for.
func TestScaled(t *testing.T) {
	files := map[string][]byte{"drawn": encode(t, drawn(403, 301), 90), "odd": encode(t, drawn(49, 17), 90)}
	for name, data := range files {
		full, err := Decode(data, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, denominator := range []int{2, 4, 8} {
			p, err := Decode(data, Options{Denominator: denominator})
			if err != nil {
				t.Fatal(err)
			}
			if err := sound(p); err != nil {
				t.Error(err)
			}
			if p.Width != ceilDiv(full.Width, denominator) || p.Height != ceilDiv(full.Height, denominator) || p.Sub != full.Sub {
				t.Errorf("%s at 1/%d: %d × %d, sampling %d", name, denominator, p.Width, p.Height, p.Sub)
			}
			for channel := range 3 {
				psnr := meanPSNR(p, full, denominator, channel)
				if psnr < 33 {
					t.Errorf("%s at 1/%d: channel %d is %.1f dB from the mean", name, denominator, channel, psnr)
				}
			}
		}
	}
}

func meanPSNR(p, full *picture.Picture, denominator, channel int) float64 {
	squares, n := 0.0, 0
	for y := range full.Height / (2 * denominator) * 2 {
		for x := range full.Width / (2 * denominator) * 2 {
			sum := 0
			for v := range denominator {
				for u := range denominator {
					sum += int(sampleOf(full, x*denominator+u, y*denominator+v, channel))
				}
			}
			if channel > 0 { // of the four pixels that share a sample
				sum = 0
				for v := range 2 * denominator {
					for u := range 2 * denominator {
						sum += int(sampleOf(full, x/2*2*denominator+u, y/2*2*denominator+v, channel))
					}
				}
				sum /= 4
			}
			d := float64(sum)/float64(denominator*denominator) - float64(sampleOf(p, x, y, channel))
			squares += d * d
			n++
		}
	}
	return 10 * math.Log10(255*255*float64(n)/max(squares, 1))
}

// drawn is an image with what photographs have: slopes, edges, fine texture,
// noise, strong colours.
func drawn(width, height int) *image.RGBA {
	m := image.NewRGBA(image.Rect(0, 0, width, height))
	random := rand.New(rand.NewPCG(1, 2))
	for y := range height {
		for x := range width {
			u, v := float64(x)/float64(width), float64(y)/float64(height)
			light := 90 + 80*u + 40*math.Sin(9*v+4*u)
			if u > 0.5 && v > 0.3 {
				light += 25 * math.Sin(float64(x)*0.9) * math.Cos(float64(y)*0.7*v)
			}
			if math.Hypot(u-0.4, v-0.5) < 0.2 {
				light = 240 - 120*v
			}
			noise := random.NormFloat64() * 5 * u
			c := color.RGBA{level(light + noise), level(light*0.8 + 60*v + noise), level(200*(1-u) + noise), 255}
			if x > width*3/4 && y < height/4 {
				c = color.RGBA{255, 0, 0, 255}
			}
			m.SetRGBA(x, y, c)
		}
	}
	return m
}

func level(v float64) uint8 { return uint8(math.Round(min(max(v, 0), 255))) }

func encode(t testing.TB, m image.Image, quality int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := stdjpeg.Encode(&b, m, &stdjpeg.Options{Quality: quality}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
