package jpeg

import (
	"bytes"
	stdjpeg "image/jpeg"
	"testing"

	"millrace/images/picture"
)

// FuzzDecode holds the decoder against image/jpeg: what both accept as a whole
// must be the same image.
func FuzzDecode(f *testing.F) {
	for i, l := range layouts() {
		l.width, l.height = min(l.width, 40), min(l.height, 24)
		f.Add(l.encode(uint64(i)))
	}
	f.Add(progressiveBomb(3, true))
	for _, data := range stdPictures(f) {
		f.Add(data)
		f.Add(data[:len(data)*2/3])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		const maxPixels = 1 << 18 // keeps the fuzzer fast
		for _, denominator := range []int{2, 4, 8} {
			p, err := Decode(data, Options{Denominator: denominator, MaxPixels: maxPixels, MaxScans: 20})
			if err == nil {
				err = sound(p)
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		p, err := Decode(data, Options{MaxPixels: maxPixels, MaxScans: 20})
		if err != nil {
			return
		}
		if err := sound(p); err != nil {
			t.Fatal(err)
		}
		if p, err = Decode(data, Options{MaxPixels: maxPixels, MaxScans: 20, Whole: true}); err != nil {
			return
		}
		want, err := stdjpeg.Decode(bytes.NewReader(data))
		if err != nil {
			return
		}
		limit := 3
		if p.Model == picture.CMYK || p.Model == picture.NRGBA {
			limit = 6
		}
		if err := differ(p, want, limit, true); err != nil {
			t.Error(err)
		}
	})
}
