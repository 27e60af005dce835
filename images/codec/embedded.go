package codec

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/draw"

	"millrace/images/picture"
)

// Efforts of the embedded level, as method and speed of the libraries.
const (
	embeddedFastMethod, embeddedBestMethod = 2, 6
	embeddedFastSpeed, embeddedBestSpeed   = 10, 8
	// losslessEffort is what "quality" means to libwebp's lossless coder: how
	// hard it tries. Above 75 it takes a third more time for some 5 % less.
	losslessEffort, losslessBest = 75, 90
	// alphaQuality of AVIF: edges of transparent areas stay clean.
	alphaQuality = 90
)

// Embedded is the level that is always there.
//
// A conversion cannot be stopped while it runs: contexts are looked at before,
// between the frames of an animation, and after. The caller bounds it by
// running in a process that it can end (package worker).
//
// AVIF comes as WebAssembly that is compiled at its first use, which takes
// seconds of CPU and hundreds of megabytes, and stays. So its self-test is
// that first use: it is listed among the formats, and Encode may fail.
//
// Near-lossless is coded without loss: the library has no such option, so the
// result is exact, and larger.
//
// Built without the tag nodynamic, in a binary linked dynamically, the
// libraries use an installed libwebp and libavif instead of their own copies;
// those may use more than one core.
type Embedded struct{}

// NewEmbedded returns the embedded level, self-tested on an 8×8 image (WebP
// only, see Embedded). It takes some milliseconds.
func NewEmbedded(ctx context.Context) (*Embedded, error) {
	e := &Embedded{}
	if err := testWebP(ctx, e); err != nil {
		return nil, fmt.Errorf("self-test of the embedded WebP codec: %w", err)
	}
	return e, nil
}

// webpOptions and avifOptions are those of the libraries.
type webpOptions struct {
	quality, method int
	lossless        bool
}

type avifOptions struct {
	quality, alphaQuality, speed int
	sampling                     image.YCbCrSubsampleRatio
}

// Level is "embedded".
func (*Embedded) Level() string { return "embedded" }

// Formats are both, always.
func (*Embedded) Formats() map[Format]string {
	return libraryNames()
}

// Encode writes one image.
func (e *Embedded) Encode(ctx context.Context, p *picture.Picture, o Params) (file []byte, err error) {
	if err := check(p, o); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("encoding %s: %w: %w", o.Format, ErrFailed, err)
	}
	// What was compiled from C ends with a panic where C ends with a crash:
	// a failed allocation, an access outside of its memory.
	defer func() {
		if r := recover(); r != nil {
			file, err = nil, fmt.Errorf("encoding %s: %w: %v", o.Format, ErrFailed, r)
		}
	}()
	var out bytes.Buffer
	if o.Format == AVIF {
		err = encodeAVIF(&out, p, o)
	} else {
		err = encodeWebP(&out, p, o)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = checkResult(o.Format, out.Bytes())
	}
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w: %w", o.Format, ErrFailed, err)
	}
	return out.Bytes(), nil
}

func encodeWebP(out *bytes.Buffer, p *picture.Picture, o Params) error {
	w := webpOptions{
		// The library's documentation lets 100 mean lossless.
		quality: min(max(o.Quality, 1), 99),
		method:  embeddedFastMethod,
	}
	if o.Effort == Best {
		w.method = embeddedBestMethod
	}
	if o.exact() {
		w.lossless, w.quality = true, losslessEffort
		if o.Effort == Best {
			w.quality = losslessBest
		}
		return libraryWebP(out, nrgbaImage(p.NRGBA()), w)
	}
	return libraryWebP(out, yuvaImage(limited420(p)), w)
}

// limited420 is p as VP8 stores it: p itself if it is so already.
func limited420(p *picture.Picture) *picture.Picture {
	if p.Model == picture.YCbCr && p.Sub == picture.Sub420 && p.Limited && len(p.A.Pix) > 0 {
		return p
	}
	return p.Limited420()
}

// yuvaImage shares the memory of an image that limited420 returned.
func yuvaImage(p *picture.Picture) image.Image {
	return &image.NYCbCrA{
		YCbCr: image.YCbCr{
			Y: p.Y.Pix, Cb: p.Cb.Pix, Cr: p.Cr.Pix,
			YStride: p.Y.Stride, CStride: p.Cb.Stride,
			SubsampleRatio: image.YCbCrSubsampleRatio420,
			Rect:           image.Rect(0, 0, p.Width, p.Height),
		},
		A: p.A.Pix, AStride: p.A.Stride,
	}
}

// nrgbaImage shares the memory of an image of the NRGBA model, except where
// its rows have gaps, which the library would take for pixels.
func nrgbaImage(p *picture.Picture) *image.NRGBA {
	pix := packed(picture.Plane{Pix: p.Pix, Stride: p.Stride}, 4*p.Width, p.Height)
	return &image.NRGBA{Pix: pix, Stride: 4 * p.Width, Rect: image.Rect(0, 0, p.Width, p.Height)}
}

func encodeAVIF(out *bytes.Buffer, p *picture.Picture, o Params) error {
	a := avifOptions{
		quality:      avifQuality(o.Quality, true),
		alphaQuality: alphaQuality,
		speed:        embeddedFastSpeed,
		sampling:     image.YCbCrSubsampleRatio420,
	}
	if o.Effort == Best {
		a.speed = embeddedBestSpeed
	}
	if avifSampling(p) == picture.Sub444 {
		a.sampling = image.YCbCrSubsampleRatio444
	}
	m := nrgbaImage(p.NRGBA())
	premultiplied := &image.RGBA{Pix: m.Pix, Stride: m.Stride, Rect: m.Rect} // the same bytes, if opaque
	if !p.Opaque() {
		premultiplied = image.NewRGBA(m.Rect)
		draw.Draw(premultiplied, m.Rect, m, image.Point{}, draw.Src)
	}
	return libraryAVIF(out, premultiplied, a)
}
