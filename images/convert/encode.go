package convert

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"golang.org/x/image/webp"

	"millrace/images/codec"
	"millrace/images/picture"
)

// How a still image is coded:
//
// JPEG and lossy WebP have lost already: lossy again, at the quality asked for.
// So are PNG, BMP, TIFF and lossless WebP that hold photographs.
//
// Drawings, charts and screenshots in those formats, and all with a palette,
// are coded without loss (nearly so, where that is allowed): lossy coding
// blurs their edges and is larger, mostly. Only where that has not made the
// file smaller by a quarter, lossy coding is tried, too, and wins if it takes
// at most half of the lossless bytes and nobody will see it: faithful.
//
// As AVIF, which has no useful lossless mode, they get a quality of 90 at
// least, and full chroma from the encoder. So do graphics as WebP that are too
// large for lossless coding in the memory that there is: with 512 MiB over 3.6
// megapixels embedded, over 11 with tools. Transparency is coded without loss,
// too: what has some, and needs more than there is, is not made a WebP (with
// 512 MiB over 6 megapixels embedded). What only could have some is.
const (
	// goodEnough is the part of the source's bytes that a lossless result may
	// have without lossy coding being tried.
	goodEnough = 0.75
	// muchSmaller is the part of the lossless result's bytes that a lossy one
	// may have to be preferred.
	muchSmaller = 0.5
	// faithful is the peak signal to noise ratio in dB over red, green, blue
	// and alpha above which changes in flat areas are invisible: 40 dB is a
	// mean error of 2.6 of 255.
	faithful = 40
	// graphicQuality is the least for graphics that are coded lossy.
	graphicQuality = 90
)

// encode codes an image in as many bytes as it may have, and tells whether that was
// lossless, nearly at least.
func (j *job) encode(p *picture.Picture) (data []byte, lossless bool, err error) {
	asked := j.spec
	data, lossless, err = j.encodeAt(p, asked.Quality)
	fits := func(data []byte) bool {
		whole, err := j.wrap(data, p.ICC)
		return err == nil && len(whole) <= asked.MaxBytes
	}
	if err != nil || asked.MaxBytes == 0 || fits(data) {
		return data, lossless, err
	}
	if lossless {
		if j.spec.Format == codec.PNG && (asked.Format == codec.PNG || !p.Opaque()) {
			return data, true, nil
		}
		if j.spec.Format == codec.PNG {
			j.spec.Format = codec.JPEG
		}
		j.lossy = true
	}
	found := false
	for low, high := 1, asked.Quality; low <= high; {
		q := (low + high) / 2
		one, _, err := j.encodeAt(p, q)
		switch {
		case err != nil:
			return nil, false, err
		case fits(one):
			data, found, low = one, true, q+1
		default:
			if !found && len(one) < len(data) {
				data = one // if none fits, the smallest
			}
			high = q - 1
		}
	}
	return data, false, nil
}

// encodeAt codes an image at a quality.
func (j *job) encodeAt(p *picture.Picture, quality int) (data []byte, lossless bool, err error) {
	lossy := codec.Params{Format: j.spec.Format, Quality: quality, Effort: j.spec.Effort}
	graphic := !j.lossy && j.info.Lossless && (j.info.Palette || p.Graphic())
	if _, plain := plainFormats()[j.spec.Format]; plain {
		return j.plain(p, graphic, quality)
	}
	if !graphic {
		data, err = j.with(p, lossy)
		return data, false, err
	}
	if j.spec.Format != codec.WebP || !exactFits(j.info, j.spec, codec.LevelOf(j.encoder, codec.WebP)) {
		lossy.Quality = max(lossy.Quality, graphicQuality)
		data, err = j.with(p, lossy)
		return data, false, err
	}
	exact := lossy
	exact.Lossless, exact.NearLossless = true, j.nearLossless()
	data, err = j.with(p, exact)
	if err != nil {
		return nil, false, err
	}
	area := float64(p.Width*p.Height) / float64(j.info.Width*j.info.Height)
	if float64(len(data)) <= goodEnough*area*float64(len(j.source)) {
		return data, true, nil
	}
	other, err := j.with(p, lossy)
	if err != nil {
		if errors.Is(err, codec.ErrUnsupported) || errors.Is(err, codec.ErrFailed) && j.ctx.Err() == nil {
			return data, true, nil // there is one result already
		}
		return nil, false, err
	}
	if float64(len(other)) <= muchSmaller*float64(len(data)) && difference(p, other) >= faithful {
		return other, false, nil
	}
	return data, true, nil
}

func (j *job) with(p *picture.Picture, o codec.Params) ([]byte, error) {
	if err := j.ctx.Err(); err != nil {
		return nil, fmt.Errorf("encoding %s: %w", o.Format, err)
	}
	if o.Format == codec.WebP && j.info.Alpha && !alphaFits(j.info, j.spec, codec.LevelOf(j.encoder, codec.WebP)) && !p.Opaque() {
		return nil, fmt.Errorf("encoding %s: %w", o.Format, ErrMemory)
	}
	data, err := j.encoder.Encode(j.ctx, p, o)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", o.Format, err)
	}
	return data, nil
}

// nearLossless is the setting as encoders have it, 0 for off.
func (j *job) nearLossless() int {
	if n := j.spec.NearLossless; n > 0 && n < 100 {
		return n
	}
	return 0
}

// difference is the peak signal to noise ratio in dB of a coded WebP, -Inf if
// it cannot be read.
func difference(p *picture.Picture, coded []byte) float64 {
	m, err := webp.Decode(bytes.NewReader(coded))
	if err != nil || m.Bounds().Dx() != p.Width || m.Bounds().Dy() != p.Height {
		return math.Inf(-1)
	}
	got := picture.FromImage(m)
	got.Limited = got.Model == picture.YCbCr
	a, b := p.NRGBA(), got.NRGBA()
	var sum float64
	for y := range p.Height {
		x, z := a.Pix[y*a.Stride:][:4*p.Width], b.Pix[y*b.Stride:][:4*p.Width]
		row := 0
		for i := 0; i < len(x); i += 4 {
			if x[i+3] == 0 && z[i+3] == 0 {
				continue // what is transparent has no colour
			}
			for k := range 4 {
				d := int(x[i+k]) - int(z[i+k])
				row += d * d
			}
		}
		sum += float64(row)
	}
	mean := sum / float64(4*p.Width*p.Height)
	if mean == 0 {
		return math.Inf(1)
	}
	return 10 * math.Log10(255*255/mean)
}
