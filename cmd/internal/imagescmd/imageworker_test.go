package imagescmd

import (
	"testing"

	"millrace/images/codec"
	"millrace/images/worker"
)

func TestWriters(t *testing.T) {
	can := worker.Abilities{Formats: map[codec.Format]worker.EncoderInfo{codec.AVIF: {By: "avifenc 0.11.1"}, codec.WebP: {By: "cwebp 1.2.4"}}}
	if got := Writers(can); got != "WebP by cwebp 1.2.4, AVIF by avifenc 0.11.1" {
		t.Error(got)
	}
}
