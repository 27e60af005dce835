package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"image"
	"image/color"
	"image/png"
	"strings"
	"testing"

	"millrace/images/codec"
	"millrace/images/header"
)

// plainly converts without an encoder for WebP and AVIF.
func plainly() *Converter { return &Converter{Encoder: &fakeEncoder{}} }

// A rectangle outside of the image, wholly or in part, is refused, also where its numbers are huge.
func TestRectOutside(t *testing.T) {
	source := asPNG(t, quadrants(40, 30))
	for _, r := range [][4]int{{0, 0, 41, 30}, {0, 0, 40, 31}, {39, 0, 2, 1}, {99999, 99999, 99999, 99999}, {40, 30, 1, 1}} {
		_, err := plainly().Convert(t.Context(), source, Spec{Format: codec.PNG, Edit: Edit{Rect: r}})
		if !errors.Is(err, ErrOutside) || !strings.Contains(err.Error(), "40 × 30") {
			t.Errorf("%v: %v", r, err)
		}
	}
	turned := withSegment(asJPEG(t, quadrants(40, 30)), 0xE1, exif(6))
	if _, err := plainly().Convert(t.Context(), turned, Spec{Format: codec.PNG, Edit: Edit{Rect: [4]int{0, 30, 30, 10}}}); err != nil {
		t.Errorf("inside the upright image: %v", err)
	}
}

// What is enlarged or put around an image keeps to the limits of originals, and is refused before
// anything is decoded.
func TestEnlargeIsBounded(t *testing.T) {
	source := asPNG(t, quadrants(40, 30))
	cut := source[:len(source)-20] // would be broken
	for name, s := range map[string]Spec{
		"enlarged": {Width: 16384, Height: 16384, Fit: Fill, Edit: Edit{Enlarge: true}},
		"padded":   {Width: 16384, Height: 16384, Fit: Pad},
		"around":   {Width: 16384, Edit: Edit{Enlarge: true, Pad: [4]int{2000, 2000, 2000, 2000}}},
	} {
		s.Format = codec.PNG
		if _, err := plainly().Convert(t.Context(), cut, s); !errors.Is(err, header.ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The part with something in it is kept, wherever it is.
func TestInteresting(t *testing.T) {
	for _, by := range []Gravity{Entropy, Attention} {
		for _, at := range []int{0, 170, 340} {
			for _, wide := range []bool{true, false} {
				m := image.NewNRGBA(image.Rect(0, 0, 400, 100))
				if !wide {
					m = image.NewNRGBA(image.Rect(0, 0, 100, 400))
				}
				for i := range m.Pix {
					m.Pix[i] = 200
					if i%4 == 3 {
						m.Pix[i] = 255
					}
				}
				for y := range 60 {
					for x := range 60 {
						px, py := at+x, 20+y
						if !wide {
							px, py = py, px
						}
						m.SetNRGBA(px, py, color.NRGBA{uint8(x * 4), uint8(y * 4), uint8(x * y), 255})
					}
				}
				res := convertTo(t, plainly(), asPNG(t, m), Spec{Format: codec.PNG, Width: 100, Height: 100, Fit: Cover, Edit: Edit{Gravity: by}})
				got, err := png.Decode(bytes.NewReader(res.Data))
				if err != nil {
					t.Fatal(err)
				}
				found := 0
				for y := range got.Bounds().Dy() {
					for x := range got.Bounds().Dx() {
						if c, _ := color.NRGBAModel.Convert(got.At(x, y)).(color.NRGBA); c != (color.NRGBA{200, 200, 200, 255}) {
							found++
						}
					}
				}
				if found < 3500 { // of 3600
					t.Errorf("%s, at %d, wide %t: %d pixels of what is there are kept", by, at, wide, found)
				}
			}
		}
	}
}

// JPEG for photographs, PNG for drawings and what has transparent parts; a palette is exact.
func TestPlain(t *testing.T) {
	transparent := photograph(80, 60)
	transparent.Pix[3] = 0
	for name, c := range map[string]struct {
		source []byte
		spec   Spec
		format codec.Format
	}{
		"photograph in JPEG":   {asJPEG(t, photograph(80, 60)), Spec{Width: 40}, codec.JPEG},
		"photograph in PNG":    {asPNG(t, photograph(80, 60)), Spec{Width: 40}, codec.JPEG},
		"drawing":              {asPNG(t, quadrants(80, 60)), Spec{Width: 40}, codec.PNG},
		"with alpha":           {asPNG(t, transparent), Spec{Width: 40}, codec.PNG},
		"asked for JPEG":       {asPNG(t, transparent), Spec{Format: codec.JPEG, Must: true}, codec.JPEG},
		"asked for PNG":        {asJPEG(t, photograph(80, 60)), Spec{Format: codec.PNG, Must: true}, codec.PNG},
		"drawing as JPEG, big": {asPNG(t, quadrants(8, 6)), Spec{Format: codec.JPEG, Must: true}, codec.JPEG},
	} {
		if c.spec.Format == "" {
			c.spec.Format = codec.Plain
		}
		res := convertTo(t, plainly(), c.source, c.spec)
		if info, err := header.Read(res.Data); err != nil || res.Format != c.format || string(info.Format) != string(c.format) || info.Width != res.Width {
			t.Errorf("%s: %s, %+v, %v", name, res.Format, info, err)
		}
	}
	res := convertTo(t, plainly(), asPNG(t, quadrants(80, 60)), Spec{Format: codec.PNG, Edit: Edit{Rotate: 180}})
	m, err := png.Decode(bytes.NewReader(res.Data))
	if p, ok := m.(*image.Paletted); err != nil || !ok || len(p.Palette) != 4 || res.Level != "embedded" || !res.Lossless {
		t.Errorf("four colours: %T, %v", m, err)
	}
	// Transparent pixels of many colours that nobody sees are one colour.
	hidden := image.NewNRGBA(image.Rect(0, 0, 30, 30))
	for i := range hidden.Pix {
		hidden.Pix[i] = uint8(i * 7)
		if i%4 == 3 {
			hidden.Pix[i] = 0
		}
	}
	res = convertTo(t, plainly(), asPNG(t, hidden), Spec{Format: codec.PNG, Edit: Edit{Flip: "h"}})
	if m, err := png.Decode(bytes.NewReader(res.Data)); err != nil || len(m.(*image.Paletted).Palette) != 1 {
		t.Errorf("nothing to be seen: %T, %v", m, err)
	}
}

// The quality falls until the result fits; where nothing fits, it is the smallest.
func TestMaxBytes(t *testing.T) {
	source := asJPEG(t, scene(400, 300))
	before := 1 << 30
	for _, most := range []int{20_000, 10_000, 6_000} {
		res := convertTo(t, plainly(), source, Spec{Format: codec.JPEG, Quality: 90, MaxBytes: most})
		if len(res.Data) > most || len(res.Data) < most*3/5 || len(res.Data) >= before {
			t.Errorf("at most %d: %d", most, len(res.Data))
		}
		before = len(res.Data)
	}
	// Profile and copyright count, with what is around them.
	whole := withSegment(withProfile(source, displayP3()), 0xE1, exif(1))
	for _, format := range []codec.Format{codec.JPEG, codec.WebP} {
		s := Spec{Format: format, Quality: 50, Width: 200, KeepCopyright: true}
		s.MaxBytes = len(convertTo(t, embedded(t), whole, s).Data) - 1
		if res := convertTo(t, embedded(t), whole, s); len(res.Data) > s.MaxBytes {
			t.Errorf("%s: at most %d: %d", format, s.MaxBytes, len(res.Data))
		}
	}
	least := convertTo(t, plainly(), source, Spec{Format: codec.JPEG, Quality: 1, Width: 399})
	if res := convertTo(t, plainly(), source, Spec{Format: codec.JPEG, MaxBytes: 100, Width: 399}); len(res.Data) != len(least.Data) {
		t.Errorf("%d bytes, the lowest quality takes %d", len(res.Data), len(least.Data))
	}
	// A drawing that is larger without loss becomes a JPEG, if the format is open.
	drawing := scene(400, 300)
	for i := range drawing.Pix {
		drawing.Pix[i] &= 0xc0
		if i%4 == 3 {
			drawing.Pix[i] = 255
		}
	}
	if res := convertTo(t, plainly(), asPNG(t, drawing), Spec{Format: codec.Plain, MaxBytes: 3000, Width: 200}); res.Format != codec.JPEG {
		t.Errorf("%d bytes of %s", len(res.Data), res.Format)
	}
}

// Facts are told of every image that is read, and of those whose pixels are not.
func TestFacts(t *testing.T) {
	red := image.NewNRGBA(image.Rect(0, 0, 60, 40))
	for i := range red.Pix {
		red.Pix[i] = []uint8{210, 20, 30, 255}[i%4]
	}
	for i := range 4 * 600 { // a quarter is of many other colours
		red.Pix[i] = uint8(i * 31)
	}
	tell := func(source []byte) (f Facts) {
		t.Helper()
		res := convertTo(t, plainly(), source, Spec{Format: Info})
		if err := json.Unmarshal(res.Data, &f); err != nil {
			t.Fatal(err)
		}
		return f
	}
	if f := tell(asPNG(t, red)); f.Format != "png" || f.Width != 60 || f.Height != 40 || f.Color != "#d2141e" || f.Profile != "sRGB" || f.Frames != 1 || f.Bytes == 0 {
		t.Errorf("%+v", f)
	}
	if f := tell(withSegment(withProfile(asJPEG(t, photograph(64, 32)), displayP3()), 0xE1, exif(6))); f.Width != 32 || f.Height != 64 || f.Orientation != 6 || f.Profile == "sRGB" {
		t.Errorf("a turned JPEG: %+v", f)
	}
	if f := tell(animated(t, 3, 0)); f.Frames != 3 || f.Color == "" {
		t.Errorf("an animation: %+v", f)
	}
	film := convertTo(t, embedded(t), animated(t, 3, 0), Spec{Format: codec.WebP, Width: 32}).Data
	if f := tell(film); f.Format != "webp" || f.Frames != 3 || f.Width != 32 || f.Color == "" {
		t.Errorf("an animated WebP: %+v", f)
	}
	for _, format := range []codec.Format{BlurHash, ThumbHash, Colour} {
		if res := convertTo(t, plainly(), asJPEG(t, photograph(64, 32)), Spec{Format: format}); len(res.Data) < 7 || len(res.Data) > 60 || res.Format != format {
			t.Errorf("%s: %q", format, res.Data)
		}
		if _, err := plainly().Convert(t.Context(), []byte("no image"), Spec{Format: format}); !errors.Is(err, header.ErrUnknown) {
			t.Errorf("%s: %v", format, err)
		}
	}
}

// With SRGB colours are what they were in the profile, and there is none. Animations keep theirs.
func TestSRGB(t *testing.T) {
	m := quadrants(64, 48)
	source := withProfile(asJPEG(t, m), displayP3())
	for _, srgb := range []bool{false, true} {
		res := convertTo(t, plainly(), source, Spec{Format: codec.PNG, Must: true, SRGB: srgb})
		info, err := header.Read(res.Data)
		if err != nil || (info.ICC == nil) != srgb {
			t.Errorf("srgb %t: a profile of %d bytes, %v", srgb, len(info.ICC), err)
		}
		got, err := png.Decode(bytes.NewReader(res.Data))
		if err != nil {
			t.Fatal(err)
		}
		want := m.NRGBAAt(10, 10)
		if srgb {
			want = p3AsSRGB(want)
		}
		if c, _ := color.NRGBAModel.Convert(got.At(10, 10)).(color.NRGBA); far(c, want) > 6 {
			t.Errorf("srgb %t: %v, want %v", srgb, c, want)
		}
	}
}
