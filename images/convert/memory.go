package convert

import (
	"millrace/images/codec"
	"millrace/images/header"
)

// baseMemory of a process that converts: the program and the collector's room.
const baseMemory = 24 << 20

// Memory predicts the bytes that a conversion takes at its peak, the source's
// file left out. level is who encodes: "embedded" or "tools". A JPEG that is
// progressive takes about four times what a baseline one does.
func Memory(i header.Info, s Spec, level string) int64 {
	turned := i.Orientation >= 5
	p := planFor(i.Width, i.Height, turned, s)
	pixels := int64(i.Width) * int64(i.Height)
	result := int64(p.to.X) * int64(p.to.Y)
	// Two bytes of a result's pixel are what the encoder is given: planes of
	// luma, half of chroma, and alpha.
	after := 2*result + 2*result + codec.Memory(level, s.Format, int(result))
	if i.Frames > 1 {
		// A canvas for the frame before and one for this, four bytes a pixel.
		return baseMemory + 2*4*pixels + codec.Memory(level, s.Format, int(pixels))
	}
	decoded := decodedMemory(i, p, pixels)
	return baseMemory + max(decoded.peak, decoded.kept+after)
}

type decodedBytes struct{ peak, kept int64 }

// decodedMemory is what decoding takes, and what is left of it afterwards.
func decodedMemory(i header.Info, p plan, pixels int64) decodedBytes {
	if i.Format == header.JPEG {
		samples := int64(max(i.Components, 1)) // a pixel; three are two at most, when chroma is smaller
		if samples == 3 {
			samples = 2
		}
		d := int64(p.denominator())
		kept := samples * pixels / (d * d)
		peak := kept
		if i.Progressive {
			peak += 2 * samples * pixels // coefficients, of 16 bits each, of all scans
		}
		if i.Components == 4 {
			kept += 4 * pixels / (d * d)
		}
		return decodedBytes{peak: peak, kept: kept}
	}
	perPixel := int64(4)
	if i.Palette {
		perPixel = 1
	}
	if i.Depth > 8 {
		perPixel = 8
	}
	kept := perPixel * pixels
	if perPixel != 4 {
		kept += 4 * pixels // the picture that is made of it
	}
	return decodedBytes{peak: kept, kept: kept}
}
