package container

import (
	"bytes"
	"encoding/binary"
	"errors"
	"image"
	"image/color"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	genwebp "github.com/gen2brain/webp"
	xwebp "golang.org/x/image/webp"

	"millrace/images/header"
)

// chunkKinds lists a file's chunks.
func chunkKinds(t testing.TB, file []byte) string {
	t.Helper()
	chunks, err := parseChunks(file[riffHead:])
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, c := range chunks {
		kinds = append(kinds, strings.TrimSpace(c.kind))
	}
	return strings.Join(kinds, " ")
}

func stillWebPs(t testing.TB) map[string][]byte {
	return map[string][]byte{
		"lossy":           encodeWebP(t, testPicture(47, 31, false), false),
		"lossy, alpha":    encodeWebP(t, testPicture(47, 31, true), false),
		"lossless":        encodeWebP(t, testPicture(48, 32, false), true),
		"lossless, alpha": encodeWebP(t, testPicture(1, 1, true), true),
	}
}

// TestWebP puts metadata of odd and even lengths around files of each kind,
// has them read by two decoders and our own probe, then replaces it.
func TestWebP(t *testing.T) {
	exif := header.EXIF("© Ann", "Ann")
	for name, file := range stillWebPs(t) {
		t.Run(name, func(t *testing.T) {
			before := probe(t, file)
			alpha := strings.Contains(name, "alpha")
			pixels := map[bool]string{true: "VP8L", false: "VP8"}[before.Lossless]
			if alpha && !before.Lossless {
				pixels = "ALPH VP8"
			}
			for _, c := range []struct {
				m      Metadata
				chunks string
			}{
				{Metadata{ICC: profile(301)}, "VP8X ICCP " + pixels},
				{Metadata{EXIF: exif}, "VP8X " + pixels + " EXIF"},
				{Metadata{ICC: profile(300), EXIF: append(exif, 0)}, "VP8X ICCP " + pixels + " EXIF"},
			} {
				got, err := WebP(file, c.m)
				if err != nil {
					t.Fatal(err)
				}
				if kinds := chunkKinds(t, got); kinds != c.chunks {
					t.Errorf("the chunks are %s, want %s", kinds, c.chunks)
				}
				i := probe(t, got)
				if !bytes.Equal(i.ICC, c.m.ICC) || i.Alpha != alpha || i.Lossless != before.Lossless ||
					i.Width != before.Width || i.Height != before.Height || (i.Artist == "Ann") != (c.m.EXIF != nil) {
					t.Errorf("got %+v, before %+v", i, before)
				}
				same(t, decode(t, genwebp.Decode, file), decode(t, genwebp.Decode, got))
				same(t, decode(t, xwebp.Decode, file), decode(t, xwebp.Decode, got))
				again, err := WebP(got, Metadata{ICC: profile(150), EXIF: header.EXIF("", "Bob")})
				if err != nil {
					t.Fatal(err)
				}
				if i := probe(t, again); len(i.ICC) != 150 || i.Artist != "Bob" || i.Copyright != "" || bytes.Contains(again, []byte("Ann")) {
					t.Errorf("replaced: got %+v", i)
				}
			}
		})
	}
}

// TestWebPNothing: with nothing to add the very same bytes come back.
func TestWebPNothing(t *testing.T) {
	file := []byte("anything")
	for _, edit := range []func([]byte, Metadata) ([]byte, error){WebP, AVIF} {
		if got, err := edit(file, Metadata{ICC: []byte{}}); err != nil || &got[0] != &file[0] {
			t.Errorf("got %q, %v", got, err)
		}
	}
}

// TestWebPKept: what there is and is not replaced stays, in the order of the RFC.
func TestWebPKept(t *testing.T) {
	still := encodeWebP(t, testPicture(47, 31, true), false)
	w, err := parseWebP(still)
	if err != nil {
		t.Fatal(err)
	}
	w.exif, w.xmp = []byte("II*\x00old"), []byte("<x/>")
	w.unknown = []chunk{{"ABCD", []byte("odd")}}
	old, err := w.write()
	if err != nil {
		t.Fatal(err)
	}
	old = append(old, "behind the end"...)
	got, err := WebP(old, Metadata{ICC: profile(200)})
	if err != nil {
		t.Fatal(err)
	}
	if kinds, want := chunkKinds(t, got), "VP8X ICCP ALPH VP8 EXIF XMP ABCD"; kinds != want {
		t.Errorf("the chunks are %s, want %s", kinds, want)
	}
	if flags := got[riffHead+chunkHead]; flags != flagICC|flagAlpha|flagEXIF|flagXMP {
		t.Errorf("the flags are %#x", flags)
	}
	if !bytes.Contains(got, []byte("II*\x00old")) || !bytes.Contains(got, []byte("<x/>")) {
		t.Error("EXIF or XMP is lost")
	}
}

func animation(t testing.TB) Animation {
	return Animation{
		Width: 47, Height: 31, Loops: 3, Background: [4]byte{1, 2, 3, 4},
		Frames: []Frame{
			{File: encodeWebP(t, testPicture(47, 31, false), true), Duration: 1500 * 1000_000},
			{File: encodeWebP(t, testPicture(13, 9, true), true), X: 34, Y: 22, Duration: 40*1000_000 + 500_000, Blend: true, Dispose: true},
			{File: encodeWebP(t, testPicture(12, 8, true), false), X: 2, Y: 4, Duration: 0},
		},
	}
}

// TestMux has an animation read by libwebp, and its metadata put in afterwards.
func TestMux(t *testing.T) {
	a := animation(t)
	file, err := a.Mux()
	if err != nil {
		t.Fatal(err)
	}
	if kinds, want := chunkKinds(t, file), "VP8X ANIM ANMF ANMF ANMF"; kinds != want {
		t.Errorf("the chunks are %s, want %s", kinds, want)
	}
	later, err := WebP(file, Metadata{ICC: profile(301), EXIF: header.EXIF("", "Ann")})
	if err != nil {
		t.Fatal(err)
	}
	a.Metadata = Metadata{ICC: profile(301), EXIF: header.EXIF("", "Ann")}
	at, err := a.Mux()
	if err != nil || !bytes.Equal(later, at) {
		t.Errorf("metadata put in afterwards gives other bytes than at once: %v", err)
	}
	if i := probe(t, at); i.Frames != 3 || !i.Alpha || i.Lossless || len(i.ICC) != 301 || i.Artist != "Ann" || i.Width != 47 {
		t.Errorf("got %+v", i)
	}
	got, err := genwebp.DecodeAll(bytes.NewReader(at))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Image) != 3 || !slices.Equal(got.Delay, []int{1500, 41, 0}) {
		t.Fatalf("libwebp sees %d frames with %v", len(got.Image), got.Delay)
	}
	want := testPicture(47, 31, false)
	same(t, want, got.Image[0])
	over := testPicture(13, 9, true)
	for _, p := range []image.Point{{12, 8}, {12, 0}} { // opaque
		if g, w := color.NRGBAModel.Convert(got.Image[1].At(34+p.X, 22+p.Y)), over.At(p.X, p.Y); g != w {
			t.Errorf("the second frame has %v at %v, want %v", g, p, w)
		}
	}
	if g, w := color.NRGBAModel.Convert(got.Image[1].At(34, 25)), want.At(34, 25); g != w { // nothing over it
		t.Errorf("the second frame is not blended: %v, want %v", g, w)
	}
	if _, _, _, alpha := got.Image[2].At(34, 25).RGBA(); alpha == 0xffff {
		t.Error("the second frame is not disposed of")
	}
	if _, _, _, alpha := got.Image[2].At(2, 4).RGBA(); alpha != 0 {
		t.Error("the third frame does not replace")
	}
}

// TestMuxAlpha: the flag is set where something may be transparent.
func TestMuxAlpha(t *testing.T) {
	opaque := encodeWebP(t, testPicture(8, 8, false), false)
	alpha := encodeWebP(t, testPicture(8, 8, true), true)
	for name, c := range map[string]struct {
		frames []Frame
		want   bool
	}{
		"opaque":    {[]Frame{{File: opaque}, {File: opaque}}, false},
		"alpha":     {[]Frame{{File: opaque}, {File: alpha}}, true},
		"dispose":   {[]Frame{{File: opaque, Dispose: true}, {File: opaque}}, true},
		"uncovered": {[]Frame{{File: encodeWebP(t, testPicture(6, 8, false), false)}, {File: opaque}}, true},
		"later":     {[]Frame{{File: opaque}, {File: encodeWebP(t, testPicture(6, 8, false), false), X: 2}}, false},
	} {
		file, err := Animation{Width: 8, Height: 8, Frames: c.frames}.Mux()
		if err != nil {
			t.Fatal(err)
		}
		if got := file[riffHead+chunkHead]&flagAlpha != 0; got != c.want {
			t.Errorf("%s: alpha %v, want %v", name, got, c.want)
		}
	}
}

// TestMuxLikeWebpmux: libwebp's own command writes the same bytes.
func TestMuxLikeWebpmux(t *testing.T) {
	if _, err := exec.LookPath("webpmux"); err != nil {
		t.Skip("not installed: webpmux")
	}
	a := animation(t)
	a.Background = [4]byte{3, 2, 1, 255} // blue, green, red, alpha
	dir := t.TempDir()
	for n, f := range a.Frames {
		if err := os.WriteFile(filepath.Join(dir, string(rune('0'+n))), f.File, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "webpmux", "-frame", "0", "+1500+0+0+0-b", "-frame", "1", "+41+34+22+1+b",
		"-frame", "2", "+0+2+4+0-b", "-loop", "3", "-bgcolor", "255,1,2,3", "-o", "out")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want, err := os.ReadFile(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := a.Mux()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes that differ from webpmux's %d:\n% x\n% x", len(got), len(want), got[:80], want[:80])
	}
}

// TestMuxRefused has animations that the format cannot hold.
func TestMuxRefused(t *testing.T) {
	f := Frame{File: encodeWebP(t, testPicture(8, 8, false), false)}
	with := func(change func(*Animation, *Frame)) Animation {
		f := f
		a := Animation{Width: 16, Height: 16}
		change(&a, &f)
		if a.Frames == nil {
			a.Frames = []Frame{f}
		}
		return a
	}
	for says, a := range map[string]Animation{
		"0 × 16":              with(func(a *Animation, _ *Frame) { a.Width = 0 }),
		"16777217":            with(func(a *Animation, _ *Frame) { a.Height = maxCanvas + 1 }),
		"100000 × 100000":     with(func(a *Animation, _ *Frame) { a.Width, a.Height = 100_000, 100_000 }),
		"no frames":           with(func(a *Animation, _ *Frame) { a.Frames = []Frame{} }),
		"65536 times":         with(func(a *Animation, _ *Frame) { a.Loops = 65536 }),
		"-1 times":            with(func(a *Animation, _ *Frame) { a.Loops = -1 }),
		"3, 0 is not even":    with(func(_ *Animation, f *Frame) { f.X = 3 }),
		"0, -2 is not even":   with(func(_ *Animation, f *Frame) { f.Y = -2 }),
		"10, 0 are not":       with(func(_ *Animation, f *Frame) { f.X = 10 }),
		"0, 10 are not":       with(func(_ *Animation, f *Frame) { f.Y = 10 }),
		"for -1ns":            with(func(_ *Animation, f *Frame) { f.Duration = -1 }),
		"for 4h39m37.216s":    with(func(_ *Animation, f *Frame) { f.Duration = 1 << 24 * 1000_000 }),
		"frame 1":             with(func(_ *Animation, f *Frame) { f.File = f.File[:20] }),
		"an animation itself": with(func(a *Animation, f *Frame) { a.Frames = []Frame{{File: must(animation(t).Mux())}} }),
	} {
		if got, err := a.Mux(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %d bytes, %v; want an error with %q", len(got), err, says)
		}
	}
	edge := with(func(_ *Animation, f *Frame) { f.X, f.Y, f.Duration = 8, 8, (1<<24-1)*1000_000 })
	edge.Loops = 65535
	if _, err := edge.Mux(); err != nil {
		t.Error(err)
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// webpFaults are files that must be refused.
func webpFaults(t testing.TB) map[string][]byte {
	still := encodeWebP(t, testPicture(8, 8, false), false)
	vp8 := still[riffHead:] // one chunk
	x := func(flags byte, width int, chunks ...[]byte) []byte {
		body := append(chunk{"VP8X", []byte{flags, 0, 0, 0, byte(width - 1), 0, 0, 7, 0, 0}}.append([]byte("WEBP")), bytes.Join(chunks, nil)...)
		return append(binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(len(body))), body...)
	}
	anim := chunk{"ANIM", make([]byte, 6)}.append(nil)
	anmf := func(x int) []byte {
		return chunk{"ANMF", append([]byte{byte(x / 2), 0, 0, 0, 0, 0, 7, 0, 0, 7, 0, 0, 0, 0, 0, 0}, vp8...)}.append(nil)
	}
	return map[string][]byte{
		"nothing":           nil,
		"a jpeg":            []byte("\xff\xd8\xff\xe0 and so on, for long enough"),
		"cut off":           still[:len(still)-3],
		"no chunk":          []byte("RIFF\x04\x00\x00\x00WEBP"),
		"short":             []byte("RIFF\x00\x00\x00\x00WEBP"),
		"other chunk":       []byte("RIFF\x0c\x00\x00\x00WEBPABCD\x00\x00\x00\x00"),
		"half a chunk":      []byte("RIFF\x08\x00\x00\x00WEBPVP8 "),
		"short VP8":         []byte("RIFF\x0e\x00\x00\x00WEBPVP8 \x01\x00\x00\x00\x00\x00"),
		"short VP8L":        []byte("RIFF\x0e\x00\x00\x00WEBPVP8L\x01\x00\x00\x00\x2f\x00"),
		"short VP8X":        []byte("RIFF\x0e\x00\x00\x00WEBPVP8X\x01\x00\x00\x00\x2f\x00"),
		"no pixels":         x(0, 8),
		"two sizes":         x(0, 9, vp8),
		"two VP8X":          x(0, 8, vp8, chunk{"VP8X", make([]byte, 10)}.append(nil)),
		"no ANIM":           x(flagAnimation, 8, anmf(0)),
		"no frame":          x(flagAnimation, 8, anim, vp8),
		"frame outside":     x(flagAnimation, 8, anim, anmf(2)),
		"frame of no bytes": x(flagAnimation, 8, anim, chunk{"ANMF", nil}.append(nil)),
	}
}

func TestWebPRefused(t *testing.T) {
	for name, file := range webpFaults(t) {
		if got, err := WebP(file, Metadata{ICC: profile(200)}); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %d bytes, %v; want ErrFormat", name, len(got), err)
		}
	}
}

// TestWebPTools has the results read by the commands of libwebp and libvips.
func TestWebPTools(t *testing.T) {
	m := Metadata{ICC: profile(301), EXIF: header.EXIF("© Ann", "Ann")}
	files := stillWebPs(t)
	files["animated"] = must(animation(t).Mux())
	for name, file := range files {
		got, err := WebP(file, m)
		if err != nil {
			t.Fatal(err)
		}
		t.Run("webpinfo "+name, func(t *testing.T) {
			if out := installed(t, got, "webp", "webpinfo", "-diag"); !strings.Contains(out, "No error detected") {
				t.Error(out)
			}
		})
		t.Run("webpmux "+name, func(t *testing.T) {
			if out := installed(t, got, "webp", "webpmux", "-info"); !strings.Contains(out, "ICC profile") || !strings.Contains(out, "EXIF metadata") {
				t.Error(out)
			}
		})
		t.Run("vipsheader "+name, func(t *testing.T) {
			if out := installed(t, got, "webp", "vipsheader", "-a"); !strings.Contains(out, "icc-profile-data: 301 bytes") {
				t.Error(out)
			}
		})
	}
}

// FuzzWebP: nothing panics, nothing grows, and what comes out goes in again
// and is the same then.
func FuzzWebP(f *testing.F) {
	for _, file := range stillWebPs(f) {
		f.Add(file)
		f.Add(must(WebP(file, Metadata{ICC: profile(133)})))
	}
	f.Add(must(animation(f).Mux()))
	for _, file := range webpFaults(f) {
		f.Add(file)
	}
	m := Metadata{ICC: profile(201), EXIF: header.EXIF("c", "a")}
	f.Fuzz(func(t *testing.T, file []byte) {
		got, err := WebP(file, m)
		if a, errMux := (Animation{Width: 64, Height: 64, Frames: []Frame{{File: file}}}).Mux(); errMux == nil {
			if _, err := parseWebP(a); err != nil {
				t.Errorf("the animation is refused: %v", err)
			}
		}
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Errorf("%v is not ErrFormat", err)
			}
			return
		}
		if most := len(file) + 400; len(got) > most {
			t.Errorf("%d bytes become %d", len(file), len(got))
		}
		again, err := WebP(got, m)
		if err != nil || !bytes.Equal(got, again) {
			t.Errorf("a second edit gives something else: %v", err)
		}
	})
}
