// Package codec is the seam to the encoders: one small interface, two levels.
// Embedded is libwebp and libaom compiled to Go and WebAssembly, always there.
// Tools are the commands cwebp, gif2webp and avifenc, several times faster,
// used where they are installed.
package codec

import (
	"context"
	"errors"
	"fmt"

	"millrace/images/picture"
)

// Format is a format that is written.
type Format string

// The formats.
const (
	WebP Format = "webp"
	AVIF Format = "avif"
	// JPEG and PNG are what every client takes, and Plain the one of them that suits an
	// image. No Encoder writes them: package convert does.
	JPEG  Format = "jpeg"
	PNG   Format = "png"
	Plain Format = "plain"
)

// Effort is the trade of CPU for bytes. What it means is the level's affair.
type Effort uint8

// Efforts: Fast is for a client that waits (WebP method 2, AVIF speed 9 or 10),
// Best for the background (WebP method 6, AVIF speed 6 where that can be paid).
const (
	Fast Effort = iota
	Best
)

// The errors of Encoders, wrapped.
var (
	// ErrUnsupported: the level cannot write this; another may.
	ErrUnsupported = errors.New("this level cannot write such a picture")
	// ErrFailed: the encoder ended with an error, crashed, or ran into a limit.
	ErrFailed = errors.New("the encoder failed")
)

// Params say how to encode.
type Params struct {
	Format  Format
	Quality int // 1 to 100, on the scale of libwebp; AVIF gets what looks the same
	Effort  Effort
	// Lossless codes without loss (WebP), NearLossless (1 to 99, 0 off) with
	// invisible changes that make it smaller.
	Lossless     bool
	NearLossless int
}

// Shape makes of a frame of an animation what it looks like in the result. All of them get the
// same size by it. nil leaves them as they are.
type Shape func(*picture.Picture) *picture.Picture

// Limits of what is written.
const (
	// maxWebP is the most pixels on a side that the format can name: RFC 9649, 2.
	maxWebP = 16383
	// maxAVIF is libavif's own limit on a side.
	maxAVIF = 32768
	// maxResult bounds what an encoder may hand back. The largest image that
	// is converted by default, 50 megapixels, takes less at any quality.
	maxResult = 64 << 20
)

// Encoder writes images. All methods may be called at once by many
// goroutines; each call works on one core.
type Encoder interface {
	// Level is "embedded" or "tools".
	Level() string
	// Formats are those that passed the self-test, with a word on who writes
	// them, such as "cwebp 1.2.4" or "libwebp".
	Formats() map[Format]string
	// Encode writes one image; its ICC profile is not the encoder's affair
	// (package container puts it around the result). Only Model YCbCr, Gray
	// and NRGBA are accepted.
	Encode(ctx context.Context, p *picture.Picture, o Params) ([]byte, error)
	// Animate converts an animated GIF, PNG or WebP to an animated WebP.
	Animate(ctx context.Context, file []byte, o Params, shape Shape) ([]byte, error)
}

// check refuses what no level can write.
func check(p *picture.Picture, o Params) error {
	limit := maxWebP
	switch o.Format {
	case WebP:
	case AVIF:
		limit = maxAVIF
		if o.exact() {
			return fmt.Errorf("AVIF without loss: %w", ErrUnsupported)
		}
	default:
		return fmt.Errorf("format %q: %w", o.Format, ErrUnsupported)
	}
	if p.Model == picture.CMYK {
		return fmt.Errorf("CMYK pixels: %w", ErrUnsupported)
	}
	if p.Width < 1 || p.Height < 1 || p.Width > limit || p.Height > limit {
		return fmt.Errorf("%d × %d pixels, %s has at most %d a side: %w", p.Width, p.Height, o.Format, limit, ErrUnsupported)
	}
	return nil
}

// exact reports whether the image is to be coded without loss, or nearly so.
func (o Params) exact() bool { return o.Lossless || o.NearLossless > 0 && o.NearLossless < 100 }
