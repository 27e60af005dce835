package convert

import (
	"bytes"
	"image"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"millrace/images/codec"
	"millrace/images/header"
)

// animationScript makes an animation with Pillow, or draws all frames of one below each other.
const animationScript = `
import sys
from PIL import Image, ImageSequence
what, source, target = sys.argv[1:4]
if what == "make":
    frames = []
    base = Image.open(source).convert("RGBA")
    for i in range(5):
        f = base.copy()
        f.paste((250, 20 * i, 30, 255), (7 + 11 * i, 9 + 4 * i, 37 + 11 * i, 30 + 4 * i))
        if i == 3: f.paste((0, 0, 0, 0), (40, 20, 90, 60))
        frames.append(f)
    options = {"duration": [50, 120, 70, 200, 90], "loop": 3}
    if target.endswith(".png"): options |= {"disposal": 1, "blend": 0} if len(sys.argv) > 4 else {}
    if target.endswith(".webp"): options |= {"lossless": True, "minimize_size": True}
    frames[0].save(target, save_all=True, append_images=frames[1:], **options)
else:
    m = Image.open(source)
    frames = [f.convert("RGBA") for f in ImageSequence.Iterator(m)]
    if len(sys.argv) > 5: frames = [f.resize((int(sys.argv[4]), int(sys.argv[5])), Image.Resampling.BICUBIC) for f in frames]
    w, h = frames[0].size
    sheet = Image.new("RGBA", (w, h * len(frames)))
    for i, f in enumerate(frames): sheet.paste(f, (0, h * i))
    sheet.save(target)
`

func animationBy(t *testing.T, arguments ...string) {
	t.Helper()
	if out, err := exec.Command("python3", append([]string{"-c", animationScript}, arguments...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func readPNG(t *testing.T, file string) image.Image {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Animations of three formats become WebP, also in other sizes; Pillow sees the same frames in the
// source and in the result.
func TestAnimationsBesidePillow(t *testing.T) {
	needPillow(t)
	dir := t.TempDir()
	still := filepath.Join(dir, "still.png")
	if err := os.WriteFile(still, asPNG(t, photograph(120, 80)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.png", "replaced.png", "a.webp", "a.gif"} {
		source := filepath.Join(dir, name)
		extra := []string{}
		if name == "replaced.png" {
			extra = []string{"replace"}
		}
		animationBy(t, append([]string{"make", still, source}, extra...)...)
		data, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := header.Read(data); err != nil || info.Frames != 5 {
			t.Fatalf("%s: %+v, %v", name, info, err)
		}
		for _, c := range []struct {
			name  string
			spec  Spec
			size  []string
			least float64
		}{
			{"as it is", Spec{Must: true}, nil, 28},
			{"smaller", Spec{Width: 60}, []string{"60", "40"}, 28},
		} {
			t.Run(name+" "+c.name, func(t *testing.T) {
				c.spec.Quality = 95
				res, err := embedded(t).Convert(t.Context(), data, c.spec.to(codec.WebP))
				if err != nil {
					t.Fatal(err)
				}
				result, got, want := filepath.Join(dir, "result.webp"), filepath.Join(dir, "got.png"), filepath.Join(dir, "want.png")
				if err := os.WriteFile(result, res.Data, 0o644); err != nil {
					t.Fatal(err)
				}
				animationBy(t, "show", result, got)
				animationBy(t, append([]string{"show", source, want}, c.size...)...)
				a, b := readPNG(t, got), readPNG(t, want)
				if db := alikeness(a, b); db < c.least {
					t.Errorf("%.1f dB; %v, %v", db, a.Bounds(), b.Bounds())
				}
				if res.Width != a.Bounds().Dx() || res.Height*5 != a.Bounds().Dy() {
					t.Errorf("%d × %d, five frames are %v", res.Width, res.Height, a.Bounds())
				}
			})
		}
	}
}

// to is the spec for a format.
func (s Spec) to(f codec.Format) Spec {
	s.Format = f
	return s
}

// The first frame is what other formats show, where one is asked for by name.
func TestFirstFrame(t *testing.T) {
	source := animated(t, 3, 0)
	film := convertTo(t, embedded(t), source, Spec{Format: codec.WebP, Edit: Edit{Flip: "h"}, NearLossless: 100}).Data
	first := convertTo(t, plainly(), source, Spec{Format: codec.PNG, Must: true, Edit: Edit{Flip: "h"}}).Data
	if got := convertTo(t, plainly(), film, Spec{Format: codec.PNG, Must: true}).Data; !bytes.Equal(got, first) {
		t.Error("the first frame of an animated WebP is another one")
	}
	if res, err := plainly().Convert(t.Context(), source, Spec{Format: codec.PNG, Must: true}); err != nil || res.Format != codec.PNG {
		t.Errorf("%v", err)
	}
	for _, s := range []Spec{{Format: codec.Plain, Width: 5}, {Format: codec.AVIF, Width: 5}, {Format: codec.WebP, Edit: Edit{Trim: 3}}, {Format: codec.WebP, MaxBytes: 500}} {
		if _, err := plainly().Convert(t.Context(), source, s); err == nil {
			t.Errorf("%+v: converted", s)
		}
	}
}

// An AVIF is read as it is to be shown; what its colours say that no result can hold is not.
func TestFromAVIF(t *testing.T) {
	c := embedded(t)
	made := convertTo(t, c, asPNG(t, photograph(120, 80)), Spec{Format: codec.AVIF, Quality: 95, Must: true})
	res := convertTo(t, c, made.Data, Spec{Format: codec.PNG, Must: true})
	got, err := png.Decode(bytes.NewReader(res.Data))
	if err != nil {
		t.Fatal(err)
	}
	if db := alikeness(got, photograph(120, 80)); db < 28 {
		t.Errorf("%.1f dB", db)
	}
	if _, err := c.Convert(t.Context(), made.Data[:len(made.Data)-40], Spec{Format: codec.PNG, Must: true}); err == nil {
		t.Error("one that is cut off is converted")
	}
	needPillow(t)
	dir := t.TempDir()
	for orientation := 1; orientation <= 8; orientation++ {
		source, target := filepath.Join(dir, "source.png"), filepath.Join(dir, "it.avif")
		if err := os.WriteFile(source, asPNG(t, scene(96, 64)), 0o644); err != nil {
			t.Fatal(err)
		}
		script := `import sys
from PIL import Image
e = Image.Exif(); e[0x0112] = int(sys.argv[3])
Image.open(sys.argv[1]).convert("RGB").save(sys.argv[2], quality=95, exif=e)`
		if out, err := exec.Command("python3", "-c", script, source, target, string(rune('0'+orientation))).CombinedOutput(); err != nil {
			t.Skipf("Pillow writes no AVIF here: %s", out)
		}
		data, err := os.ReadFile(target)
		if err != nil {
			t.Fatal(err)
		}
		res := convertTo(t, c, data, Spec{Format: codec.PNG, Must: true})
		got, err := png.Decode(bytes.NewReader(res.Data))
		if err != nil {
			t.Fatal(err)
		}
		// Pillow's own reading, which turns it as libavif's properties say.
		want := pillow(t, target, []any{[]any{"upright"}, []any{"rgb"}})
		if db := alikeness(got, want); db < 30 {
			t.Errorf("orientation %d: %.1f dB; %v, %v", orientation, db, got.Bounds(), want.Bounds())
		}
	}
}
