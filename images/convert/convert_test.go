package convert

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/png"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"
	"golang.org/x/image/webp"

	"millrace/images/codec"
	"millrace/images/header"
	"millrace/images/icc"
	"millrace/images/picture"
)

// fakeEncoder remembers what it was given and returns files of some length.
type fakeEncoder struct {
	pictures []*picture.Picture
	params   []codec.Params
	lengths  map[bool]int // by Lossless; 0: the smallest WebP there is
	before   func()
	err      error
}

// smallest is a lossless WebP of one pixel.
const smallest = "RIFF\x1a\x00\x00\x00WEBPVP8L\x0d\x00\x00\x00\x2f\x00\x00\x00\x10\x07\x10\x11\x11\x88\x88\xfe\x07\x00"

func (*fakeEncoder) Level() string { return "fake" }
func (*fakeEncoder) Formats() map[codec.Format]string {
	return map[codec.Format]string{codec.WebP: "a test", codec.AVIF: "a test"}
}

func (f *fakeEncoder) Encode(_ context.Context, p *picture.Picture, o codec.Params) ([]byte, error) {
	f.pictures, f.params = append(f.pictures, p), append(f.params, o)
	if f.before != nil {
		f.before()
	}
	if n := f.lengths[o.Lossless]; n > 0 {
		return make([]byte, n), f.err
	}
	return []byte(smallest), f.err
}

func (f *fakeEncoder) Animate(_ context.Context, _ []byte, o codec.Params, _ codec.Shape) ([]byte, error) {
	f.params = append(f.params, o)
	return []byte(smallest), f.err
}

// embedded converts with the real thing.
func embedded(t testing.TB) *Converter {
	t.Helper()
	e, err := codec.NewEmbedded(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &Converter{Encoder: e}
}

// convertTo converts, to WebP if nothing else is said.
func convertTo(t testing.TB, c *Converter, source []byte, s Spec) *Result {
	t.Helper()
	if s.Format == "" {
		s.Format = codec.WebP
	}
	res, err := c.Convert(t.Context(), source, s)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// pixels decodes a variant.
func pixels(t testing.TB, res *Result) *image.NRGBA {
	t.Helper()
	m, err := webp.Decode(bytes.NewReader(res.Data))
	if err != nil {
		t.Fatal(err)
	}
	p := picture.FromImage(m)
	p.Limited = p.Model == picture.YCbCr
	if p.Width != res.Width || p.Height != res.Height {
		t.Errorf("the result says %d × %d, its file has %d × %d", res.Width, res.Height, p.Width, p.Height)
	}
	out, ok := p.NRGBA().Image().(*image.NRGBA)
	if !ok {
		t.Fatal("no NRGBA")
	}
	return out
}

// far is the largest difference of two colours in a channel.
func far(a, b color.NRGBA) int {
	d := 0
	for _, v := range [][2]uint8{{a.R, b.R}, {a.G, b.G}, {a.B, b.B}, {a.A, b.A}} {
		d = max(d, int(v[0])-int(v[1]), int(v[1])-int(v[0]))
	}
	return d
}

func checkCorners(t testing.TB, m *image.NRGBA, tolerance int) {
	t.Helper()
	w, h := m.Rect.Dx(), m.Rect.Dy()
	for _, left := range []bool{true, false} {
		for _, top := range []bool{true, false} {
			x, y := 3*w/4, 3*h/4
			if left {
				x = w / 4
			}
			if top {
				y = h / 4
			}
			if got, want := m.NRGBAAt(x, y), corner(left, top); far(got, want) > tolerance {
				t.Errorf("left %t, top %t: %v instead of %v", left, top, got, want)
			}
		}
	}
}

// whereUpright is where a pixel belongs that is stored at x, y in an image of
// w × h: EXIF 2.32, 4.6.4, says where the row 0 and the column 0 are.
func whereUpright(orientation, x, y, w, h int) (ux, uy int) {
	switch orientation {
	case 2:
		return w - 1 - x, y
	case 3:
		return w - 1 - x, h - 1 - y
	case 4:
		return x, h - 1 - y
	case 5:
		return y, x
	case 6:
		return h - 1 - y, x
	case 7:
		return h - 1 - y, w - 1 - x
	case 8:
		return y, w - 1 - x
	}
	return x, y
}

// stored is how a camera stores an upright image with an orientation.
func stored(m *image.NRGBA, orientation int) *image.NRGBA {
	w, h := m.Rect.Dx(), m.Rect.Dy()
	if orientation >= 5 {
		w, h = h, w
	}
	out := image.NewNRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			ux, uy := whereUpright(orientation, x, y, w, h)
			out.SetNRGBA(x, y, m.NRGBAAt(ux, uy))
		}
	}
	return out
}

func TestOrientations(t *testing.T) {
	c := embedded(t)
	upright := quadrants(128, 64)
	for orientation := 1; orientation <= 8; orientation++ {
		file := withSegment(asJPEG(t, stored(upright, orientation)), 0xe1, exif(orientation))
		res := convertTo(t, c, file, Spec{})
		if res.Width != 128 || res.Height != 64 || res.Source.Orientation != orientation {
			t.Errorf("orientation %d: %d × %d of %+v", orientation, res.Width, res.Height, res.Source)
			continue
		}
		checkCorners(t, pixels(t, res), 12)
		// The box is for the upright image, and what is cut is upright, too.
		res = convertTo(t, c, file, Spec{Width: 32, Height: 32})
		if res.Width != 32 || res.Height != 16 {
			t.Errorf("orientation %d in a box of 32 × 32: %d × %d", orientation, res.Width, res.Height)
		}
		checkCorners(t, pixels(t, res), 12)
		res = convertTo(t, c, file, Spec{Width: 40, Height: 30, Fit: Cover})
		if res.Width != 40 || res.Height != 30 {
			t.Errorf("orientation %d covering 40 × 30: %d × %d", orientation, res.Width, res.Height)
		}
		checkCorners(t, pixels(t, res), 12)
	}
}

func TestMetadata(t *testing.T) {
	file := withSegment(asJPEG(t, photograph(64, 64)), 0xe1, exif(1))
	if !bytes.Contains(file, []byte("GPS!")) {
		t.Fatal("the test's own file has no place in it")
	}
	c := embedded(t)
	plain := convertTo(t, c, file, Spec{})
	if found := chunks(t, plain.Data); len(found["EXIF"])+len(found["XMP "])+len(found["ICCP"]) > 0 {
		t.Error("metadata is left")
	}
	kept := convertTo(t, c, file, Spec{KeepCopyright: true})
	found := chunks(t, kept.Data)["EXIF"]
	if len(found) != 1 || !bytes.Contains(found[0], []byte("Jane Doe 2026")) {
		t.Errorf("the copyright is not kept: %q", found)
	}
	for _, res := range []*Result{plain, kept} {
		if bytes.Contains(res.Data, []byte("GPS!")) {
			t.Error("the place is left")
		}
	}
	if plain.Level != "embedded" || plain.Wall <= 0 {
		t.Errorf("%+v", plain)
	}
}

func TestProfiles(t *testing.T) {
	c := embedded(t)
	p3 := displayP3()
	photo := asJPEG(t, photograph(64, 64))
	var grayFile bytes.Buffer
	g := image.NewGray(image.Rect(0, 0, 64, 64))
	for i := range g.Pix {
		g.Pix[i] = 128
	}
	png.Encode(&grayFile, g)

	res := convertTo(t, c, withProfile(photo, p3), Spec{})
	if found := chunks(t, res.Data)["ICCP"]; len(found) != 1 || !bytes.Equal(found[0], p3) {
		t.Error("the profile of Display P3 is not in the variant as it was")
	}
	if res.Source.ICC != nil || res.Source.BrokenICC {
		t.Errorf("%+v", res.Source)
	}
	srgb := profile(2.2, [3]float64{0.4361, 0.2225, 0.0139}, [3]float64{0.3851, 0.7169, 0.0971}, [3]float64{0.1431, 0.0606, 0.7139})
	res = convertTo(t, c, withProfile(photo, srgb), Spec{})
	if p, err := icc.Parse(srgb); err != nil || p.IsSRGB() == (len(chunks(t, res.Data)["ICCP"]) > 0) {
		t.Errorf("sRGB (%v) is kept, or what is not is not", err)
	}
	for name, p := range map[string][]byte{
		"not a profile":     bytes.Repeat([]byte("x"), 200),
		"cut off":           p3[:150],
		"of another space":  profile(2.2),
		"of 4 bytes":        {0, 0, 0, 4},
		"with a wild table": append(slices.Clone(p3[:128]), bytes.Repeat([]byte{0xff}, 400)...),
	} {
		res := convertTo(t, c, withProfile(photo, p), Spec{})
		if !res.Source.BrokenICC || len(chunks(t, res.Data)["ICCP"]) > 0 {
			t.Errorf("a profile %s: %+v", name, res.Source)
		}
	}
}

// A gray profile is not a profile for the colours of a result: it is converted.
func TestGrayProfile(t *testing.T) {
	m := image.NewGray(image.Rect(0, 0, 64, 64))
	for i := range m.Pix {
		m.Pix[i] = 128
	}
	linear := profile(1)
	f := &fakeEncoder{}
	c := &Converter{Encoder: f}
	convertTo(t, c, withProfile(asJPEG(t, m), linear), Spec{})
	got := f.pictures[0].NRGBA()
	// Linear 128/255 is 188 in sRGB (IEC 61966-2-1).
	if v := int(got.Pix[0]); v < 186 || v > 190 || f.pictures[0].ICC != nil {
		t.Errorf("gray 128 of a linear profile became %d", v)
	}
}

func TestCMYK(t *testing.T) {
	file := cmykJPEG(16, 8, func(x, y int) color.CMYK {
		c := corner(x < 8, y < 4)
		return color.CMYK{255 - c.R, 255 - c.G, 255 - c.B, 0}
	})
	c := embedded(t)
	res := convertTo(t, c, file, Spec{})
	if res.Width != 128 || res.Height != 64 || res.Source.Components != 4 {
		t.Errorf("%+v", res)
	}
	checkCorners(t, pixels(t, res), 14)
	// A profile that no pixel can be converted by is not left out.
	unknown := displayP3()
	copy(unknown[12:], "linkCMYK")
	if _, err := c.Convert(t.Context(), withProfile(file, unknown), Spec{Format: codec.WebP}); !errors.Is(err, icc.ErrUnsupported) {
		t.Errorf("a CMYK profile that leads to another device was used, or lost: %v", err)
	}
	// One of RGB is not this image's.
	res = convertTo(t, c, withProfile(file, displayP3()), Spec{})
	if !res.Source.BrokenICC || len(chunks(t, res.Data)["ICCP"]) > 0 {
		t.Errorf("%+v", res.Source)
	}
}

// goPictures is where the standard library's package image lies.
func goPictures(t testing.TB) string {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skip("the standard library's sources are not there: ", err)
	}
	return filepath.Join(strings.TrimSpace(string(root)), "src", "image")
}

// The images of Go's own tests reach the encoder as Go shows them.
func TestGoPictures(t *testing.T) {
	dir := goPictures(t)
	var files []string
	for _, pattern := range []string{"testdata/video-*.png", "testdata/*.gif", "png/testdata/bench*.png", "png/testdata/gray*.png", "png/testdata/pngsuite/basn*.png"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) == 0 {
		t.Skip("the standard library's test pictures are not installed")
	}
	for _, name := range files {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		want, _, err := image.Decode(bytes.NewReader(source))
		if err != nil {
			t.Fatal(name, err)
		}
		f := &fakeEncoder{}
		// One pixel more than there is: a box, so that there is always a result.
		_, err = (&Converter{Encoder: f}).Convert(t.Context(), source, Spec{Format: codec.WebP, Width: 5000})
		if err != nil && !errors.Is(err, ErrNoGain) {
			if !errors.Is(err, ErrUnsupported) {
				t.Errorf("%s: %v", filepath.Base(name), err)
			}
			continue
		}
		got, ok := f.pictures[0].NRGBA().Image().(*image.NRGBA)
		if !ok || got.Rect.Dx() != want.Bounds().Dx() || got.Rect.Dy() != want.Bounds().Dy() {
			t.Errorf("%s: %v instead of %v", filepath.Base(name), got.Rect, want.Bounds())
			continue
		}
		worst := 0
		for y := range got.Rect.Dy() {
			for x := range got.Rect.Dx() {
				w := color.NRGBAModel.Convert(want.At(x, y)).(color.NRGBA)
				if g := got.NRGBAAt(x, y); w.A > 0 || g.A > 0 {
					worst = max(worst, far(w, g))
				}
			}
		}
		if worst > 1 { // 16 bits are rounded here and cut there
			t.Errorf("%s: a pixel differs by %d", filepath.Base(name), worst)
		}
	}
}

func TestProgressive(t *testing.T) {
	dir := filepath.Join(goPictures(t), "testdata")
	c := embedded(t)
	for _, name := range []string{"video-001.progressive.jpeg", "video-001.jpeg", "video-005.gray.q50.progressive.jpeg", "video-001.cmyk.jpeg"} {
		source, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Skip("the standard library's test pictures are not installed")
		}
		want, _, err := image.Decode(bytes.NewReader(source))
		if err != nil {
			t.Fatal(err)
		}
		res := convertTo(t, c, source, Spec{Quality: 40})
		m := pixels(t, res)
		var sum, n float64
		for y := range m.Rect.Dy() {
			for x := range m.Rect.Dx() {
				w := color.NRGBAModel.Convert(want.At(x, y)).(color.NRGBA)
				sum += math.Abs(float64(w.G) - float64(m.NRGBAAt(x, y).G))
				n++
			}
		}
		if sum/n > 8 {
			t.Errorf("%s: pixels differ by %.1f in the mean", name, sum/n)
		}
	}
}

func TestLosslessSources(t *testing.T) {
	c := embedded(t)
	drawing := quadrants(200, 100)
	draft := func(m image.Image, encode func(*bytes.Buffer, image.Image) error) []byte {
		var b bytes.Buffer
		if err := encode(&b, m); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	files := map[string][]byte{
		"bmp":  draft(drawing, func(b *bytes.Buffer, m image.Image) error { return bmp.Encode(b, m) }),
		"tiff": draft(drawing, func(b *bytes.Buffer, m image.Image) error { return tiff.Encode(b, m, nil) }),
		"png": draft(drawing, func(b *bytes.Buffer, m image.Image) error {
			return (&png.Encoder{CompressionLevel: png.NoCompression}).Encode(b, m)
		}),
	}
	for name, file := range files {
		res := convertTo(t, c, file, Spec{})
		if !res.Lossless || !bytes.Equal(pixels(t, res).Pix, drawing.Pix) {
			t.Errorf("%s: a drawing was changed", name)
		}
	}
	// A lossless WebP is a source, too; one that is as good as it gets.
	file, err := c.Encoder.Encode(t.Context(), picture.FromImage(drawing), codec.Params{Format: codec.WebP, Lossless: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Convert(t.Context(), file, Spec{Format: codec.WebP}); !errors.Is(err, ErrNoGain) {
		t.Errorf("a WebP became smaller: %v", err)
	}
	checkCorners(t, pixels(t, convertTo(t, c, file, Spec{Width: 100})), 14)
	lossy, err := c.Encoder.Encode(t.Context(), picture.FromImage(drawing), codec.Params{Format: codec.WebP, Quality: 90})
	if err != nil {
		t.Fatal(err)
	}
	checkCorners(t, pixels(t, convertTo(t, c, lossy, Spec{Width: 100})), 14)

	photo := asPNG(t, photograph(200, 200))
	if res := convertTo(t, c, photo, Spec{}); res.Lossless || len(res.Data) > len(photo)/3 {
		t.Errorf("a photograph as PNG, %d bytes: %d bytes, lossless %t", len(photo), len(res.Data), res.Lossless)
	}
}

func TestAlpha(t *testing.T) {
	c := embedded(t)
	for name, m := range map[string]*image.NRGBA{"drawing": quadrants(200, 100), "photograph": photograph(200, 100)} {
		for y := range 100 {
			for x := range 200 {
				if x < 100 {
					m.Pix[m.PixOffset(x, y)+3] = uint8(y * 2)
				}
			}
		}
		file := asPNG(t, m)
		f := &fakeEncoder{}
		convertTo(t, &Converter{Encoder: f}, file, Spec{Width: 5000})
		if f.pictures[0].Opaque() {
			t.Errorf("%s: alpha is lost", name)
		}
		res := convertTo(t, c, file, Spec{Width: 100})
		got := pixels(t, res)
		if a, b := got.NRGBAAt(25, 25).A, got.NRGBAAt(75, 25).A; a < 95 || a > 105 || b != 255 {
			t.Errorf("%s: alpha of %d and %d, instead of 100 and 255", name, a, b)
		}
	}
}

func TestAnimation(t *testing.T) {
	source := animated(t, 7, 2)
	c := embedded(t)
	res := convertTo(t, c, source, Spec{})
	found := chunks(t, res.Data)
	if len(found["ANIM"]) != 1 || len(found["ANMF"]) != 7 || res.Source.Frames != 7 {
		t.Fatalf("%d frames", len(found["ANMF"]))
	}
	if loops := binary.LittleEndian.Uint16(found["ANIM"][0][4:]); loops != 3 {
		t.Errorf("shown %d times", loops)
	}
	for i, frame := range found["ANMF"] {
		ms := int(frame[12]) | int(frame[13])<<8 | int(frame[14])<<16
		if ms != 50+10*i {
			t.Errorf("frame %d lasts %d ms", i, ms)
		}
	}
	for _, s := range []Spec{{Format: codec.AVIF}, {Format: codec.Plain, Width: 10}} {
		if _, err := c.Convert(t.Context(), source, s); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

func TestBadInput(t *testing.T) {
	photo := photograph(200, 160)
	bomb := asPNG(t, image.NewGray(image.Rect(0, 0, 1, 1)))
	binary.BigEndian.PutUint32(bomb[16:], 60000)
	binary.BigEndian.PutUint32(bomb[20:], 60000)
	huge := asJPEG(t, photo)
	at := bytes.Index(huge, []byte{0xff, 0xc0})
	copy(huge[at+5:], "\xff\xff\xff\xff")
	for name, c := range map[string]struct {
		file []byte
		want error
	}{
		"bomb":        {bomb, header.ErrTooLarge},
		"huge jpeg":   {huge, header.ErrTooLarge},
		"zero bytes":  {nil, header.ErrUnknown},
		"text":        {[]byte(strings.Repeat("<html>", 100)), header.ErrUnknown},
		"zeros":       {make([]byte, 10000), header.ErrUnknown},
		"only magic":  {[]byte("\xff\xd8\xff\xe0"), header.ErrBroken},
		"many frames": {animated(t, 30, 0), header.ErrTooLarge},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := (&Converter{Encoder: &fakeEncoder{}}).Convert(t.Context(), c.file,
			Spec{Format: codec.WebP, Limits: header.Limits{Frames: 20}})
		runtime.ReadMemStats(&after)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("%s: %d bytes were allocated", name, n)
		}
	}
	if _, err := (&Converter{Encoder: &fakeEncoder{}}).Convert(t.Context(), asJPEG(t, photo), Spec{Format: "jxl"}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("an unknown format: %v", err)
	}
}

// Half an image must not be kept as a variant.
func TestTruncated(t *testing.T) {
	photo := photograph(200, 160)
	c := &Converter{Encoder: &fakeEncoder{}}
	var tif, bm, gi bytes.Buffer
	tiff.Encode(&tif, photo, nil)
	bmp.Encode(&bm, photo)
	gif.Encode(&gi, photo, nil)
	wp, err := embedded(t).Encoder.Encode(t.Context(), picture.FromImage(photo), codec.Params{Format: codec.WebP, Quality: 80})
	if err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string][]byte{
		"jpeg": asJPEG(t, photo), "png": asPNG(t, photo), "gif": gi.Bytes(), "bmp": bm.Bytes(), "tiff": tif.Bytes(), "webp": wp,
	} {
		if _, err := c.Convert(t.Context(), file, Spec{Format: codec.WebP}); err != nil {
			t.Errorf("%s, whole: %v", name, err)
		}
		for _, part := range []int{10, 30, 50, 70, 90, 97} {
			_, err := c.Convert(t.Context(), file[:len(file)*part/100], Spec{Format: codec.WebP})
			if err == nil || errors.Is(err, ErrNoGain) {
				t.Errorf("%d %% of a %s: %v", part, name, err)
			}
		}
	}
}

func TestContext(t *testing.T) {
	source := asJPEG(t, photograph(64, 64))
	ctx, cancel := context.WithCancel(t.Context())
	f := &fakeEncoder{}
	cancel()
	if _, err := (&Converter{Encoder: f}).Convert(ctx, source, Spec{Format: codec.WebP}); !errors.Is(err, context.Canceled) || len(f.params) > 0 {
		t.Errorf("%v, %d pictures encoded", err, len(f.params))
	}
	f = &fakeEncoder{err: fmt.Errorf("out of luck: %w", codec.ErrFailed)}
	if _, err := (&Converter{Encoder: f}).Convert(t.Context(), source, Spec{Format: codec.WebP}); !errors.Is(err, codec.ErrFailed) {
		t.Errorf("%v", err)
	}
	f = &fakeEncoder{before: func() { panic("index out of range") }}
	if _, err := (&Converter{Encoder: f}).Convert(t.Context(), source, Spec{Format: codec.WebP}); !errors.Is(err, header.ErrBroken) {
		t.Errorf("a panic: %v", err)
	}
}
