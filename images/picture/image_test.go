package picture

import (
	"image"
	"image/color"
	"image/draw"
	_ "image/gif"
	_ "image/jpeg"
	_ "image/png"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// off is the largest difference between a picture shown as NRGBA and what the
// standard library shows, colours in proportion to alpha.
func off(t *testing.T, p *Picture, m image.Image) int {
	t.Helper()
	check(t, p)
	b := m.Bounds()
	if p.Width != b.Dx() || p.Height != b.Dy() {
		t.Fatalf("%d × %d instead of %v", p.Width, p.Height, b)
	}
	n := p.NRGBA()
	most := 0
	for y := range p.Height {
		for x := range p.Width {
			px := n.Pix[y*n.Stride+4*x:][:4]
			r, g, bl, a := m.At(b.Min.X+x, b.Min.Y+y).RGBA()
			for i, v := range [4]uint32{r, g, bl, a} {
				have := int(px[i])
				if i < 3 {
					have = (have*int(px[3]) + 127) / 255
				}
				d := have - int((v+128)/257)
				most = max(most, d, -d)
			}
		}
	}
	return most
}

func random(b []byte) {
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
}

// images makes one of each type of the standard library with these bounds.
func images(r image.Rectangle) map[string]image.Image {
	list := map[string]image.Image{}
	for ratio := image.YCbCrSubsampleRatio444; ratio <= image.YCbCrSubsampleRatio410; ratio++ {
		m := image.NewYCbCr(r, ratio)
		random(m.Y)
		random(m.Cb)
		random(m.Cr)
		list[ratio.String()] = m
		a := image.NewNYCbCrA(r, ratio)
		a.YCbCr = *m
		random(a.A)
		list[ratio.String()+"Alpha"] = a
	}
	gray, gray16 := image.NewGray(r), image.NewGray16(r)
	nrgba, nrgba64 := image.NewNRGBA(r), image.NewNRGBA64(r)
	alpha, cmyk := image.NewAlpha(r), image.NewCMYK(r)
	alpha16 := image.NewAlpha16(r)
	for _, b := range [][]byte{gray.Pix, gray16.Pix, nrgba.Pix, nrgba64.Pix, alpha.Pix, cmyk.Pix, alpha16.Pix} {
		random(b)
	}
	rgba, rgba64, opaque := image.NewRGBA(r), image.NewRGBA64(r), image.NewRGBA(r)
	draw.Draw(rgba, r, nrgba, r.Min, draw.Src)
	draw.Draw(rgba64, r, nrgba64, r.Min, draw.Src)
	draw.Draw(opaque, r, gray, r.Min, draw.Src)
	var palette color.Palette
	for range 200 {
		palette = append(palette, color.NRGBA{byte(rand.Uint32()), byte(rand.Uint32()), byte(rand.Uint32()), byte(rand.Uint32())})
	}
	paletted := image.NewPaletted(r, palette)
	for i := range paletted.Pix {
		paletted.Pix[i] = byte(rand.IntN(len(palette)))
	}
	maps.Copy(list, map[string]image.Image{
		"Gray": gray, "Gray16": gray16, "NRGBA": nrgba, "NRGBA64": nrgba64, "Alpha": alpha, "Alpha16": alpha16,
		"CMYK": cmyk, "RGBA": rgba, "RGBA64": rgba64, "opaque RGBA": opaque, "Paletted": paletted,
		"other": struct{ image.Image }{nrgba},
	})
	return list
}

func TestFromImage(t *testing.T) {
	for _, r := range []image.Rectangle{
		image.Rect(0, 0, 13, 11), image.Rect(0, 0, 1, 1), image.Rect(3, 5, 20, 21), image.Rect(2, 2, 19, 9), image.Rect(-3, -6, 4, 5),
	} {
		for name, m := range images(r) {
			p := FromImage(m)
			if d := off(t, p, m); d > 2 {
				t.Errorf("%s %v: differs by %d", name, r, d)
			}
			if d := off(t, p, p.Image()); d > 2 {
				t.Errorf("%s %v: as an image again it differs by %d", name, r, d)
			}
			for _, part := range []image.Rectangle{image.Rect(1, 1, 3, 4), image.Rect(2, 2, 7, 7), image.Rect(5, 4, 12, 9), image.Rect(6, 3, 7, 4)} {
				part = part.Add(r.Min).Intersect(r)
				sub, ok := m.(interface {
					SubImage(image.Rectangle) image.Image
				})
				if !ok || part.Empty() {
					continue
				}
				if d := off(t, FromImage(sub.SubImage(part)), sub.SubImage(part)); d > 2 {
					t.Errorf("%s %v of %v: differs by %d", name, part, r, d)
				}
			}
		}
	}
}

func TestFromImageShares(t *testing.T) {
	list := images(image.Rect(0, 0, 8, 8))
	for name, model := range map[string]Model{
		"YCbCrSubsampleRatio420": YCbCr, "YCbCrSubsampleRatio440": YCbCr, "YCbCrSubsampleRatio422Alpha": YCbCr,
		"Gray": Gray, "NRGBA": NRGBA, "CMYK": CMYK, "opaque RGBA": NRGBA,
	} {
		m := list[name]
		p := FromImage(m)
		if p.Model != model {
			t.Errorf("%s is of model %d", name, p.Model)
		}
		if n := testing.AllocsPerRun(10, func() { FromImage(m) }); n > 1 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	for name, sub := range map[string]Subsampling{"YCbCrSubsampleRatio411": Sub422, "YCbCrSubsampleRatio410": Sub420} {
		if p := FromImage(list[name]); p.Sub != sub {
			t.Errorf("%s became %d", name, p.Sub)
		}
	}
}

func TestFromImageOdd(t *testing.T) {
	p := FromImage(image.NewNRGBA(image.Rectangle{}))
	check(t, p)
	if p.Opaque() {
		t.Error("nothing is opaque")
	}
	// Indexes that the palette has no colour for, and more colour than alpha.
	m := image.NewPaletted(image.Rect(0, 0, 2, 1), color.Palette{color.White})
	m.Pix[1] = 200
	if p := FromImage(m); p.Pix[3] != 255 || p.Pix[7] != 0 {
		t.Error(p.Pix)
	}
	bad := &image.RGBA{Pix: []byte{200, 0, 0, 100}, Stride: 4, Rect: image.Rect(0, 0, 1, 1)}
	if p := FromImage(bad); p.Pix[0] != 255 {
		t.Error(p.Pix)
	}
	a := image.NewNYCbCrA(image.Rect(0, 0, 5, 5), image.YCbCrSubsampleRatio420)
	fill(a.A, 255)
	if p := FromImage(a); len(p.A.Pix) > 0 {
		t.Error("alpha of 255 everywhere is kept")
	}
}

func TestImage(t *testing.T) {
	each(t, func(t *testing.T, p *Picture, k kind) {
		m := p.Image()
		if k.limited {
			if d := off(t, p, m); d > 2 {
				t.Errorf("differs by %d", d)
			}
			return
		}
		if d := off(t, p, m); d > 2 {
			t.Errorf("differs by %d", d)
		}
		if k.name != "grayalpha" && testing.AllocsPerRun(5, func() { p.Image() }) > 2 {
			t.Error("memory is not shared")
		}
	})
}

func TestStandardLibraryPictures(t *testing.T) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skipf("go env GOROOT: %v", err)
	}
	files, _ := filepath.Glob(filepath.Join(strings.TrimSpace(string(root)), "src/image/testdata/*"))
	done := 0
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		m, _, err := image.Decode(f)
		f.Close()
		if err != nil {
			continue
		}
		done++
		p := FromImage(m)
		if d := off(t, p, m); d > 1 {
			t.Errorf("%s: differs by %d", filepath.Base(name), d)
		}
		back := p.Limited420().NRGBA()
		if have, want := mean(back), mean(p.NRGBA()); have-want > 3 || want-have > 3 {
			t.Errorf("%s: limited, its mean is %.1f instead of %.1f", filepath.Base(name), have, want)
		}
	}
	if done == 0 {
		t.Skip("the standard library's pictures are not installed")
	}
}

// mean of the colours of a picture of NRGBA times alpha.
func mean(p *Picture) float64 {
	sum := 0
	for y := range p.Height {
		row := p.Pix[y*p.Stride:]
		for x := range p.Width {
			px := row[4*x:][:4]
			sum += (int(px[0]) + int(px[1]) + int(px[2])) * int(px[3])
		}
	}
	return float64(sum) / 255 / 3 / float64(p.Width*p.Height)
}
