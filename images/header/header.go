// Package header reads what a picture file says of itself before anything of
// it is decoded: format, size, frames, orientation, profile. A file of a few
// bytes may claim to have billions of pixels: whoever decodes asks here first.
package header

import (
	"errors"
)

// Format is a file format, told by content and never by name.
type Format string

// The formats that are known.
const (
	JPEG Format = "jpeg"
	PNG  Format = "png"
	GIF  Format = "gif"
	WebP Format = "webp"
	BMP  Format = "bmp"
	TIFF Format = "tiff"
	AVIF Format = "avif"
)

// The errors of Read and Check, wrapped with what was found.
var (
	ErrUnknown  = errors.New("not a picture of a known format")
	ErrBroken   = errors.New("the picture's header is broken")
	ErrTooLarge = errors.New("the picture is larger than is allowed")
)

// Info is what a file's headers say. The file's pixels may still be broken.
type Info struct {
	Format        Format
	Width, Height int // as stored: Orientation not applied
	// Frames is 1 for a still picture, more for an animation. Counting stops
	// at MaxFrames.
	Frames      int
	Orientation int  // EXIF, 1 to 8; 1 when there is none
	Progressive bool // JPEG, and interlaced PNG
	Alpha       bool // may have transparent pixels
	Lossless    bool // PNG, GIF, BMP, lossless WebP
	Palette     bool
	Depth       int // bits a sample, 8 or 16 mostly
	Components  int // of JPEG: 1, 3 or 4
	// ICC is the whole embedded profile, nil when there is none or it is
	// broken (BrokenICC then). Shares memory with the file where it can.
	ICC       []byte
	BrokenICC bool
	// Copyright is the EXIF copyright and artist, empty when there is none.
	Copyright, Artist string
}

// MaxFrames is where counting of frames stops.
const MaxFrames = 10_000

// Limits of what will be decoded. Zero values are the defaults.
type Limits struct {
	Megapixels float64 // of one frame; default 50
	// FrameMegapixels is frames × area of animations. Default 200.
	FrameMegapixels float64
	Frames          int // default 1000
}

// Read reads the headers of a file that is in memory, whole or its beginning;
// it never allocates in proportion to what a file only claims. For an animation
// that is cut off, Frames counts what is there.
func Read(file []byte) (Info, error) { panic("not built") }

// Megapixels is the area of one frame.
func (i Info) Megapixels() float64 { return float64(i.Width) * float64(i.Height) / 1e6 }

// Check returns ErrTooLarge, wrapped, for what is above the limits.
func (i Info) Check(l Limits) error { panic("not built") }

// EXIF builds a minimal EXIF block (TIFF, no "Exif\0\0" before it) that holds a
// copyright and an artist; nil when both are empty.
func EXIF(copyright, artist string) []byte { panic("not built") }
