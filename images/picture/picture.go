// Package picture holds decoded pixels in the layout that the codecs want them
// in, and does to them what a web server has to: turning, cropping, scaling,
// and the conversions between colour models. It knows no file format.
package picture

import (
	"image"
)

// Model is how a picture's pixels are stored.
type Model uint8

// The models. What has one sample a channel of 8 bits.
const (
	// YCbCr has planes: luma, and two of chroma that may be smaller. Gray has
	// only the first. ITU-R BT.601 coefficients, as in JFIF.
	YCbCr Model = iota
	Gray
	// NRGBA has four bytes a pixel, alpha not multiplied in.
	NRGBA
	// CMYK has four bytes a pixel, 255 meaning full ink.
	CMYK
)

// Subsampling is the size of chroma planes in terms of the luma plane's.
type Subsampling uint8

// Subsamplings: 4:4:4 full, 4:2:2 half the width, 4:2:0 half of both, 4:4:0
// half the height. Odd sizes are rounded up.
const (
	Sub444 Subsampling = iota
	Sub422
	Sub420
	Sub440
)

// Picture is a decoded picture. Its fields must fit together; the functions of
// this package return pictures that do, and never change the one they are given.
type Picture struct {
	Width, Height int // in pixels, at least 1
	Model         Model
	Sub           Subsampling // of YCbCr
	// Limited says that luma goes from 16 to 235 and chroma from 16 to 240
	// (BT.601, what VP8 demands) instead of the full range of JFIF.
	Limited bool

	Y, Cb, Cr Plane // YCbCr and Gray
	// A is the alpha plane of YCbCr and Gray, of the luma plane's size; empty
	// when all is opaque.
	A Plane

	Pix    []byte // NRGBA and CMYK
	Stride int    // bytes from one row of Pix to the next

	// ICC is the colour profile that the samples are in; nil is sRGB.
	ICC []byte
}

// Plane is one channel.
type Plane struct {
	Pix    []byte
	Stride int
}

// New allocates a picture of black (transparent, for NRGBA) pixels. The planes
// of YCbCr are contiguous in memory in the order Y, Cb, Cr, without padding.
func New(width, height int, m Model, sub Subsampling) *Picture { panic("not built") }

// FromImage converts what the standard library's decoders return: palettes,
// 16 bits, premultiplied alpha, gray. YCbCr shares the image's memory.
func FromImage(m image.Image) *Picture { panic("not built") }

// Opaque reports whether no pixel is transparent. It looks at the pixels.
func (p *Picture) Opaque() bool { panic("not built") }

// Graphic reports whether the picture looks like a drawing, a chart or a
// screenshot (few colours, flat areas, hard edges) rather than a photograph:
// then lossless coding is smaller and better. It looks at a sample of pixels.
func (p *Picture) Graphic() bool { panic("not built") }

// Orient applies an EXIF orientation, 1 to 8 (TIFF 6.0, section 8, and EXIF
// 2.32, 4.6.4). 1 and unknown values return p itself.
func (p *Picture) Orient(exif int) *Picture { panic("not built") }

// Crop cuts out a rectangle, which must lie inside. For subsampled pictures
// its corner is moved to an even place.
func (p *Picture) Crop(r image.Rectangle) *Picture { panic("not built") }

// Resize scales to width × height. Pictures that get smaller are filtered with
// an area-aware kernel (no aliasing), transparent pixels do not bleed colour.
func (p *Picture) Resize(width, height int) *Picture { panic("not built") }

// NRGBA converts to the NRGBA model; CMYK without a profile is converted
// naively, R = (255-C)(255-K)/255.
func (p *Picture) NRGBA() *Picture { panic("not built") }

// Limited420 converts to 4:2:0 in limited range, what VP8 stores. The planes
// Y, Cb, Cr, A are contiguous in memory, without padding, and A is there even
// if everything is opaque: so it can be handed to the encoder as one slice.
func (p *Picture) Limited420() *Picture { panic("not built") }

// Image returns the picture as an image of the standard library, sharing memory
// where the layouts agree.
func (p *Picture) Image() image.Image { panic("not built") }

// Bytes is the memory that the pixels take.
func (p *Picture) Bytes() int64 { panic("not built") }
