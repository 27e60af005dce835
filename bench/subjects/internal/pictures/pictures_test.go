package pictures

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"image/jpeg"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/stage"
	"millrace/bench/subjects/internal/workload"
)

// photograph is a JPEG as image/jpeg writes it: baseline 4:2:0, or grey.
func photograph(t *testing.T, w, h int, grey bool) []byte {
	t.Helper()
	var m image.Image = image.NewGray(image.Rect(0, 0, w, h))
	if !grey {
		colours := image.NewNRGBA(m.Bounds())
		for y := range h {
			for x := range w {
				colours.SetNRGBA(x, y, color.NRGBA{uint8(x), uint8(y), uint8(x * y), 255})
			}
		}
		m = colours
	}
	var out bytes.Buffer
	if err := jpeg.Encode(&out, m, nil); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestDescribe(t *testing.T) {
	plain := photograph(t, 80, 50, false)
	p, err := describe(plain)
	if err != nil || p.Kind != "baseline 4:2:0" || p.Width != 80 || p.Height != 50 || p.Megapixels != 0.004 || p.Profile || p.Bytes != int64(len(plain)) {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := describe(photograph(t, 8, 8, true)); err != nil || p.Kind != "baseline, grey" {
		t.Errorf("%+v, %v", p, err)
	}
	// A profile before the frame, and the frame said to be a progressive 4:4:4.
	segment := []byte("\xff\xe2\x00\x10ICC_PROFILE\x00\x01\x01")
	profiled := slices.Concat(plain[:2], segment, plain[2:])
	if p, err := describe(profiled); err != nil || !p.Profile {
		t.Errorf("%+v, %v", p, err)
	}
	frame := bytes.Index(plain, []byte{0xff, 0xc0})
	other := slices.Clone(plain)
	other[frame+1], other[frame+11] = 0xc2, 0x11
	if text, _, err := kind(other); err != nil || text != "progressive 4:4:4" {
		t.Errorf("%q, %v", text, err)
	}
	for _, bad := range [][]byte{nil, plain[:2], plain[:frame+8], []byte("\xff\xd8\x00\x00\x00\x00")} {
		if text, _, err := kind(bad); err == nil {
			t.Errorf("%d bytes are %q", len(bad), text)
		}
	}
}

func FuzzKind(f *testing.F) {
	f.Add([]byte("\xff\xd8\xff\xe2\x00\x10ICC_PROFILE\x00\x01\x01\xff\xc2\x00\x11\x08\x00\x10\x00\x10\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _, _ = kind(data) // must not panic
		pictureBytes(data)
	})
}

func TestPictureBytes(t *testing.T) {
	chunk := func(name string, n int) []byte {
		b := append([]byte(name), binary.LittleEndian.AppendUint32(nil, uint32(n))...)
		return append(b, make([]byte, n+n%2)...)
	}
	webp := slices.Concat([]byte("RIFF\x00\x00\x00\x00WEBP"), chunk("VP8X", 10), chunk("ICCP", 501), chunk("VP8 ", 99), chunk("EXIF", 40), chunk("XMP ", 7))
	if got, want := pictureBytes(webp), int64(12+18+108); got != want {
		t.Errorf("%d of %d bytes, want %d", got, len(webp), want)
	}
	if got := pictureBytes([]byte("GIF89a")); got != 6 {
		t.Errorf("what is no WebP has %d bytes", got)
	}
}

// TestPhotos: the names are distinct, and those that are served when they are
// ready are among them, in quick runs, too.
func TestPhotos(t *testing.T) {
	names := map[string]bool{}
	for _, p := range photos() {
		if names[p.name] {
			t.Errorf("%s is there twice", p.name)
		}
		names[p.name] = p.look
	}
	if len(names) < 8 {
		t.Errorf("%d photographs are too few", len(names))
	}
	names[previewName] = true
	for _, w := range workload.Pictures() {
		name := cachedPhotos()[w.Name]
		if !names[name] || w.Path() != "/"+name {
			t.Errorf("the workload %s asks for %s, and means %q", w.Name, w.Path(), name)
		}
	}
}

func TestMakeSmall(t *testing.T) {
	dir := t.TempDir()
	from := filepath.Join(dir, "from.jpg")
	if err := os.WriteFile(from, photograph(t, 1300, 800, false), 0o600); err != nil {
		t.Fatal(err)
	}
	names, err := makeSmall(filepath.Join(dir, "small"), []string{from, from}, 5)
	if err != nil || len(names) != 5 {
		t.Fatalf("%q, %v", names, err)
	}
	seen := map[string]bool{}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		p, err := describe(data)
		if err != nil || p.Megapixels < 0.5 || p.Megapixels > 1 || seen[p.Hash] {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
		seen[p.Hash] = true
	}
	links, err := spread(filepath.Join(dir, "links"), names, 7, "x")
	if err != nil || len(links) != 7 || links[6] != "x-0006.jpg" {
		t.Errorf("%q, %v", links, err)
	}
}

func TestParseAB(t *testing.T) {
	const text = "Concurrency Level:      5\nComplete requests:      2000\nFailed requests:        3\nNon-2xx responses:      2000\n" +
		"Keep-Alive requests:    1990\nRequests per second:    25942.11 [#/sec] (mean)\n"
	got, err := parseAB(text)
	if err != nil || got.Requests != 2000 || got.Failed != 3 || got.Kept != 1990 || got.Rate != 25942.11 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", strings.Replace(text, "responses:      2000", "responses:      20", 1), "Complete requests: x\n"} {
		if got, err := parseAB(bad); err == nil {
			t.Errorf("%q is %+v", bad, got)
		}
	}
}

func TestPlan(t *testing.T) {
	full, quick := NewPlan(arm.Pictures(), nil, stage.Default, 1), NewPlan(arm.Pictures(), nil, stage.Quick, 1)
	_, long := full.steps()
	_, short := quick.steps()
	if short >= long || len(full.photos) != len(photos()) || len(quick.photos) >= len(full.photos) {
		t.Errorf("quick: %v of %v, %d of %d photographs", short, long, len(quick.photos), len(full.photos))
	}
	if len(full.engines()) != 2 || len(full.still()) != 2 {
		t.Errorf("%d engines, %d servers of what is ready", len(full.engines()), len(full.still()))
	}
	one := NewPlan(arm.Pictures(), []string{RefusedPart}, stage.Default, 1)
	if n, _ := one.steps(); n != one.Refusals*len(refusals()) {
		t.Errorf("%d steps", n)
	}
}
