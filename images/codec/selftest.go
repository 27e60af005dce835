package codec

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/gif"

	"golang.org/x/image/webp"

	"millrace/images/picture"
)

// testSide is the width and height of the images of the self-tests.
const testSide = 8

// testPicture is a small one in one colour, as VP8 wants it: Y 120, Cb 90,
// Cr 200 in limited range, a pink.
func testPicture() *picture.Picture {
	const luma, chroma = testSide * testSide, testSide * testSide / 4
	all := make([]byte, 2*luma+2*chroma)
	plane := func(from, n, stride int, value byte) picture.Plane {
		b := all[from : from+n]
		for i := range b {
			b[i] = value
		}
		return picture.Plane{Pix: b, Stride: stride}
	}
	return &picture.Picture{
		Width: testSide, Height: testSide, Model: picture.YCbCr, Sub: picture.Sub420, Limited: true,
		Y:  plane(0, luma, testSide, 120),
		Cb: plane(luma, chroma, testSide/2, 90),
		Cr: plane(luma+chroma, chroma, testSide/2, 200),
		A:  plane(luma+2*chroma, luma, testSide, 255),
	}
}

// testTransparent is a small one in RGB whose upper half is transparent.
func testTransparent() *picture.Picture {
	p := &picture.Picture{
		Width: testSide, Height: testSide, Model: picture.NRGBA,
		Pix: make([]byte, 4*testSide*testSide), Stride: 4 * testSide,
	}
	for i := len(p.Pix) / 2; i < len(p.Pix); i += 4 {
		copy(p.Pix[i:], []byte{200, 30, 60, 255})
	}
	return p
}

// testGIF is a small animation of two frames.
func testGIF() ([]byte, error) {
	palette := color.Palette{color.NRGBA{200, 30, 60, 255}, color.NRGBA{20, 130, 60, 255}}
	a := image.NewPaletted(image.Rect(0, 0, testSide, testSide), palette)
	b := image.NewPaletted(a.Rect, palette)
	for i := range b.Pix {
		b.Pix[i] = 1
	}
	var out bytes.Buffer
	err := gif.EncodeAll(&out, &gif.GIF{Image: []*image.Paletted{a, b}, Delay: []int{10, 10}})
	return out.Bytes(), err
}

// testWebP has an encoder code the images, lossy and without loss, and looks
// at what it made of their colours.
func testWebP(ctx context.Context, e Encoder) error {
	file, err := e.Encode(ctx, testPicture(), Params{Format: WebP, Quality: 80})
	if err != nil {
		return err
	}
	if err := expectColour(file, color.NRGBA{228, 80, 48, 255}); err != nil {
		return err
	}
	file, err = e.Encode(ctx, testTransparent(), Params{Format: WebP, Quality: 80, Lossless: true})
	if err != nil {
		return err
	}
	return expectColour(file, color.NRGBA{200, 30, 60, 255})
}

// expectColour decodes a WebP and compares a pixel near its lower edge.
func expectColour(file []byte, want color.NRGBA) error {
	m, err := webp.Decode(bytes.NewReader(file))
	if err != nil {
		return fmt.Errorf("%w: decoding what came out: %w", ErrFailed, err)
	}
	got, ok := color.NRGBAModel.Convert(m.At(testSide/2, testSide-2)).(color.NRGBA)
	const near = 24 // lossy, and whether the decoder expands limited range is its affair
	if !ok || m.Bounds().Dx() != testSide || m.Bounds().Dy() != testSide ||
		distance(got.R, want.R) > near || distance(got.G, want.G) > near || distance(got.B, want.B) > near {
		return fmt.Errorf("%w: it made %v of a picture in %v", ErrFailed, got, want)
	}
	return nil
}

func distance(a, b uint8) int { return max(int(a), int(b)) - min(int(a), int(b)) }
