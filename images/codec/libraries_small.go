//go:build small

package codec

import (
	"fmt"
	"image"
	"io"
)

// The tag small leaves the libraries out: they are a sixth of what a first build
// compiles. Images are then converted by the commands cwebp and avifenc alone.
var errSmall = fmt.Errorf("%w: this millrace was built with -tags small, which leaves out the embedded encoders: build it without, or install cwebp and avifenc", ErrUnsupported)

func libraryNames() map[Format]string { return nil }

func libraryWebP(io.Writer, image.Image, webpOptions) error { return errSmall }

func libraryReadAVIF(io.Reader) (image.Image, error) { return nil, errSmall }

func libraryAVIF(io.Writer, image.Image, avifOptions) error { return errSmall }
