//go:build !small

package codec

import (
	"image"
	"io"

	"github.com/gen2brain/avif"
	"github.com/gen2brain/webp"
)

// libraryNames says by what each format is written.
func libraryNames() map[Format]string {
	webpBy, avifBy := "libwebp", "libaom"
	if webp.Dynamic() == nil {
		webpBy = "libwebp of the system"
	}
	if avif.Dynamic() == nil {
		avifBy = "libavif of the system"
	}
	return map[Format]string{WebP: webpBy, AVIF: avifBy}
}

func libraryWebP(out io.Writer, m image.Image, o webpOptions) error {
	return webp.Encode(out, m, webp.Options{Quality: o.quality, Method: o.method, Lossless: o.lossless})
}

func libraryReadAVIF(in io.Reader) (image.Image, error) { return avif.Decode(in) }

func libraryAVIF(out io.Writer, m image.Image, o avifOptions) error {
	return avif.Encode(out, m, avif.Options{Quality: o.quality, QualityAlpha: o.alphaQuality, Speed: o.speed, ChromaSubsampling: o.sampling})
}
