package picture

import (
	"image"
	"testing"
)

func FuzzPicture(f *testing.F) {
	f.Add(uint8(1), uint8(1), uint8(0), int16(1), int16(1), int16(0), int16(0))
	f.Add(uint8(17), uint8(9), uint8(5), int16(40), int16(3), int16(3), int16(5))
	f.Add(uint8(255), uint8(3), uint8(11), int16(-4), int16(700), int16(-30), int16(400))
	f.Fuzz(func(t *testing.T, w, h, k uint8, toW, toH, x, y int16) {
		c := models()[int(k)%len(models())]
		p := noise(max(int(w), 1), max(int(h), 1), c, uint64(k))
		a, b := int(toW)%700, int(toH)%700
		q := p.Resize(a, b)
		check(t, q)
		if q.Width != max(a, 1) || q.Height != max(b, 1) {
			t.Fatalf("%d × %d instead of %d × %d", q.Width, q.Height, a, b)
		}
		q = q.Crop(image.Rect(int(x), int(y), int(y), int(x))).Orient(int(x) & 15)
		check(t, q)
		check(t, q.NRGBA())
		check(t, q.Limited420())
		check(t, FromImage(q.Image()))
		q.Graphic()
	})
}
