package convert

import (
	"bytes"
	"encoding/json"
	"image"
	"image/jpeg"
	"image/png"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"millrace/images/codec"
)

// pillowScript does to a picture what its arguments say, with Pillow, and writes a PNG.
const pillowScript = `
import json, sys
from PIL import Image, ImageFilter, ImageOps
source, target, steps = sys.argv[1:]
m = Image.open(source)
for name, *a in json.loads(steps):
    if name == "upright": m = ImageOps.exif_transpose(m)
    elif name == "rgb": m = m.convert("RGB")
    elif name == "crop": m = m.crop(a)
    elif name == "rotate": m = m.transpose([Image.Transpose.ROTATE_270, Image.Transpose.ROTATE_180, Image.Transpose.ROTATE_90][a[0] // 90 - 1])
    elif name == "flip": m = m.transpose(Image.Transpose.FLIP_LEFT_RIGHT if a[0] == "h" else Image.Transpose.FLIP_TOP_BOTTOM)
    elif name == "resize": m = m.resize(a[:2], Image.Resampling.BICUBIC)
    elif name == "fit": m = ImageOps.fit(m, a[:2], Image.Resampling.BICUBIC, centering=a[2:])
    elif name == "pad": m = ImageOps.pad(m, a[:2], Image.Resampling.BICUBIC, color=a[2], centering=a[3:])
    elif name == "expand":
        n = Image.new("RGB", (m.width + a[1] + a[3], m.height + a[0] + a[2]), a[4])
        n.paste(m, (a[3], a[0])); m = n
    elif name == "over":
        n = Image.new("RGBA", m.size, a[0]); n.alpha_composite(m.convert("RGBA")); m = n
    elif name == "blur": m = m.filter(ImageFilter.GaussianBlur(a[0]))
    elif name == "sharpen": m = m.filter(ImageFilter.UnsharpMask(a[0], 100, 0))
    elif name == "gray": m = m.convert("L")
    elif name == "trim":
        n = Image.new(m.mode, m.size, m.getpixel((0, 0)))
        from PIL import ImageChops
        m = m.crop(ImageChops.difference(m, n).getbbox())
    elif name == "mark":
        n = Image.open(a[0]).convert("RGBA").resize(a[1:3], Image.Resampling.BICUBIC)
        n.putalpha(n.getchannel("A").point(lambda v: round(v * a[5])))
        m = m.convert("RGBA"); m.alpha_composite(n, tuple(a[3:5]))
    else: raise SystemExit("what is " + name + "?")
m.save(target)
`

// pillow is the independent program that pictures are compared with.
func pillow(t *testing.T, source string, steps []any) image.Image {
	t.Helper()
	target := filepath.Join(t.TempDir(), "by-pillow.png")
	text, err := json.Marshal(steps)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("python3", "-c", pillowScript, source, target, string(text)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f, err := os.Open(target)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func needPillow(t *testing.T) {
	t.Helper()
	if exec.Command("python3", "-c", "import PIL").Run() != nil {
		t.Skip("python3 with Pillow is not installed (pip install pillow), with whose pictures ours are compared")
	}
}

// alikeness is the peak signal to noise ratio of two images in dB, 0 where their sizes differ.
func alikeness(a, b image.Image) float64 {
	if a.Bounds().Size() != b.Bounds().Size() {
		return 0
	}
	sum, n := 0.0, 0
	for y := range a.Bounds().Dy() {
		for x := range a.Bounds().Dx() {
			p, q := [4]uint32{}, [4]uint32{}
			p[0], p[1], p[2], p[3] = a.At(a.Bounds().Min.X+x, a.Bounds().Min.Y+y).RGBA()
			q[0], q[1], q[2], q[3] = b.At(b.Bounds().Min.X+x, b.Bounds().Min.Y+y).RGBA()
			for i := range p {
				d := float64(p[i]>>8) - float64(q[i]>>8)
				sum += d * d
				n++
			}
		}
	}
	if sum == 0 {
		return math.Inf(1)
	}
	return 10 * math.Log10(255*255*float64(n)/sum)
}

// scene is a picture in which every place looks otherwise: soft colours, hard edges, fine lines.
func scene(w, h int) *image.NRGBA {
	m := photograph(w, h)
	for y := range h {
		for x := range w {
			o := m.PixOffset(x, y)
			if (x/9+y/13)%5 == 0 {
				m.Pix[o], m.Pix[o+1] = 255-m.Pix[o], m.Pix[o+1]/2
			}
			if x > 2*w/3 && y > h/2 && (x+y)%11 < 2 {
				m.Pix[o+2] = 20
			}
		}
	}
	return m
}

// TestEditsBesidePillow holds every edit against Pillow. Where no pixel is computed, all are equal.
func TestEditsBesidePillow(t *testing.T) {
	needPillow(t)
	dir := t.TempDir()
	write := func(name string, data []byte) (string, []byte) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return file, data
	}
	const w, h = 233, 171
	sceneFile, sceneData := write("scene.png", asPNG(t, scene(w, h)))
	var jpg bytes.Buffer
	if err := jpeg.Encode(&jpg, scene(w, h), &jpeg.Options{Quality: 98}); err != nil {
		t.Fatal(err)
	}
	turnedFile, turnedData := write("turned.jpg", withSegment(jpg.Bytes(), 0xE1, []byte("Exif\x00\x00II*\x00\x08\x00\x00\x00\x01\x00\x12\x01\x03\x00\x01\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00\x00")))
	bordered := image.NewNRGBA(image.Rect(0, 0, w, h))
	for i := range bordered.Pix {
		bordered.Pix[i] = 255
	}
	for y := 20; y < 90; y++ {
		copy(bordered.Pix[bordered.PixOffset(31, y):][:4*120], scene(w, h).Pix[4*y*w:])
	}
	borderedFile, borderedData := write("bordered.png", asPNG(t, bordered))
	sheer := scene(w, h)
	for i := 3; i < len(sheer.Pix); i += 4 {
		sheer.Pix[i] = uint8(i / 4 % w)
	}
	clearFile, clearData := write("clear.png", asPNG(t, sheer))

	logo := scene(60, 40)
	for i := 3; i < len(logo.Pix); i += 4 {
		logo.Pix[i] = uint8(100 + i/4%60*2)
	}
	logoFile, logoData := write("logo.png", asPNG(t, logo))

	exact := math.Inf(1)
	type steps = []any
	for _, c := range []struct {
		name   string
		file   string
		data   []byte
		spec   Spec
		pillow steps
		least  float64 // dB
	}{
		{"rect", sceneFile, sceneData, Spec{Edit: Edit{Rect: [4]int{11, 7, 100, 61}}}, steps{steps{"crop", 11, 7, 111, 68}}, exact},
		{"rotate 90", sceneFile, sceneData, Spec{Edit: Edit{Rotate: 90}}, steps{steps{"rotate", 90}}, exact},
		{"rotate 180", sceneFile, sceneData, Spec{Edit: Edit{Rotate: 180}}, steps{steps{"rotate", 180}}, exact},
		{"rotate 270, then flip", sceneFile, sceneData, Spec{Edit: Edit{Rotate: 270, Flip: "h"}}, steps{steps{"rotate", 270}, steps{"flip", "h"}}, exact},
		{"flip v", sceneFile, sceneData, Spec{Edit: Edit{Flip: "v"}}, steps{steps{"flip", "v"}}, exact},
		{"flip hv", sceneFile, sceneData, Spec{Edit: Edit{Flip: "hv"}}, steps{steps{"flip", "h"}, steps{"flip", "v"}}, exact},
		{"trim", borderedFile, borderedData, Spec{Edit: Edit{Trim: 1}}, steps{steps{"rgb"}, steps{"trim"}}, exact},
		{"trim and resize", borderedFile, borderedData, Spec{Width: 60, Edit: Edit{Trim: 1}}, steps{steps{"rgb"}, steps{"trim"}, steps{"resize", 60, 35}}, 38},
		{"grayscale", sceneFile, sceneData, Spec{Edit: Edit{Grayscale: true}}, steps{steps{"gray"}}, 48},
		{"cover, middle", sceneFile, sceneData, Spec{Width: 60, Height: 60, Fit: Cover, Edit: Edit{Gravity: Center}}, steps{steps{"fit", 60, 60, 0.5, 0.5}}, 30},
		{"cover, west", sceneFile, sceneData, Spec{Width: 57, Height: 57, Fit: Cover, Edit: Edit{Gravity: "w"}}, steps{steps{"fit", 57, 57, 0, 0.5}}, 38},
		{"cover, south-east", sceneFile, sceneData, Spec{Width: 57, Height: 57, Fit: Cover, Edit: Edit{Gravity: "se"}}, steps{steps{"fit", 57, 57, 1, 1}}, 38},
		{"cover, north", sceneFile, sceneData, Spec{Width: 233, Height: 50, Fit: Cover, Edit: Edit{Gravity: "n"}}, steps{steps{"crop", 0, 0, 233, 50}}, exact},
		{"cover, focus in a corner", sceneFile, sceneData, Spec{Width: 57, Height: 57, Fit: Cover, Edit: Edit{Gravity: Focus, Focus: [2]int{950, 0}}}, steps{steps{"fit", 57, 57, 1, 0}}, 38},
		{"cover, focus", sceneFile, sceneData, Spec{Width: 80, Height: 171, Fit: Cover, Edit: Edit{Gravity: Focus, Focus: [2]int{400, 500}}}, steps{steps{"crop", 53, 0, 133, 171}}, exact},
		{"enlarge", sceneFile, sceneData, Spec{Width: 466, Edit: Edit{Enlarge: true}}, steps{steps{"resize", 466, 342}}, 45},
		{"enlarge, cover", sceneFile, sceneData, Spec{Width: 400, Height: 400, Fit: Cover, Edit: Edit{Enlarge: true, Gravity: "w"}}, steps{steps{"crop", 0, 0, 171, 171}, steps{"resize", 400, 400}}, 45},
		{"pad to a box", sceneFile, sceneData, Spec{Width: 100, Height: 101, Fit: Pad, Edit: Edit{Background: "ff8000"}}, steps{steps{"pad", 100, 101, "#ff8000", 0.5, 0.5}}, 38},
		{"pad to a box in the north", sceneFile, sceneData, Spec{Width: 100, Height: 100, Fit: Pad, Edit: Edit{Gravity: "n"}}, steps{steps{"pad", 100, 100, "#ffffff", 0.5, 0}}, 38},
		{"pad", sceneFile, sceneData, Spec{Edit: Edit{Pad: [4]int{3, 5, 7, 11}, Background: "102030"}}, steps{steps{"rgb"}, steps{"expand", 3, 5, 7, 11, "#102030"}}, exact},
		{"ground", clearFile, clearData, Spec{Edit: Edit{Background: "00ff40"}}, steps{steps{"over", "#00ff40"}}, 48},
		{"blur", sceneFile, sceneData, Spec{Edit: Edit{Blur: 250}}, steps{steps{"rgb"}, steps{"blur", 2.5}}, 45},
		{"much blur", sceneFile, sceneData, Spec{Edit: Edit{Blur: 2000}}, steps{steps{"rgb"}, steps{"blur", 20}}, 40},
		{
			"watermark in the south-east", sceneFile, sceneData,
			Spec{Watermark: &Watermark{Image: logoData, Position: "se", Opacity: 0.5, Scale: 0.25, Margin: 7}},
			steps{steps{"mark", logoFile, 58, 39, 168, 125, 0.5}},
			45,
		},
		{
			"watermark in the middle", sceneFile, sceneData,
			Spec{Watermark: &Watermark{Image: logoData, Position: Center, Opacity: 1, Scale: 1}},
			steps{steps{"mark", logoFile, 233, 155, 0, 8, 1}},
			40,
		},
		{"sharpen", sceneFile, sceneData, Spec{Edit: Edit{Sharpen: 150}}, steps{steps{"rgb"}, steps{"sharpen", 1.5}}, 40},
		// Pillow smooths chroma, and does not decode at half the size.
		{"rect of a turned JPEG", turnedFile, turnedData, Spec{Edit: Edit{Rect: [4]int{21, 33, 90, 120}}}, steps{steps{"upright"}, steps{"crop", 21, 33, 111, 153}}, 30},
		{
			"rotate and cover a turned JPEG", turnedFile, turnedData,
			Spec{Width: 57, Height: 57, Fit: Cover, Edit: Edit{Rotate: 90, Gravity: "n"}},
			steps{steps{"upright"}, steps{"rotate", 90}, steps{"fit", 57, 57, 0.5, 0}},
			25,
		},
		{"JPEG, blur", turnedFile, turnedData, Spec{Width: 85, Edit: Edit{Blur: 150}}, steps{steps{"upright"}, steps{"resize", 85, 116}, steps{"blur", 1.5}}, 33},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.spec.Format = codec.PNG
			res := convertTo(t, &Converter{Encoder: &fakeEncoder{}}, c.data, c.spec)
			got, err := png.Decode(bytes.NewReader(res.Data))
			if err != nil {
				t.Fatal(err)
			}
			if size := got.Bounds().Size(); size != image.Pt(res.Width, res.Height) {
				t.Errorf("the result says %d × %d, its file has %v", res.Width, res.Height, size)
			}
			want := pillow(t, c.file, c.pillow)
			if db := alikeness(got, want); db < c.least {
				t.Errorf("%.1f dB, should be %.0f; %v, Pillow %v", db, c.least, got.Bounds(), want.Bounds())
			}
		})
	}
}

// What is written as JPEG and PNG Pillow reads as we do, with profile and copyright.
func TestPlainBesidePillow(t *testing.T) {
	needPillow(t)
	for _, format := range []codec.Format{codec.JPEG, codec.PNG} {
		res := convertTo(t, &Converter{Encoder: &fakeEncoder{}}, withProfile(asJPEG(t, scene(300, 200)), displayP3()), Spec{Format: format, Width: 201})
		file := filepath.Join(t.TempDir(), "it."+string(format))
		if err := os.WriteFile(file, res.Data, 0o644); err != nil {
			t.Fatal(err)
		}
		got, _, err := image.Decode(bytes.NewReader(res.Data))
		if err != nil {
			t.Fatal(err)
		}
		if db := alikeness(got, pillow(t, file, []any{[]any{"rgb"}})); db < 30 { // chroma is smoothed by Pillow, and repeated by us
			t.Errorf("%s: %.1f dB", format, db)
		}
		out, err := exec.Command("python3", "-c", "import sys; from PIL import Image; print(len(Image.open(sys.argv[1]).info['icc_profile']))", file).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v: %s", format, err, out)
		}
	}
}
