// Package jpeg decodes JPEG files to planes as they are stored: luma and
// subsampled chroma, no RGB between; and it encodes such planes (Encode). Decoding is faster than image/jpeg, can decode
// at a half, a quarter and an eighth of the size for the cost of less (scaling
// in the DCT domain), and reads what browsers read: baseline and progressive,
// all sampling factors, restart intervals, gray, CMYK and YCCK.
//
// Section numbers in comments are those of ITU-T T.81, which is JPEG.
//
// The way of a file: markers.go walks over its segments, scan.go over the
// blocks of a scan, sequential.go and progressive.go read one block's
// coefficients by means of bits.go and huffman.go, idct.go makes samples of
// them, and output.go an image of the samples.
//
// Hostile files: time is bounded by the file's length and by pixels × scans,
// both limited; a scan ends as soon as its data does. Memory is bounded by the
// pixels of the result: a byte a sample (1.5 a pixel of 4:2:0), four more a pixel
// for RGB and CMYK, at most as much again where planes are resampled; and for
// progressive files, while they are read, two bytes a sample of the full size
// (at 1/8 a sixty-fourth of that).
package jpeg

import (
	"errors"
	"fmt"

	"millrace/images/picture"
)

// The errors of Decode, wrapped with what was wrong.
var (
	ErrFormat      = errors.New("not a sound JPEG")
	ErrUnsupported = errors.New("a kind of JPEG that is not supported") // arithmetic coding, 12 bits, lossless, hierarchical
	ErrTooLarge    = errors.New("the JPEG has more pixels than are allowed")
)

const (
	defaultMaxPixels = 50_000_000
	// defaultMaxScans: encoders write ten or so, the most elaborate scripts
	// some sixty.
	defaultMaxScans = 100
	// maxPixelsPerByte refuses files that claim a size which their data cannot
	// fill. A block of 64 samples takes two bits at least in a baseline file
	// (256 pixels a byte), one in a progressive one, whose further scans cost
	// next to nothing (512); with sampling factors that no encoder uses, nine
	// blocks may cover 1024 pixels (910). Twice that leaves room for files that
	// are cut off.
	maxPixelsPerByte = 2048
)

// Options of Decode.
type Options struct {
	// Denominator scales the image to 1/1 (0 or 1), 1/2, 1/4 or 1/8 of its
	// size, rounded up.
	Denominator int
	// MaxPixels refuses larger images before anything is allocated for them;
	// 0: 50 million.
	MaxPixels int
	// MaxScans bounds the scans of a file: each of a progressive one costs a
	// pass over the whole image, however few bytes it has. Files with more
	// are refused with ErrFormat. 0: 100.
	MaxScans int
	// Whole refuses files that are truncated or damaged. Otherwise what is
	// missing is gray, as browsers show it, if at least the first scan has
	// begun.
	Whole bool
}

// Decode decodes a file. The result has the model YCbCr, Gray or CMYK (Adobe's
// inversion undone, which files without an Adobe marker are taken to have as
// well, as browsers do; YCCK converted); RGB files (Adobe transform 0, or
// components named R, G, B) become NRGBA. Orientation and profile are not
// looked at: package header reads them.
//
// 4:4:4, 4:2:2, 4:2:0 and 4:4:0 are returned as they are stored; of other
// samplings the chroma planes are repeated up to the nearest of these. Planes
// may have strides larger than their width. The error wraps ErrFormat,
// ErrUnsupported or ErrTooLarge.
func Decode(data []byte, o Options) (*picture.Picture, error) {
	if o.MaxPixels <= 0 {
		o.MaxPixels = defaultMaxPixels
	}
	if o.MaxScans <= 0 {
		o.MaxScans = defaultMaxScans
	}
	d := &decoder{data: data, o: o}
	switch o.Denominator {
	case 0, 1:
		d.size, d.last = 8, 63
	case 2:
		d.size, d.last = 4, 24
	case 4:
		d.size, d.last = 2, 4
	case 8:
		d.size, d.last = 1, 0
	default:
		return nil, fmt.Errorf("decoding a JPEG at 1/%d of its size: the denominator must be 1, 2, 4 or 8", o.Denominator)
	}
	if err := d.read(); err != nil {
		return nil, fmt.Errorf("decoding a JPEG: %w", err)
	}
	return d.picture(), nil
}
