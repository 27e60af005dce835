package convert

import (
	"image"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"millrace/images/codec"
)

// The hashes are those of other programs for the same pixels: pip install pillow
// blurhash-python thumbhash.
func TestHashesOfOthers(t *testing.T) {
	wide, high := scene(90, 60), scene(50, 100)
	for _, c := range []struct {
		needs, script string
		format        codec.Format
		pictures      []image.Image
	}{
		{"blurhash", `import sys, blurhash
from PIL import Image
m = Image.open(sys.argv[1])
w, h = (3, 4) if m.height > m.width else (4, 3)
with open(sys.argv[1], "rb") as f: print(blurhash.encode(f, x_components=w, y_components=h))`, BlurHash, []image.Image{wide, high}},
		{"thumbhash", `import sys, base64
from PIL import Image
from thumbhash import rgba_to_thumb_hash
m = Image.open(sys.argv[1]).convert("RGBA")
print(base64.b64encode(bytes(rgba_to_thumb_hash(m.width, m.height, m.tobytes()))).decode())`, ThumbHash, []image.Image{wide, high}},
	} {
		t.Run(string(c.format), func(t *testing.T) {
			if exec.Command("python3", "-c", "import PIL, "+c.needs).Run() != nil {
				t.Skipf("python3 with Pillow and %s is not installed, whose hashes ours are compared with", c.needs)
			}
			for i, m := range c.pictures {
				file := filepath.Join(t.TempDir(), "it.png")
				if err := os.WriteFile(file, asPNG(t, m), 0o644); err != nil {
					t.Fatal(err)
				}
				out, err := exec.Command("python3", "-c", c.script, file).CombinedOutput()
				if err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				res := convertTo(t, plainly(), asPNG(t, m), Spec{Format: c.format})
				if want := strings.TrimSpace(string(out)); string(res.Data) != want {
					t.Errorf("picture %d: %q, by another program %q", i, res.Data, want)
				}
			}
		})
	}
}
