// Package container edits files of the WebP, AVIF, JPEG and PNG formats without touching
// the coded pixels: encoders that know only pixels get their profile, metadata
// and animation put around them here, and locations are taken out of originals.
//
// The parsers of WebP and AVIF expect files that may come from anywhere. They refuse what they
// do not understand to the last byte that matters, allocate in proportion to
// the file and never to what it claims, and what they return can be read by
// them again.
package container

import (
	"errors"
	"fmt"
)

// ErrFormat is returned, wrapped, for input that is not of the format.
var ErrFormat = errors.New("not a sound file of its format")

// Metadata goes with the pixels. What is nil or empty leaves the file's own as
// it is; anything else replaces it.
type Metadata struct {
	ICC  []byte
	EXIF []byte // TIFF, without "Exif\0\0"
}

func (m Metadata) empty() bool { return len(m.ICC) == 0 && len(m.EXIF) == 0 }

// unsound is ErrFormat with what was found.
func unsound(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, args...))
}
