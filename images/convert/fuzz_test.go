package convert

import (
	"context"
	"image/color"
	"testing"

	"millrace/images/codec"
	"millrace/images/header"
)

// FuzzConvert has everything but the encoder look at files of anyone's.
func FuzzConvert(f *testing.F) {
	photo := photograph(24, 17)
	f.Add(asJPEG(f, photo), 0, 0, byte(0))
	f.Add(withProfile(withSegment(asJPEG(f, photo), 0xe1, exif(6)), displayP3()), 10, 0, byte(1))
	f.Add(asPNG(f, quadrants(16, 16)), 5, 5, byte(2))
	f.Add(animated(f, 2, 0), 0, 0, byte(0))
	f.Add(cmykJPEG(2, 2, func(x, _ int) color.CMYK { return color.CMYK{C: uint8(x)} }), 3, 9, byte(3))
	f.Add([]byte(smallest), 1, 1, byte(0))
	fits := []Fit{Contain, Cover, Fill, Outside}
	f.Fuzz(func(t *testing.T, file []byte, width, height int, fit byte) {
		if len(file) > 64<<10 {
			return
		}
		e := &fakeEncoder{}
		s := Spec{
			Format: codec.WebP, Width: width % 2000, Height: height % 2000, Fit: fits[int(fit)%len(fits)],
			KeepCopyright: true, Limits: header.Limits{Megapixels: 0.25, FrameMegapixels: 1, Frames: 10},
		}
		res, err := (&Converter{Encoder: e}).Convert(context.Background(), file, s)
		if err != nil {
			return
		}
		if res.Width < 1 || res.Height < 1 || res.Width*res.Height > 250_000 {
			t.Errorf("a result of %d × %d", res.Width, res.Height)
		}
		for _, p := range e.pictures {
			if p.Width != res.Width || p.Height != res.Height {
				t.Errorf("%d × %d were encoded, the result says %d × %d", p.Width, p.Height, res.Width, res.Height)
			}
		}
	})
}

// FuzzEdits has files of anyone's turned, cut, filtered and written as what every client takes.
func FuzzEdits(f *testing.F) {
	photo := photograph(24, 17)
	f.Add(asJPEG(f, photo), uint16(3), uint16(2), uint64(0))
	f.Add(withProfile(withSegment(asJPEG(f, photo), 0xe1, exif(6)), displayP3()), uint16(10), uint16(0), uint64(0x123456))
	f.Add(asPNG(f, quadrants(16, 16)), uint16(5), uint16(5), uint64(0x9abcdef))
	f.Add(animated(f, 2, 0), uint16(0), uint16(9), uint64(0xffff))
	f.Add(cmykJPEG(2, 2, func(x, _ int) color.CMYK { return color.CMYK{C: uint8(x)} }), uint16(3), uint16(9), uint64(1<<40))
	logo := asPNG(f, quadrants(6, 4))
	f.Fuzz(func(t *testing.T, file []byte, width, height uint16, wish uint64) {
		if len(file) > 64<<10 {
			return
		}
		pick := func(n int) int { // the next wish of so many
			v := int(wish % uint64(n))
			wish /= uint64(n)
			return v
		}
		s := Spec{
			Format: []codec.Format{codec.Plain, codec.JPEG, codec.PNG, codec.WebP, Info, BlurHash, ThumbHash, Colour}[pick(8)],
			Width:  int(width) % 500, Height: int(height) % 500, Fit: []Fit{Contain, Cover, Fill, Outside, Pad}[pick(5)],
			Must: pick(2) == 1, MaxBytes: 500 * pick(2), Limits: header.Limits{Megapixels: 0.25, FrameMegapixels: 1, Frames: 10},
			Edit: Edit{
				Rotate: 90 * pick(4), Flip: []string{"", "h", "v", "hv"}[pick(4)], Trim: 5 * pick(2), Enlarge: pick(2) == 1,
				Gravity: []Gravity{"", "n", "se", Focus, Entropy, Attention}[pick(6)], Focus: [2]int{pick(1001), 700},
				Blur: 30 * pick(20), Grayscale: pick(2) == 1, Pad: [4]int{pick(3), pick(3), 1, 0}, Background: []string{"", "ff0000", "00ff0080"}[pick(3)],
			},
		}
		if pick(2) == 1 {
			s.Edit.Rect = [4]int{pick(20), pick(20), 1 + pick(30), 1 + pick(30)}
		}
		if pick(3) == 0 {
			s.Watermark = &Watermark{Image: logo, Position: "e", Opacity: 0.3, Scale: 0.5, Margin: pick(9)}
		}
		res, err := plainly().Convert(context.Background(), file, s)
		if err != nil || IsFact(s.Format) || res.Format == codec.WebP {
			return
		}
		info, err := header.Read(res.Data)
		if err != nil || info.Width != res.Width || info.Height != res.Height || res.Width*res.Height > 250_000 {
			t.Fatalf("%+v: %d × %d, %+v, %v", s, res.Width, res.Height, info, err)
		}
	})
}
