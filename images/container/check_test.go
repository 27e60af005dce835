package container

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// decodes reports whether avifdec's dav1d reads a file.
func decodes(t *testing.T, file []byte) bool {
	t.Helper()
	dir := t.TempDir()
	in := filepath.Join(dir, "in.avif")
	if err := os.WriteFile(in, file, 0o600); err != nil {
		t.Fatal(err)
	}
	return exec.Command("avifdec", "--codec", "dav1d", in, filepath.Join(dir, "out.png")).Run() == nil
}

// encoded has avifenc write pictures of several sizes in several ways, by name.
func encoded(t *testing.T) map[string][]byte {
	t.Helper()
	for _, command := range []string{"avifenc", "avifdec"} {
		if _, err := exec.LookPath(command); err != nil {
			t.Skip("needs ", command)
		}
	}
	dir := t.TempDir()
	all := map[string][]byte{}
	for _, size := range []image.Point{{131, 77}, {4200, 20}} {
		m := image.NewNRGBA(image.Rectangle{Max: size})
		random := rand.New(rand.NewPCG(1, uint64(size.X)))
		for y := range size.Y {
			for x := range size.X {
				m.SetNRGBA(x, y, color.NRGBA{uint8(x), uint8(y) + uint8(random.IntN(9)), uint8(x * y), uint8(255 - x%2*y)})
			}
		}
		var in bytes.Buffer
		if err := png.Encode(&in, m); err != nil {
			t.Fatal(err)
		}
		source := filepath.Join(dir, "in.png")
		if err := os.WriteFile(source, in.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, options := range []string{
			"-s 9", "-s 9 -y 420 -a sb-size=64", "-s 9 -y 400 -d 10", "-s 9 -y 422 -a sb-size=128", "-s 9 -l", "-s 7 -a aq-mode=1", "-s 7 -a deltaq-mode=3",
			"-s 9 -a enable-qm=1", "-s 7 -a tune-content=screen", "-s 9 --tilerowslog2 2 --tilecolslog2 2", "-s 9 -a film-grain-test=1", "-c rav1e -s 10",
		} {
			out := filepath.Join(dir, "out.avif")
			_ = os.Remove(out)
			if exec.Command("avifenc", append(strings.Fields(options), "-j", "1", source, out)...).Run() != nil {
				continue // not with this version
			}
			file, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			all[fmt.Sprint(size, " ", options)] = file
		}
	}
	if len(all) < 12 {
		t.Fatalf("avifenc wrote %d files", len(all))
	}
	return all
}

// What a decoder takes passes, by three encoders and with all that their headers can have.
func TestCheckTakesWhatDecoders(t *testing.T) {
	for name, file := range samples(t) {
		if err := CheckAVIF(file); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, file := range encoded(t) {
		if err := CheckAVIF(file); err != nil && decodes(t, file) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCheckRefuses what is not whole.
func TestCheckRefuses(t *testing.T) {
	good := samples(t)["still.avif"]
	data := bytes.Index(good, []byte("mdat")) + 4
	change := func(f func(b []byte) []byte) []byte { return f(bytes.Clone(good)) }
	for name, file := range map[string][]byte{
		"nothing":     nil,
		"another":     []byte("RIFF\x0c\x00\x00\x00WEBPVP8 \x00\x00\x00\x00"),
		"cut off":     good[:len(good)-1],
		"no data":     good[:data-8],
		"no picture":  change(func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("av01"), []byte("av02")) }),
		"other bits":  change(func(b []byte) []byte { clear(b[data:]); return b }),
		"all ones":    change(func(b []byte) []byte { copy(b[data:], bytes.Repeat([]byte{255}, len(b)-data)); return b }),
		"no sequence": change(func(b []byte) []byte { b[data+2] = 15<<3 | 2; return b }), // padding
		"long unit":   change(func(b []byte) []byte { b[data+3] = 0x7f; return b }),
	} {
		if err := CheckAVIF(file); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzCheckAVIF(f *testing.F) {
	for _, file := range samples(f) {
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		if err := CheckAVIF(file); err != nil && !errors.Is(err, ErrFormat) {
			t.Error(err)
		}
	})
}
