package codec

import (
	"bytes"
	"errors"
	"image"
	"image/draw"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"millrace/images/picture"
)

// decodeAVIF decodes with libavif's command, which no level uses.
func decodeAVIF(t *testing.T, file []byte) *image.NRGBA {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "a.avif"), filepath.Join(dir, "a.png")
	if err := os.WriteFile(in, file, 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.CommandContext(t.Context(), "avifdec", "-d", "8", in, out).CombinedOutput(); err != nil {
		t.Fatalf("avifdec: %v: %s", err, said)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	m, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	n := image.NewNRGBA(m.Bounds())
	draw.Draw(n, n.Rect, m, image.Point{}, draw.Src)
	return n
}

// testAVIF writes every model and subsampling: colours, range and transparency
// must come back from a decoder that knows nothing of us.
func testAVIF(t *testing.T, e Encoder) {
	if (testing.Short() || underRace) && e.Level() == "embedded" {
		t.Skip("compiling the embedded AVIF codec takes seconds, and half a minute under the race detector")
	}
	if _, err := exec.LookPath("avifdec"); err != nil {
		t.Skip("avifdec is not installed (Debian: apt-get install libavif-bin)")
	}
	limited := grayScene(33, 17)
	limited.Limited = true
	for i, v := range limited.Y.Pix {
		limited.Y.Pix[i] = byte(16 + int(v)*219/255)
	}
	veiled := planar(40, 30, picture.Sub420)
	veiled.A = picture.Plane{Pix: make([]byte, 40*30), Stride: 40}
	for i := range veiled.A.Pix {
		veiled.A.Pix[i] = byte(i / 5)
	}
	profiled := scene(40, 30)
	profiled.ICC = []byte("a profile")
	for name, c := range map[string]struct {
		p     *picture.Picture
		limit float64
	}{
		"rgb": {scene(64, 48), 6}, "odd": {scene(33, 17), 6}, "gray": {grayScene(33, 17), 5}, "limited gray": {limited, 5},
		"444": {planar(33, 17, picture.Sub444), 6}, "422": {planar(33, 17, picture.Sub422), 8},
		"420": {planar(33, 17, picture.Sub420), 8}, "440": {planar(33, 17, picture.Sub440), 8},
		"limited 420": {planar(33, 17, picture.Sub420).Limited420(), 8},
		"transparent": {glass(40, 30), 9}, "transparent 420": {veiled, 12}, "profiled": {profiled, 6},
		"drawing": {drawing(), 3},
		"a pixel": {planar(1, 1, picture.Sub420), 12}, "a row": {planar(9, 1, picture.Sub422), 40},
	} {
		t.Run(name, func(t *testing.T) {
			file, err := e.Encode(t.Context(), c.p, Params{Format: AVIF, Quality: 95})
			if err != nil {
				t.Fatal(err)
			}
			expectLike(t, decodeAVIF(t, file), rgb(c.p), c.limit)
		})
	}
	p := noisy(96, 96)
	var sizes []int
	for _, quality := range []int{20, 60, 95} {
		file, err := e.Encode(t.Context(), p, Params{Format: AVIF, Quality: quality})
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(file))
	}
	if sizes[0] >= sizes[1] || sizes[1] >= sizes[2] {
		t.Errorf("bytes at qualities 20, 60, 95: %v", sizes)
	}
	if best, err := e.Encode(t.Context(), p, Params{Format: AVIF, Quality: 60, Effort: Best}); err != nil || len(best) == sizes[1] {
		t.Errorf("both efforts took %d bytes: are they the same? %v", len(best), err)
	}
	if _, err := e.Encode(t.Context(), picture.New(maxAVIF+1, 1, picture.Gray, picture.Sub444), Params{Format: AVIF}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("too wide: %v", err)
	}
}
