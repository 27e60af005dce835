// Package icc reads ICC colour profiles (ICC.1:2022) as far as a web server
// needs: to tell that one is sRGB and can be left out, and to convert pixels to
// sRGB where a profile cannot be kept.
package icc

import (
	"errors"

	"millrace/images/picture"
)

// The errors of Parse and Convert, wrapped.
var (
	ErrBroken      = errors.New("the colour profile is broken")
	ErrUnsupported = errors.New("a kind of colour profile that cannot be converted")
)

// Space is the colour space of the samples that a profile describes.
type Space string

// Spaces, by their ICC signature.
const (
	RGB  Space = "RGB "
	Gray Space = "GRAY"
	CMYK Space = "CMYK"
)

// Profile is a parsed profile.
type Profile struct {
	Space       Space
	Description string
	// unexported fields follow
}

// Parse reads a profile. It is bounded in time and memory by the file's size.
func Parse(data []byte) (*Profile, error) { panic("not built") }

// IsSRGB reports whether the profile describes sRGB closely enough that no eye
// tells the difference: primaries and curve are compared, not names.
func (p *Profile) IsSRGB() bool { panic("not built") }

// ToSRGB converts a picture whose samples are in this profile (Gray with a gray
// profile, CMYK with a CMYK one, YCbCr and NRGBA with RGB) to sRGB, relative
// colorimetric with black point as the profile has it. The result is NRGBA (or
// Gray) with no ICC. ErrUnsupported for lookup-table profiles of kinds that are
// not implemented.
func (p *Profile) ToSRGB(pic *picture.Picture) (*picture.Picture, error) { panic("not built") }
