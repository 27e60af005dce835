package codec

import "millrace/images/picture"

const (
	embeddedSlope, embeddedOffset = 100, 0
	toolsSlope, toolsOffset       = 100, 0
)

// avifQuality is the quality of AVIF, 0 to 100 on libavif's scale, that looks
// like quality q of WebP.
func avifQuality(q, slope, offset int) int {
	q = min(max(q, 1), 100)
	return min(max((q*slope+50)/100+offset, 1), 100)
}

// Memory is a guess of the bytes that encoding w × h pixels takes at its peak,
// outside of the picture itself.
func Memory(level string, f Format, pixels int) int64 { return int64(pixels) * 16 }

var _ = picture.Sub420
