// Package header reads what an image file says of itself before anything of
// it is decoded: format, size, frames, orientation, profile. A file of a few
// bytes may claim to have billions of pixels: whoever decodes asks here first.
//
// Everything is read in one walk over the file's blocks, by code of this
// package alone: three EXIF tags do not pay for a metadata library, and bounds
// that are a few lines away can be checked. Nothing is sized by what a file
// claims, and what is in the way of a sound image (a broken profile, broken
// EXIF) is left out and never an error.
package header

import (
	"bytes"
	"errors"
	"fmt"
	"math"
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
	ErrUnknown  = errors.New("not an image of a known format")
	ErrBroken   = errors.New("the image's header is broken")
	ErrTooLarge = errors.New("the image is larger than is allowed")
	// ErrUnsupported is for sound files of a kind that nothing here reads.
	ErrUnsupported = errors.New("a kind of file that is not read")
)

// Info is what a file's headers say. The file's pixels may still be broken.
type Info struct {
	Format        Format
	Width, Height int // as stored: Orientation not applied
	// Frames is 1 for a still image, more for an animation (also of AVIF, which
	// nothing here decodes as one). Counting stops at MaxFrames.
	Frames int
	// Orientation is EXIF's, 1 to 8, where browsers obey it: in JPEG, and in PNG before
	// the pixels, but not in WebP. 1 when there is none. Of AVIF it is what its own
	// properties for that say, as the one of EXIF.
	Orientation int
	Progressive bool // JPEG, and interlaced PNG and GIF
	Alpha       bool // may have transparent pixels
	Lossless    bool // PNG, GIF, BMP, lossless WebP, TIFF without JPEG in it
	Palette     bool
	Depth       int // bits a sample, 8 or 16 mostly; of a palette, of its index
	Components  int // of JPEG: 1, 3 or 4
	// ICC is the whole embedded profile, nil when there is none or it is
	// broken (BrokenICC then). Shares memory with the file where it can.
	ICC         []byte
	ProfileSize int // of ICC, also where that is left out
	BrokenICC   bool
	// NotSRGB says that a PNG has other colours than sRGB's by its cICP chunk
	// or, without a profile, by its gAMA or cHRM (PNG, third edition, 4.3); or an AVIF
	// without a profile by its code points, as those of high dynamic range have.
	NotSRGB bool
	// GainMap says that a JPEG has a second image in it that makes of this one
	// an image of high dynamic range: Ultra HDR, ISO 21496-1, Apple's.
	GainMap bool
	// Copyright and Artist are those of EXIF, empty when there is none, at most
	// 4096 bytes each, valid UTF-8 without control characters.
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

// The defaults of Limits: 50 megapixels is the largest camera in common use,
// 200 of an animation a minute of a small video.
const (
	// DefaultMegapixels is Limits.Megapixels where that is 0.
	DefaultMegapixels = 50

	defaultFrameMegapixels = 200
	defaultFrames          = 1000
)

// Read reads the headers of a file that is in memory, whole or its beginning;
// it never allocates in proportion to what a file only claims. The beginning
// must reach the frame header of JPEG, the first frame of GIF, the directory of
// TIFF (often the file's end), the properties of AVIF. For an animation that is
// cut off, Frames counts what is there. Errors wrap ErrUnknown, ErrBroken or
// ErrUnsupported.
func Read(file []byte) (Info, error) {
	format := sniff(file)
	var (
		i   Info
		err error
	)
	switch format {
	case JPEG:
		i, err = readJPEG(file)
	case PNG:
		i, err = readPNG(file)
	case GIF:
		i, err = readGIF(file)
	case WebP:
		i, err = readWebP(file)
	case BMP:
		i, err = readBMP(file)
	case TIFF:
		i, err = readTIFF(file)
	case AVIF:
		i, err = readAVIF(file)
	default:
		if len(file) == 0 {
			return Info{}, fmt.Errorf("%w: the file is empty", ErrUnknown)
		}
		return Info{}, fmt.Errorf("%w: it begins with % x", ErrUnknown, file[:min(len(file), 8)])
	}
	if err == nil && (i.Width <= 0 || i.Height <= 0) {
		err = fmt.Errorf("%w: it says that it has %d × %d pixels", ErrBroken, i.Width, i.Height)
	}
	if err != nil {
		return Info{}, fmt.Errorf("reading %s headers: %w", format, err)
	}
	i.Format = format
	i.Frames = min(max(i.Frames, 1), MaxFrames)
	if i.Orientation < 1 || i.Orientation > 8 {
		i.Orientation = 1
	}
	return i, nil
}

// sniff tells the format by the first bytes, "" for none that is known.
func sniff(file []byte) Format {
	has := func(at int, magic string) bool {
		return len(file) >= at && bytes.HasPrefix(file[at:], []byte(magic))
	}
	switch {
	case has(0, "\xff\xd8\xff"):
		return JPEG
	case has(0, pngMagic):
		return PNG
	case has(0, "GIF87a"), has(0, "GIF89a"):
		return GIF
	case has(0, "RIFF") && has(8, "WEBP"):
		return WebP
	case has(0, "II*\x00"), has(0, "MM\x00*"), isBigTIFF(file):
		return TIFF
	case isAVIF(file):
		return AVIF
	case isBMP(file):
		return BMP
	}
	return ""
}

// broken is ErrBroken with what was found.
func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBroken, fmt.Sprintf(format, args...))
}

// Megapixels is the area of one frame.
func (i Info) Megapixels() float64 { return float64(i.Width) * float64(i.Height) / 1e6 }

// Check returns ErrTooLarge, wrapped with what was found and the limit, for
// what is above the limits. It is to be asked before anything is decoded.
func (i Info) Check(l Limits) error {
	if l.Megapixels <= 0 {
		l.Megapixels = DefaultMegapixels
	}
	if l.FrameMegapixels <= 0 {
		l.FrameMegapixels = defaultFrameMegapixels
	}
	if l.Frames <= 0 {
		l.Frames = defaultFrames
	}
	mp := i.Megapixels()
	switch all := mp * float64(i.Frames); {
	case mp > l.Megapixels:
		return fmt.Errorf("%w: it has %d × %d pixels, %s megapixels, and the limit is %s",
			ErrTooLarge, i.Width, i.Height, decimal(mp), decimal(l.Megapixels))
	case i.Frames > l.Frames && i.Frames >= MaxFrames:
		return fmt.Errorf("%w: the animation has %d frames or more, and the limit is %d", ErrTooLarge, i.Frames, l.Frames)
	case i.Frames > l.Frames:
		return fmt.Errorf("%w: the animation has %d frames, and the limit is %d", ErrTooLarge, i.Frames, l.Frames)
	case i.Frames > 1 && all > l.FrameMegapixels:
		return fmt.Errorf("%w: the animation has %d frames of %d × %d pixels, together %s megapixels, and the limit is %s",
			ErrTooLarge, i.Frames, i.Width, i.Height, decimal(all), decimal(l.FrameMegapixels))
	}
	return nil
}

// decimal writes a number of megapixels so that one that is just above its
// limit does not look equal to it.
func decimal(v float64) string {
	if v == math.Trunc(v) {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3f", math.Ceil(v*1000)/1000)
}
