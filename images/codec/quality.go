package codec

// An avifScale is a straight line from qualities of WebP to those of AVIF on
// libavif's scale, in hundredths.
type avifScale struct{ slope, offset int }

func toolsScale() avifScale { return avifScale{100, 0} }

func embeddedScale() avifScale { return avifScale{100, 0} }

// like is the quality of AVIF, 1 to 100, that looks like quality q of WebP.
func (s avifScale) like(q int) int {
	q = min(max(q, 1), 100)
	return min(max((q*s.slope+s.offset+50)/100, 1), 100)
}

// Memory is a guess of the bytes that encoding w × h pixels takes at its peak,
// outside of the picture itself.
func Memory(level string, f Format, pixels int) int64 {
	if f == AVIF {
		return int64(pixels) * 64
	}
	return int64(pixels) * 16
}
