// Package jpeg decodes JPEG files to planes as they are stored: luma and
// subsampled chroma, no RGB between. It is faster than image/jpeg, can decode
// at a half, a quarter and an eighth of the size for the cost of less (scaling
// in the DCT domain), and reads what browsers read: baseline and progressive,
// all sampling factors, restart intervals, gray, CMYK and YCCK.
package jpeg

import (
	"errors"

	"millrace/images/picture"
)

// The errors of Decode, wrapped with what was wrong.
var (
	ErrFormat      = errors.New("not a sound JPEG")
	ErrUnsupported = errors.New("a kind of JPEG that is not supported") // arithmetic coding, 12 bits, lossless, hierarchical
	ErrTooLarge    = errors.New("the JPEG has more pixels than are allowed")
)

// Options of Decode.
type Options struct {
	// Denominator scales the picture to 1/1 (0 or 1), 1/2, 1/4 or 1/8 of its
	// size, rounded up.
	Denominator int
	// MaxPixels refuses larger pictures before anything is allocated for them;
	// 0: 50 million.
	MaxPixels int
	// MaxScans bounds the scans of a progressive file: each costs a pass over
	// the whole picture, however few bytes it has. 0: 100.
	MaxScans int
	// Whole refuses truncated files. Otherwise what is missing is gray, as
	// browsers show it, if at least the first scan has begun.
	Whole bool
}

// Decode decodes a file. The result has the model YCbCr, Gray or CMYK (Adobe's
// inversion undone; YCCK converted); RGB files (Adobe transform 0) become NRGBA.
// Orientation and profile are not looked at: package header reads them.
func Decode(data []byte, o Options) (*picture.Picture, error) { panic("not built") }
