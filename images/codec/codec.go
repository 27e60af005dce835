// Package codec is the seam to the encoders: one small interface, two levels.
// Embedded is libwebp and libaom compiled to Go and WebAssembly, always there.
// Tools are the commands cwebp, gif2webp and avifenc, several times faster,
// used where they are installed.
package codec

import (
	"context"
	"errors"

	"millrace/images/picture"
)

// Format is a format that is written.
type Format string

// The formats.
const (
	WebP Format = "webp"
	AVIF Format = "avif"
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

// Encoder writes pictures. All methods may be called at once by many
// goroutines; each call works on one core.
type Encoder interface {
	// Level is "embedded" or "tools".
	Level() string
	// Formats are those that passed the self-test, with a word on who writes
	// them, such as "cwebp 1.2.4" or "libwebp".
	Formats() map[Format]string
	// Encode writes one picture; its ICC profile is not the encoder's affair
	// (package container puts it around the result). Only Model YCbCr, Gray
	// and NRGBA are accepted.
	Encode(ctx context.Context, p *picture.Picture, o Params) ([]byte, error)
	// Animate converts a GIF to an animated WebP.
	Animate(ctx context.Context, gif []byte, o Params) ([]byte, error)
}

// Memory is a guess of the bytes that encoding w × h pixels takes at its peak,
// outside of the picture itself.
func Memory(level string, f Format, pixels int) int64 { panic("not built") }

// NewEmbedded returns the embedded level, self-tested on an 8×8 picture.
func NewEmbedded(ctx context.Context) (*Embedded, error) { panic("not built") }

// Embedded is the level that is always there.
type Embedded struct{}

// NewTools looks the commands up in PATH and tests them on an 8×8 picture.
// Those that are missing or fail are left out; with none at all it returns
// ErrUnsupported.
func NewTools(ctx context.Context, o ToolOptions) (*Tools, error) { panic("not built") }

// ToolOptions of NewTools.
type ToolOptions struct {
	// Memory bounds the address space of one command in bytes (Linux).
	// Default 1 GiB.
	Memory int64
	// Path replaces the environment's PATH; for tests.
	Path string
}

// Tools is the level of installed commands. Each picture is a process of its
// own, fed and read through pipes, that is killed with its context.
type Tools struct{}

// Combine returns an encoder that asks the levels in order: the first that
// writes the format does it; ErrUnsupported goes on to the next.
func Combine(levels ...Encoder) Encoder { panic("not built") }
