package container

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	genavif "github.com/gen2brain/avif"
	genwebp "github.com/gen2brain/webp"

	"millrace/images/header"
)

// profile is an ICC profile as far as anybody looks who does not convert.
func profile(size int) []byte {
	p := make([]byte, size)
	binary.BigEndian.PutUint32(p, uint32(size))
	copy(p[36:], "acsp")
	for i := 132; i < size; i++ {
		p[i] = byte(i * 7)
	}
	return p
}

// testPicture has soft and hard places, and is transparent on its left if wanted.
func testPicture(width, height int, alpha bool) *image.NRGBA {
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			c := color.NRGBA{uint8(x * 5), uint8(y * 8), uint8((x ^ y) * 4), 255}
			if alpha {
				c.A = uint8(min(255, x*25))
			}
			m.SetNRGBA(x, y, c)
		}
	}
	return m
}

// encodeWebP makes a file with a chunk VP8, ALPH and VP8, or VP8L.
func encodeWebP(t testing.TB, m image.Image, lossless bool) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := genwebp.Encode(&b, m, genwebp.Options{Quality: 80, Lossless: lossless, Method: 1, Exact: lossless}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// samples reads the files of testdata, by name: an image of 47 × 31 pixels like
// that of testPicture, and two of 64 × 64 beside each other, by avifenc 0.11 with
//
//	-s 4 --min 20 --max 30 -y 444 still.png still.avif
//	-s 4 --min 20 --max 30 -y 420 alpha.png alpha.avif
//	-s 4 --min 20 --max 30 --exif e.tif --icc p.icc --xmp x.xmp still.png exif.avif
//	-s 4 --min 30 --max 40 -g 2x1 still.png still.png grid.avif
func samples(t testing.TB) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.avif")
	if err != nil || len(paths) == 0 {
		t.Fatal("no files in testdata: ", err)
	}
	files := map[string][]byte{}
	for _, p := range paths {
		if files[filepath.Base(p)], err = os.ReadFile(p); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// decode decodes with a library that is not ours.
func decode(t testing.TB, with func(io.Reader) (image.Image, error), file []byte) image.Image {
	t.Helper()
	m, err := with(bytes.NewReader(file))
	if err != nil {
		t.Fatalf("decoding: %v", err)
	}
	return m
}

// sameAVIF compares what libavif makes of two files. The race detector makes
// the compilation of its WebAssembly take minutes on a busy machine, and here is
// nothing that runs at once: it does without.
func sameAVIF(t testing.TB, want, got []byte) {
	t.Helper()
	if underRace {
		return
	}
	decodeAVIF := func(r io.Reader) (image.Image, error) { return genavif.Decode(r) }
	same(t, decode(t, decodeAVIF, want), decode(t, decodeAVIF, got))
}

// same fails the test if two images differ in a pixel.
func same(t testing.TB, want, got image.Image) {
	t.Helper()
	if want.Bounds() != got.Bounds() {
		t.Fatalf("%v pixels, want %v", got.Bounds(), want.Bounds())
	}
	for y := want.Bounds().Min.Y; y < want.Bounds().Max.Y; y++ {
		for x := want.Bounds().Min.X; x < want.Bounds().Max.X; x++ {
			r, g, b, a := want.At(x, y).RGBA()
			if r2, g2, b2, a2 := got.At(x, y).RGBA(); r != r2 || g != g2 || b != b2 || a != a2 {
				t.Fatalf("the pixel at %d, %d is %v, want %v", x, y, got.At(x, y), want.At(x, y))
			}
		}
	}
}

// probe reads a file's headers with our own package, which has its own parser.
func probe(t testing.TB, file []byte) header.Info {
	t.Helper()
	i, err := header.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// installed runs a command on a file and returns what it says; the test is
// skipped where the command is missing.
func installed(t *testing.T, file []byte, extension, command string, arguments ...string) string {
	t.Helper()
	if _, err := exec.LookPath(command); err != nil {
		t.Skip("not installed: ", command)
	}
	path := filepath.Join(t.TempDir(), "picture."+extension)
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), command, append(arguments, path)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", command, arguments, err, out)
	}
	return string(out)
}
