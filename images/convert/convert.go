// Package convert makes one picture file into another: probe, decode at the
// scale that is needed, turn upright, fit into a size, settle the colours,
// encode, put profile and copyright back. It is a function of its input: no
// files, no cache, no network.
package convert

import (
	"context"
	"errors"
	"time"

	"millrace/images/codec"
	"millrace/images/header"
)

// ErrNoGain: the result would not be smaller than the source; what was
// converted is thrown away. Only for specs that change nothing but the format.
var ErrNoGain = errors.New("the original is smaller")

// Fit is how a picture is brought into a box.
type Fit string

// Fits. Contain (the default) keeps the whole picture and its proportions
// inside the box; Cover fills the box and cuts off what hangs over, from the
// middle; Fill ignores the proportions; Inside is Contain, Outside covers
// without cutting. None ever makes a picture larger than it is.
const (
	Contain Fit = "contain"
	Cover   Fit = "cover"
	Fill    Fit = "fill"
	Outside Fit = "outside"
)

// Spec says what to make of a source.
type Spec struct {
	Format  codec.Format
	Quality int
	Effort  codec.Effort
	Width   int // of the box in pixels; 0: by Height and proportions
	Height  int
	Fit     Fit
	// KeepCopyright keeps copyright and artist of EXIF; all else is stripped.
	KeepCopyright bool
	// NearLossless allows invisible changes in graphics, 0 to 100 (off).
	NearLossless int
	Limits       header.Limits
}

// Resizes reports whether more than the format changes.
func (s Spec) Resizes() bool { return s.Width != 0 || s.Height != 0 }

// Result is a converted picture.
type Result struct {
	Data          []byte      `json:"-"`
	Width, Height int         // of the result
	Source        header.Info // ICC left out
	Level         string      // who encoded: "embedded", "tools"
	Lossless      bool
	CPU           time.Duration // of everything, child processes included
	Wall          time.Duration
}

// Converter converts with an encoder.
type Converter struct {
	Encoder codec.Encoder
}

// Convert converts a file. Errors wrap those of header, jpeg, icc and codec,
// or are ErrNoGain. It panics on nothing: what a decoder panics with is an
// error that wraps header.ErrBroken.
func (c *Converter) Convert(ctx context.Context, source []byte, s Spec) (*Result, error) {
	panic("not built")
}

// Memory predicts the bytes that a conversion takes at its peak.
func Memory(i header.Info, s Spec, level string) int64 { panic("not built") }
