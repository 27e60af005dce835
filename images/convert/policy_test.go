package convert

import (
	"errors"
	"image"
	"image/color"
	"math"
	"slices"
	"testing"

	"millrace/images/codec"
	"millrace/images/picture"
)

// How lossless sources are coded, by what their images look like and what
// the coders make of them.
func TestPolicy(t *testing.T) {
	drawing, photo := asPNG(t, quadrants(400, 300)), asPNG(t, photograph(400, 300))
	noise := photograph(400, 300)
	dithered := image.NewPaletted(noise.Rect, color.Palette{color.Black, color.White})
	for i := range dithered.Pix {
		dithered.Pix[i] = noise.Pix[4*i] >> 7
	}
	for name, c := range map[string]struct {
		source   []byte
		spec     Spec
		lengths  map[bool]int
		want     []codec.Params
		lossless bool
	}{
		"photograph":     {photo, Spec{}, nil, []codec.Params{{Quality: 80}}, false},
		"drawing":        {drawing, Spec{Quality: 60, NearLossless: 60}, nil, []codec.Params{{Quality: 60, Lossless: true, NearLossless: 60}}, true},
		"exact drawing":  {drawing, Spec{NearLossless: 100}, nil, []codec.Params{{Quality: 80, Lossless: true}}, true},
		"palette":        {asPNG(t, dithered), Spec{Effort: codec.Best}, nil, []codec.Params{{Quality: 80, Lossless: true, Effort: codec.Best}}, true},
		"avif":           {drawing, Spec{Format: codec.AVIF}, map[bool]int{false: 10}, []codec.Params{{Format: codec.AVIF, Quality: 90}}, false},
		"photo as avif":  {photo, Spec{Format: codec.AVIF}, map[bool]int{false: 10}, []codec.Params{{Format: codec.AVIF, Quality: 80}}, false},
		"huge drawing":   {asPNG(t, image.NewGray(image.Rect(0, 0, 3000, 2000))), Spec{}, nil, []codec.Params{{Quality: 90}}, false},
		"drawing as jpg": {asJPEG(t, quadrants(400, 300)), Spec{}, nil, []codec.Params{{Quality: 80}}, false},
		// The lossy result is smaller, but no image at all: not faithful.
		"both": {
			asPNG(t, dithered),
			Spec{},
			map[bool]int{true: len(asPNG(t, dithered)) - 300, false: 100},
			[]codec.Params{{Quality: 80, Lossless: true}, {Quality: 80}},
			true,
		},
	} {
		if c.spec.Format == "" {
			c.spec.Format = codec.WebP
		}
		for i := range c.want {
			c.want[i].Format = c.spec.Format
			c.want[i].Effort = c.spec.Effort
		}
		f := &fakeEncoder{lengths: c.lengths}
		res, err := (&Converter{Encoder: f}).Convert(t.Context(), c.source, c.spec)
		if err != nil || res.Lossless != c.lossless || !slices.Equal(f.params, c.want) {
			t.Errorf("%s: %+v, %v", name, f.params, err)
		}
	}
}

func TestDifference(t *testing.T) {
	c := embedded(t)
	m := picture.FromImage(quadrants(128, 64))
	exact, err := c.Encoder.Encode(t.Context(), m, codec.Params{Format: codec.WebP, Lossless: true})
	if err != nil {
		t.Fatal(err)
	}
	if d := difference(m, exact); !math.IsInf(d, 1) {
		t.Errorf("a lossless file differs: %v dB", d)
	}
	if d := difference(picture.FromImage(photograph(128, 64)), exact); d > 20 {
		t.Errorf("two pictures are the same: %v dB", d)
	}
	if d := difference(picture.FromImage(quadrants(64, 64)), exact); !math.IsInf(d, -1) {
		t.Errorf("two sizes are the same: %v dB", d)
	}
}

// An original that fits its box is sent where the variant is not smaller, unless the box
// wants other proportions: a variant that is cut or stretched is what was asked for.
func TestNoGainInABox(t *testing.T) {
	source := withSegment(asJPEG(t, stored(photograph(60, 40), 6)), 0xe1, exif(6)) // 60 × 40 upright
	c := &Converter{Encoder: &fakeEncoder{lengths: map[bool]int{false: len(source) + 1}}}
	for _, box := range []struct {
		w, h int
		gain map[Fit]bool // that a variant is made
	}{
		{60, 0, nil},
		{0, 40, nil},
		{1000, 1000, map[Fit]bool{Cover: true, Fill: true}},
		{90, 60, nil},
		{60, 41, map[Fit]bool{Cover: true, Fill: true}},
		{60, 30, map[Fit]bool{Contain: true, Cover: true, Fill: true}},
		{59, 0, map[Fit]bool{Contain: true, Cover: true, Fill: true, Outside: true}},
	} {
		for _, fit := range []Fit{Contain, Cover, Fill, Outside} {
			_, err := c.Convert(t.Context(), source, Spec{Format: codec.WebP, Width: box.w, Height: box.h, Fit: fit})
			if (err == nil) != box.gain[fit] || err != nil && !errors.Is(err, ErrNoGain) {
				t.Errorf("%s in %d × %d: %v", fit, box.w, box.h, err)
			}
		}
	}
}

func TestNoGain(t *testing.T) {
	source := asJPEG(t, photograph(64, 64))
	for length, want := range map[int]bool{len(source): true, len(source) - 255: true, len(source) - 256: false} {
		c := &Converter{Encoder: &fakeEncoder{lengths: map[bool]int{false: length}}}
		for _, width := range []int{0, 64, 1000} { // no box, and boxes that change nothing
			_, err := c.Convert(t.Context(), source, Spec{Format: codec.WebP, Width: width})
			if errors.Is(err, ErrNoGain) != want || !want && err != nil {
				t.Errorf("%d bytes of %d in a box of width %d: %v", length, len(source), width, err)
			}
		}
		if _, err := c.Convert(t.Context(), source, Spec{Format: codec.WebP, Width: 63}); err != nil {
			t.Errorf("another size: %v", err)
		}
	}
}
