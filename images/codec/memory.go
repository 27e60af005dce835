package codec

// perPixel is how many bytes of memory a pixel takes at the peak of encoding.
type perPixel struct{ lossy, alpha, exact, avif int64 }

// Memory is a guess of the bytes that encoding so many pixels takes at its
// peak, outside of the image itself, of lossy coding for WebP and without
// transparency. Measured with eight megapixels: cwebp 3.5 bytes a pixel at
// method 2 and 8.7 at method 6; avifenc 17 at speed 9. Embedded WebP takes 4 to 6
// of photographs of 24 megapixels where the heap is held to the prediction, AVIF
// 100, and 120 MiB for the compiled code.
func Memory(level string, f Format, pixels int) int64 {
	each, base := memoryOf(level)
	if f == AVIF {
		return base.avif + each.avif*int64(pixels)
	}
	return base.lossy + each.lossy*int64(pixels)
}

// MemoryAlpha is Memory for lossy WebP with transparency, which is coded without
// loss: measured with cwebp 35 bytes a pixel; embedded 40 for an edge around what
// is opaque, 67 for noise.
func MemoryAlpha(level string, pixels int) int64 {
	each, base := memoryOf(level)
	return base.exact + each.alpha*int64(pixels)
}

// MemoryExact is Memory for WebP without loss, or nearly so: measured with
// cwebp 35 bytes a pixel, embedded 124.
func MemoryExact(level string, pixels int) int64 {
	each, base := memoryOf(level)
	return base.exact + each.exact*int64(pixels)
}

// memoryOf is what a level takes for each pixel, and besides. Anything but the
// tools is taken for the embedded level, which takes more.
func memoryOf(level string) (each, base perPixel) {
	const mb = 1 << 20
	if level == "tools" {
		return perPixel{lossy: 9, alpha: 36, exact: 36, avif: 24}, perPixel{lossy: 6 * mb, exact: 6 * mb, avif: 12 * mb}
	}
	return perPixel{lossy: 8, alpha: 72, exact: 128, avif: 100}, perPixel{lossy: 8 * mb, exact: 8 * mb, avif: 120 * mb}
}
