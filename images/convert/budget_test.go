package convert

import (
	"bytes"
	"errors"
	"image"
	"image/png"
	"testing"

	"millrace/images/codec"
	"millrace/images/header"
)

// A screenshot that could be transparent, and is not, needs no memory for that;
// one that is gets WebP while its transparency fits into the budget.
func TestAlphaWithinTheBudget(t *testing.T) {
	embedded, err := codec.NewEmbedded(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := &Converter{Encoder: embedded}
	const side = 700
	for _, name := range []string{"opaque", "transparent"} {
		m := image.NewNRGBA(image.Rect(0, 0, side, side))
		for i := range m.Pix {
			m.Pix[i] = byte(i/4*i>>7 ^ i)
			if i%4 == 3 {
				m.Pix[i] = 255
			}
		}
		if name == "transparent" {
			m.Pix[3] = 0
		}
		var file bytes.Buffer
		if err := png.Encode(&file, alphaAlways{m}); err != nil {
			t.Fatal(err)
		}
		info, err := header.Read(file.Bytes())
		if err != nil || !info.Alpha {
			t.Fatalf("%+v, %v", info, err)
		}
		s := Spec{Format: codec.WebP, Quality: 80}
		for _, budget := range []struct {
			bytes int64
			want  error
		}{
			{1 << 30, nil},
			{baseMemory + 12<<20 + 79*side*side, nil}, // not without loss, but lossy with transparency
			{baseMemory + 10<<20 + 20*side*side, map[string]error{"transparent": ErrMemory}[name]},
		} {
			s.Memory = budget.bytes
			if predicted := Memory(info, s, "embedded"); predicted > s.Memory {
				t.Errorf("%s: %d bytes are predicted for a budget of %d", name, predicted, s.Memory)
			}
			if _, err := c.Convert(t.Context(), file.Bytes(), s); !errors.Is(err, budget.want) && !errors.Is(err, ErrNoGain) {
				t.Errorf("%s, with %d: %v", name, s.Memory, err)
			} else if budget.want != nil && err == nil {
				t.Errorf("%s, with %d: it was converted", name, s.Memory)
			}
		}
	}
}

// alphaAlways is an image that says it may be transparent.
type alphaAlways struct{ *image.NRGBA }

func (alphaAlways) Opaque() bool { return false }

// What the manual promises for the smallest default budget, with what is built in.
func TestPromisedSizes(t *testing.T) {
	const budget = 512 << 20
	photo := header.Info{Format: header.JPEG, Frames: 1, Orientation: 1, Components: 3}
	progressive := photo
	progressive.Progressive = true
	png := header.Info{Format: header.PNG, Frames: 1, Orientation: 1, Lossless: true, Depth: 8}
	alpha := png
	alpha.Alpha = true
	for _, c := range []struct {
		name       string
		info       header.Info
		format     codec.Format
		megapixels float64
		fits       bool
	}{
		{"photograph", photo, codec.WebP, 30, true},
		{"progressive photograph", progressive, codec.WebP, 30, true},
		{"photograph", photo, codec.WebP, 50, false},
		{"opaque PNG", png, codec.WebP, 30, true},
		{"PNG that turns out to be opaque", alpha, codec.WebP, 30, true},
		{"photograph", photo, codec.AVIF, 3.5, true},
		{"photograph", photo, codec.AVIF, 5, false},
	} {
		c.info.Width = int(c.megapixels * 1e6 / 4000)
		c.info.Height = 4000
		s := Spec{Format: c.format, Memory: budget}
		if n := Memory(c.info, s, "embedded"); (n <= budget) != c.fits {
			t.Errorf("%s of %v megapixels as %s: %d MiB are predicted", c.name, c.megapixels, c.format, n>>20)
		}
	}
	alpha.Width, alpha.Height = 2000, 3000
	if s := (Spec{Format: codec.WebP, Memory: budget}); !alphaFits(alpha, s, "embedded") {
		t.Error("six megapixels with transparency do not become WebP")
	}
}
