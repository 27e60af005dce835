package convert

import (
	"errors"
	"fmt"
	"image"
	"image/draw"
	"image/gif"
	"image/png"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"
	"golang.org/x/image/webp"

	"millrace/images/codec"
	"millrace/images/container"
	"millrace/images/header"
	"millrace/images/icc"
	"millrace/images/jpeg"
	"millrace/images/picture"
)

// decode decodes the source, of an animation the first frame: a JPEG as small as the plan
// allows, all else at its size. A file that is cut off is an error: half an image may be what a
// browser shows of it now, but it must not be kept as a variant.
func (j *job) decode(p plan) (*picture.Picture, error) {
	if j.info.Format == header.JPEG {
		return jpeg.Decode(j.source, jpeg.Options{
			Denominator: p.denominator(),
			MaxPixels:   j.info.Width * j.info.Height, // which Check has allowed
			Whole:       true,
		})
	}
	if j.info.Format == header.AVIF {
		return j.decodeAVIF()
	}
	if j.info.Format == header.WebP && j.info.Frames > 1 {
		pic, err := codec.FirstFrame(j.source)
		if err != nil {
			return nil, j.broken(err)
		}
		return pic, nil
	}
	config, decode := decoders(j.info.Format)
	if decode == nil {
		return nil, fmt.Errorf("reading %s: %w", j.info.Format, ErrUnsupported)
	}
	// The limits were held against what package header has read: a decoder
	// that reads another size of the same file must not go on.
	c, err := config(j.source)
	if err != nil {
		return nil, j.broken(err)
	}
	if (c.Width != j.info.Width || c.Height != j.info.Height) && j.info.Format != header.GIF {
		return nil, fmt.Errorf("%w: its parts disagree on its size, %d × %d or %d × %d",
			header.ErrBroken, j.info.Width, j.info.Height, c.Width, c.Height)
	}
	m, err := decode(j.source)
	if err != nil {
		return nil, j.broken(err)
	}
	if j.info.Format == header.GIF {
		m = onCanvas(m, j.info.Width, j.info.Height)
	}
	if b := m.Bounds(); b.Dx() != j.info.Width || b.Dy() != j.info.Height {
		return nil, fmt.Errorf("%w: it has %d × %d pixels instead of %d × %d",
			header.ErrBroken, b.Dx(), b.Dy(), j.info.Width, j.info.Height)
	}
	pic := picture.FromImage(m)
	if j.info.Format == header.WebP {
		pic.Limited = pic.Model == picture.YCbCr // VP8's range (RFC 6386, 9.2), which image.YCbCr cannot say
		if !j.info.Alpha && pic.Model == picture.NRGBA {
			opaque(pic)
		}
	}
	return pic, nil
}

// decodeAVIF decodes an AVIF. That its parts agree on its size is known only afterwards; a worker's
// memory is bounded.
func (j *job) decodeAVIF() (*picture.Picture, error) {
	if err := container.CheckAVIF(j.source); err != nil { // a decoder takes what is cut off
		return nil, j.broken(err)
	}
	m, err := codec.DecodeAVIF(j.source)
	if err != nil {
		return nil, j.broken(err)
	}
	if b := m.Bounds(); b.Dx() != j.info.Width || b.Dy() != j.info.Height {
		return nil, fmt.Errorf("%w: it has %d × %d pixels instead of %d × %d",
			header.ErrBroken, b.Dx(), b.Dy(), j.info.Width, j.info.Height)
	}
	return picture.FromImage(m), nil
}

// broken is a decoder's error.
func (j *job) broken(err error) error {
	var unsupported png.UnsupportedError
	var tiffs tiff.UnsupportedError
	if errors.Is(err, ErrUnsupported) || errors.Is(err, codec.ErrUnsupported) {
		return fmt.Errorf("reading %s: %w", j.info.Format, err)
	}
	if errors.As(err, &unsupported) || errors.As(err, &tiffs) || errors.Is(err, bmp.ErrUnsupported) {
		return fmt.Errorf("reading %s: %w: %w", j.info.Format, ErrUnsupported, err)
	}
	return fmt.Errorf("decoding %s: %w: %w", j.info.Format, header.ErrBroken, err)
}

// decoders of the formats whose pixels others decode. WebP is decoded by
// golang.org/x/image: in Go it is a third faster than libwebp translated to Go,
// and lossless files stay exact.
func decoders(f header.Format) (func([]byte) (image.Config, error), func([]byte) (image.Image, error)) {
	switch f {
	case header.PNG:
		return from(png.DecodeConfig), from(png.Decode)
	case header.GIF:
		return from(gif.DecodeConfig), from(gif.Decode)
	case header.BMP:
		return from(bmp.DecodeConfig), from(bmp.Decode)
	case header.TIFF:
		return configTIFF, decodeTIFF
	case header.WebP:
		return from(webp.DecodeConfig), from(webp.Decode)
	}
	return nil, nil
}

// onCanvas puts the first frame of a GIF on its screen, where it may cover a
// part only.
func onCanvas(m image.Image, width, height int) image.Image {
	screen := image.Rect(0, 0, width, height)
	if m.Bounds() == screen {
		return m
	}
	canvas := image.NewNRGBA(screen)
	draw.Draw(canvas, m.Bounds(), m, m.Bounds().Min, draw.Src)
	return canvas
}

// opaque makes all of an image opaque that nobody else has.
func opaque(p *picture.Picture) {
	for y := range p.Height {
		row := p.Pix[y*p.Stride:][:4*p.Width]
		for i := 3; i < len(row); i += 4 {
			row[i] = 255
		}
	}
}

// colours settles what colours the samples stand for. It returns the profile
// that must be put into the result, or nil for sRGB.
//
// A profile that is sRGB, or for another kind of samples than the image's
// (which browsers ignore, too), goes away. Profiles of RGB are kept: the result
// is RGB, and no conversion is better than none (but see lighten). Gray and CMYK are not what the
// results are made of: they are converted.
func (j *job) colours(p *picture.Picture) (*picture.Picture, []byte, error) {
	if j.info.Format == header.GIF { // browsers know no profiles of GIF
		j.info.ICC = nil
	}
	profile := j.profile()
	if profile != nil && profile.Space == icc.Gray && p.Model == picture.NRGBA {
		if g := gray(p); g != nil {
			p = g
		}
	}
	switch {
	case profile != nil && profile.Space == space(p) && profile.Space != icc.RGB:
		q, err := profile.ToSRGB(p)
		if err != nil {
			return nil, nil, fmt.Errorf("colours by %q: %w", profile.Description, err)
		}
		return q, nil, nil
	case p.Model == picture.CMYK:
		j.info.BrokenICC = j.info.BrokenICC || profile != nil
		return p.NRGBA(), nil, nil
	case profile == nil || profile.IsSRGB():
		return p, nil, nil
	case profile.Space == icc.RGB && j.spec.SRGB:
		q, left := toSRGB(p, j.info.ICC)
		return q, left, nil
	case profile.Space == icc.RGB:
		return p, j.info.ICC, nil
	case profile.Space != icc.Gray && profile.Space != icc.CMYK: // Lab and others
		return nil, nil, fmt.Errorf("colours by %q: %w", profile.Description, icc.ErrUnsupported)
	}
	j.info.BrokenICC = true
	return p, nil, nil
}

// convertedProfile is the size in bytes above which a profile of tables may be a reason to
// convert. Those of phones and cameras are smaller, and have no tables.
const convertedProfile = 4 << 10

// tooLarge reports whether a profile is more than a tenth of a result.
func tooLarge(profile, data []byte) bool { return 9*len(profile) > len(data) }

// lighten replaces a profile of RGB that is too large for its image: one of curves and a
// matrix by a shorter one of the same colours; one of tables, which nothing short is equal
// to, by none, with the pixels in sRGB. Those that cannot be converted stay.
func lighten(p *picture.Picture, file []byte) (*picture.Picture, []byte) {
	profile, err := icc.Parse(file)
	if err != nil {
		return p, file
	}
	if compact := profile.Compact(); compact != nil {
		return p, compact
	}
	if len(file) <= convertedProfile {
		return p, file
	}
	return toSRGB(p, file)
}

// toSRGB converts a picture in the colours of a profile of RGB, which stay where that
// cannot be done.
func toSRGB(p *picture.Picture, file []byte) (*picture.Picture, []byte) {
	profile, err := icc.Parse(file)
	if err != nil {
		return p, file
	}
	q, err := profile.ToSRGB(p)
	if err != nil {
		return p, file
	}
	return q, nil
}

// profile parses the source's profile; nil if it has none or none that is sound.
func (j *job) profile() *icc.Profile {
	if len(j.info.ICC) == 0 {
		return nil
	}
	p, err := icc.Parse(j.info.ICC)
	if err != nil {
		j.info.BrokenICC = true
		return nil
	}
	return p
}

// space is the colour space that a profile of these samples has.
func space(p *picture.Picture) icc.Space {
	switch p.Model {
	case picture.Gray:
		return icc.Gray
	case picture.CMYK:
		return icc.CMYK
	}
	return icc.RGB
}
