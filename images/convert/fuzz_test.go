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
