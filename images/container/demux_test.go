package container

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

// An animated PNG says once, before its frames, how many there are, and each frame gets a copy of what
// they share: neither makes a small file a large one.
func TestDemuxPNGIsBounded(t *testing.T) {
	head := []byte("\x89PNG\r\n\x1a\n")
	head = pngChunk(head, "IHDR", []byte{0, 0, 0, 2, 0, 0, 0, 2, 8, 3, 0, 0, 0})
	count := func(n uint32) []byte { return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, n), 0) }
	frame := make([]byte, frameControl)
	frame[7], frame[11] = 2, 2
	file := func(chunks ...[2]string) []byte {
		out := bytes.Clone(head)
		for _, c := range chunks {
			out = pngChunk(out, c[0], []byte(c[1]))
		}
		return pngChunk(out, "IEND", nil)
	}
	one, many := [2]string{"acTL", string(count(1))}, [2]string{"acTL", string(count(1 << 30))}
	palette := [2]string{"PLTE", string(make([]byte, 768))}
	control, pixels := [2]string{"fcTL", string(frame)}, [2]string{"IDAT", "pixels"}
	if a, err := DemuxPNG(file(one, palette, [2]string{"tRNS", string(make([]byte, 256))}, control, pixels)); err != nil || len(a.Frames) != 1 {
		t.Errorf("a sound one: %d frames, %v", len(a.Frames), err)
	}
	for name, f := range map[string][]byte{
		"counted twice":        file(one, many, palette, control, pixels, control, pixels),
		"counted again, later": file(one, palette, control, pixels, many, control, pixels),
		"a palette too large":  file(one, [2]string{"PLTE", string(make([]byte, 5000))}, control, pixels),
		"many palettes":        file(one, palette, palette, control, pixels),
	} {
		if a, err := DemuxPNG(f); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %d frames, %v", name, len(a.Frames), err)
		}
	}
}
