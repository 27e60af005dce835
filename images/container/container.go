// Package container edits files of the WebP and AVIF formats without touching
// the coded pixels: encoders that know only pixels get their profile, metadata
// and animation put around them here.
package container

import (
	"errors"
	"time"
)

// ErrFormat is returned, wrapped, for input that is not of the format.
var ErrFormat = errors.New("not a sound file of its format")

// Metadata goes with the pixels; nil fields are left out.
type Metadata struct {
	ICC  []byte
	EXIF []byte // TIFF, without "Exif\0\0"
}

// WebP puts metadata into a still WebP file, simple or extended: RFC 9649, 2.5
// to 2.7. It returns file itself when there is nothing to add.
func WebP(file []byte, m Metadata) ([]byte, error) { panic("not built") }

// Frame is one frame of an animation.
type Frame struct {
	File     []byte // a still WebP
	X, Y     int    // on the canvas, even
	Duration time.Duration
	Blend    bool // over what is there, instead of replacing it
	Dispose  bool // to the background afterwards
}

// Animation is an animated WebP: RFC 9649, 2.7.1.1 and 2.7.1.3.
type Animation struct {
	Width, Height int
	Loops         int     // 0: for ever
	Background    [4]byte // blue, green, red, alpha
	Frames        []Frame
	Metadata      Metadata
}

// Mux writes the animation.
func (a Animation) Mux() ([]byte, error) { panic("not built") }

// AVIF puts a profile and EXIF into a still AVIF file (ISO/IEC 23000-22,
// 23008-12): a colr box of type prof among the item's properties, an Exif item.
// It returns file itself when there is nothing to add.
func AVIF(file []byte, m Metadata) ([]byte, error) { panic("not built") }
