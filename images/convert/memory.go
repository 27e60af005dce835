package convert

import (
	"millrace/images/codec"
	"millrace/images/header"
)

const (
	// baseMemory of a process that converts: the program's own pages that are
	// touched, and what the collector has not collected yet of nothing much.
	baseMemory = 34 << 20
	// defaultMemory is for specs that name none, as images.Options has it.
	defaultMemory = 512 << 20
)

// Memory predicts the resident bytes of a conversion at its peak, those of the
// process and of its command together, the source's file left out. level is
// who encodes: "embedded" or "tools". Measured peaks are within a factor of two
// but for photographs in lossless formats: nothing in their headers tells them
// from drawings, whose coding may take several times as much and is predicted
// for both.
func Memory(i header.Info, s Spec, level string) int64 {
	switch {
	case s.Format == Stripped || s.Format == SVG:
		return baseMemory // and the file twice, which is bounded and small beside that
	case IsFact(s.Format):
		s.Width, s.Height, s.Fit, s.Edit = factSide, factSide, Contain, Edit{}
	}
	if i.Frames > 1 && i.Format != header.TIFF && s.Format == codec.WebP {
		return animationMemory(i, s, level)
	}
	peak, held, result := stillMemory(i, s)
	encoder := codec.Memory(level, s.Format, result)
	switch {
	case s.Format != codec.WebP:
	case i.Lossless && exactFits(i, s, level):
		encoder = max(encoder, codec.MemoryExact(level, result))
	case i.Alpha && alphaFits(i, s, level): // else only what turns out to be opaque is coded
		encoder = max(encoder, codec.MemoryAlpha(level, result))
	}
	return baseMemory + max(peak, held+encoder)
}

// animationMemory is what an animation takes: all frames of a GIF with an index a pixel, canvases
// of four bytes a pixel (what is shown, what was, what comes), one frame of other formats, and
// one frame's coder.
func animationMemory(i header.Info, s Spec, level string) int64 {
	pixels := int64(i.Width) * int64(i.Height)
	held, result := 3*4*pixels, pixels
	if s.Resizes() || s.Edits() {
		p := s.planOf(i)
		_, size := s.frame(p.to.X, p.to.Y)
		result = int64(size.X) * int64(size.Y)
		held += 3 * 4 * result
		if s.Edits() {
			held += 20 * result // as for still images
		}
	}
	if i.Format == header.GIF {
		held += int64(i.Frames) * pixels
	} else {
		held += 2 * 4 * pixels
	}
	return baseMemory + held + codec.MemoryExact(AnimationLevel(i, s, level), int(result))
}

// AnimationLevel is who converts an animation, where level does it for still images: commands
// take GIFs as they are alone.
func AnimationLevel(i header.Info, s Spec, level string) string {
	if i.Format != header.GIF || s.Resizes() || s.Edits() {
		return "embedded"
	}
	return level
}

// exactFits reports whether a still image may be coded without loss in the
// memory that the spec allows. Larger ones are coded lossy, which takes less.
func exactFits(i header.Info, s Spec, level string) bool { return fits(i, s, level, codec.MemoryExact) }

// alphaFits is the same for lossy coding with transparency.
func alphaFits(i header.Info, s Spec, level string) bool { return fits(i, s, level, codec.MemoryAlpha) }

func fits(i header.Info, s Spec, level string, coder func(level string, pixels int) int64) bool {
	most := s.Memory
	if most <= 0 {
		most = defaultMemory
	}
	peak, held, result := stillMemory(i, s)
	return baseMemory+max(peak, held+coder(level, result)) <= most
}

// stillMemory is what decoding a still image takes, what is held of it while
// it is encoded, and how many pixels the result has.
func stillMemory(i header.Info, s Spec) (peak, held int64, result int) {
	pixels := int64(i.Width) * int64(i.Height)
	p := s.planOf(i)
	to := int64(p.to.X) * int64(p.to.Y)
	if s.Edit.Trim > 0 {
		p.to = upright(i) // it is decoded at its size
	}
	peak, kept, perPixel := decodedMemory(i, p, pixels)
	if s.Edits() {
		_, size := s.frame(p.to.X, p.to.Y)
		to = int64(size.X) * int64(size.Y)
		// A turned copy of what was decoded, and what a blur holds between its rows and columns:
		// four numbers of four bytes, and the result.
		held = kept + 20*to
		peak += kept
	}
	held += kept + 5*to/2 // planes for the coder: luma, a half of chroma, alpha
	if to != pixels || i.Orientation > 1 {
		held += perPixel * to // the scaled or turned copy
	}
	if i.ProfileSize > convertedProfile || i.ProfileSize > 0 && s.SRGB { // then the result may be converted to sRGB
		held += 4 * to
	}
	return peak, held, int(to)
}

// decodedMemory is what decoding takes, what is left of it afterwards, and how
// many bytes a pixel of the image has then.
func decodedMemory(i header.Info, p plan, pixels int64) (peak, kept, perPixel int64) {
	if i.Format == header.JPEG {
		samples := int64(max(i.Components, 1))
		if samples == 3 {
			samples = 2 // chroma is mostly smaller: 1.5 to 3
		}
		d := int64(p.denominator())
		kept = samples * pixels / (d * d)
		peak = kept
		switch {
		case i.Progressive && d == 8: // of each block of 64 only the mean is kept
			peak += 2 * samples * pixels / 64
		case i.Progressive: // 16 bits a coefficient, until the last scan
			peak += 2 * samples * pixels
		}
		if i.Components == 4 {
			kept *= 2 // CMYK and what it is converted to
		}
		return peak, kept, samples
	}
	switch {
	case i.Format == header.AVIF:
		// What is compiled, planes, RGB in 8 or 16 bits inside of it, and twice outside.
		kept = 120<<20 + int64(8*(1+i.Depth/9))*pixels
		return kept + 8*pixels, kept, 4
	case i.Palette:
		kept = (1 + 4) * pixels // its decoder's image, and ours
	case i.Depth > 8:
		kept = (8 + 4) * pixels
	case i.Format == header.WebP && i.Frames > 1: // a frame, and three canvases
		return 4 * 4 * pixels, 3 * 4 * pixels, 4
	case i.Format == header.WebP && !i.Lossless:
		return 2 * pixels, 2 * pixels, 2
	default:
		kept = 4 * pixels
	}
	return kept, kept, 4
}
