package codec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/images/picture"
)

// fakeLevel writes one format, its own name.
type fakeLevel struct {
	name   string
	format Format
	err    error // instead
}

func (f fakeLevel) Level() string { return f.name }

func (f fakeLevel) Formats() map[Format]string { return map[Format]string{f.format: "by " + f.name} }

func (f fakeLevel) Encode(_ context.Context, _ *picture.Picture, o Params) ([]byte, error) {
	if f.err != nil {
		return nil, f.err
	}
	if o.Format != f.format {
		return nil, ErrUnsupported
	}
	return []byte(f.name), nil
}

func (f fakeLevel) Animate(ctx context.Context, _ []byte, o Params, _ Shape) ([]byte, error) {
	return f.Encode(ctx, nil, o)
}

// TestCombine asks level by level, and stops at one that fails.
func TestCombine(t *testing.T) {
	a, b, c := fakeLevel{name: "a", format: WebP}, fakeLevel{name: "b", format: AVIF}, fakeLevel{name: "c", format: WebP}
	all := Combine(a, b, c)
	if all.Level() != "a+b+c" {
		t.Errorf("level %q", all.Level())
	}
	if diff := cmp.Diff(map[Format]string{WebP: "by a", AVIF: "by b"}, all.Formats()); diff != "" {
		t.Errorf("formats:\n%s", diff)
	}
	for f, want := range map[Format]string{WebP: "a", AVIF: "b", "jxl": ""} {
		file, err := all.Encode(t.Context(), nil, Params{Format: f})
		animated, _ := all.Animate(t.Context(), nil, Params{Format: f}, nil)
		if string(file) != want || string(animated) != want || (want == "") != errors.Is(err, ErrUnsupported) {
			t.Errorf("%s by %q and %q, %v; want %q", f, file, animated, err, want)
		}
		if got := LevelOf(all, f); got != want {
			t.Errorf("level of %s is %q, want %q", f, got, want)
		}
	}
	broken := Combine(fakeLevel{name: "a", err: ErrFailed}, c)
	if _, err := broken.Encode(t.Context(), nil, Params{Format: WebP}); !errors.Is(err, ErrFailed) {
		t.Errorf("a level that fails: %v", err)
	}
	if Combine(a) != Encoder(a) || LevelOf(a, WebP) != "a" || LevelOf(a, AVIF) != "" {
		t.Error("one level is not itself")
	}
	if _, err := Combine().Encode(t.Context(), nil, Params{Format: WebP}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("no level: %v", err)
	}
}

// TestRefusedGIF: what one level fails at, another may convert. With the extension
// NETSCAPE2.0 for something else than a count of loops, gif2webp ends with "GIFLib Error 0".
func TestRefusedGIF(t *testing.T) {
	webp := Params{Format: WebP, Quality: 80}
	failing, good := fakeLevel{name: "a", err: fmt.Errorf("a: %w", ErrFailed)}, fakeLevel{name: "b", format: WebP}
	if file, err := Combine(failing, good).Animate(t.Context(), nil, webp, nil); string(file) != "b" || err != nil {
		t.Errorf("%q, %v", file, err)
	}
	for name, next := range map[string]fakeLevel{"fails": {name: "b", err: ErrFailed}, "cannot": {name: "b", format: AVIF}} {
		if _, err := Combine(failing, next).Animate(t.Context(), nil, webp, nil); !errors.Is(err, ErrFailed) || !strings.HasPrefix(err.Error(), "a:") {
			t.Errorf("the next level %s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if file, err := Combine(failing, good).Animate(ctx, nil, webp, nil); err == nil {
		t.Errorf("%q of a conversion that nobody waits for", file)
	}

	file := testGIFFile(t)
	at := bytes.Index(file, []byte("NETSCAPE2.0\x03\x01"))
	if at < 0 {
		t.Fatal("the test's GIF counts no loops")
	}
	file[at+12] = 2
	tools, embedded := needTools(t, "gif2webp"), &Embedded{}
	if _, err := tools.Animate(t.Context(), file, webp, nil); !errors.Is(err, ErrFailed) {
		t.Skipf("this gif2webp takes it: %v", err)
	}
	if out, err := Combine(tools, embedded).Animate(t.Context(), file, webp, nil); err != nil || !bytes.Contains(out, []byte("ANMF")) {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

// TestCheckResult refuses what is not a file of the format, or not all of it.
func TestCheckResult(t *testing.T) {
	good := []byte("RIFF\x0c\x00\x00\x00WEBPVP8 \x00\x00\x00\x00")
	if err := checkResult(WebP, good); err != nil {
		t.Error(err)
	}
	avif := goodAVIF(t)
	if err := checkResult(AVIF, avif); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]struct {
		f    Format
		file []byte
	}{
		"empty":      {WebP, nil},
		"other":      {WebP, avif},
		"cut":        {WebP, good[:19]},
		"more":       {WebP, append(bytes.Clone(good), 0)},
		"empty AVIF": {AVIF, nil},
		"WebP":       {AVIF, good},
		"cut AVIF":   {AVIF, avif[:len(avif)-1]},
		"in a head":  {AVIF, avif[:20]},
	} {
		if checkResult(c.f, c.file) == nil {
			t.Errorf("%s passed", name)
		}
	}
}

func goodAVIF(t testing.TB) []byte {
	t.Helper()
	file, err := os.ReadFile("../container/testdata/still.avif")
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// A picture that AV1 must divide into tiles gets as many columns as that takes. libaom
// 3.6.0 would write no right file with rows.
func TestLargePicturesAsAVIF(t *testing.T) {
	for size, want := range map[[2]int]int{
		{100, 100}: 0, {4096, 2304}: 0, {1080, 9000}: 1, {7360, 4912}: 2, {65535, 100}: 0, {200, 65535}: 1, {16000, 16000}: 5,
	} {
		if got := tileColumns(size[0], size[1]); got != want {
			t.Errorf("%v: %d, want %d", size, got, want)
		}
	}
	tools, err := NewTools(t.Context(), ToolOptions{})
	if err != nil || tools.avifenc == nil {
		t.Skip("needs avifenc: ", err)
	}
	p := planar(1080, 9000, picture.Sub420)
	file, err := tools.Encode(t.Context(), p, Params{Format: AVIF, Quality: 60})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("avifdec"); err != nil {
		t.Skip("needs avifdec")
	}
	dir := t.TempDir()
	in := filepath.Join(dir, "in.avif")
	if err := os.WriteFile(in, file, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("avifdec", "--codec", "dav1d", in, filepath.Join(dir, "out.y4m")).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// FuzzCheckResult must not crash, whatever a command writes.
func FuzzCheckResult(f *testing.F) {
	f.Add(goodAVIF(f))
	f.Add([]byte("RIFF\x0c\x00\x00\x00WEBPVP8 \x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, file []byte) {
		if checkResult(WebP, file) == nil && checkResult(AVIF, file) == nil {
			t.Error("both formats at once")
		}
	})
}

// TestY4M looks at headers and planes.
func TestY4M(t *testing.T) {
	pale := planar(5, 3, picture.Sub420)
	pale.A = picture.Plane{Pix: bytes.Repeat([]byte{7}, 15), Stride: 5}
	limitedGray := grayScene(5, 3)
	limitedGray.Limited = true
	for name, c := range map[string]struct {
		p      *picture.Picture
		header string
		planes []int
	}{
		"444":          {planar(5, 3, picture.Sub444), "C420jpeg XCOLORRANGE=FULL", []int{15, 6, 6}},
		"422":          {planar(5, 3, picture.Sub422), "C420jpeg XCOLORRANGE=FULL", []int{15, 6, 6}},
		"drawing":      {drawing(), "C444 XCOLORRANGE=FULL", []int{4096, 4096, 4096}},
		"420":          {planar(5, 3, picture.Sub420), "C420jpeg XCOLORRANGE=FULL", []int{15, 6, 6}},
		"440":          {planar(5, 3, picture.Sub440), "C420jpeg XCOLORRANGE=FULL", []int{15, 6, 6}},
		"limited":      {planar(5, 3, picture.Sub420).Limited420(), "C420jpeg XCOLORRANGE=LIMITED", []int{15, 6, 6}},
		"gray":         {grayScene(5, 3), "Cmono XCOLORRANGE=FULL", []int{15}},
		"limited gray": {limitedGray, "C420jpeg XCOLORRANGE=LIMITED", []int{15, 6, 6}},
		"alpha":        {pale, "C444alpha XCOLORRANGE=FULL", []int{15, 15, 15, 15}},
		"rgb alpha":    {glass(5, 3), "C444alpha XCOLORRANGE=FULL", []int{15, 15, 15, 15}},
		"photograph":   {noisy(64, 64), "C420jpeg XCOLORRANGE=FULL", []int{4096, 1024, 1024}},
	} {
		parts := y4m(c.p)
		if header := string(parts[0]); !strings.HasPrefix(header, "YUV4MPEG2 W") || !strings.HasSuffix(header, " Ip A1:1 "+c.header+"\nFRAME\n") {
			t.Errorf("%s: header %q", name, header)
		}
		var sizes []int
		for _, plane := range parts[1:] {
			sizes = append(sizes, len(plane))
		}
		if diff := cmp.Diff(c.planes, sizes); diff != "" {
			t.Errorf("%s: planes\n%s", name, diff)
		}
	}
	// What is planar already is passed on, not copied.
	p := planar(6, 4, picture.Sub420)
	if parts := y4m(p); &parts[1][0] != &p.Y.Pix[0] || &parts[2][0] != &p.Cb.Pix[0] {
		t.Error("planes without gaps were copied")
	}
}

// drawing is a flat image of 64 by 64 pixels with a frame and a bar.
func drawing() *picture.Picture {
	p := picture.New(64, 64, picture.NRGBA, picture.Sub444)
	for i := range 64 * 64 {
		x, y := i%64, i/64
		colour := []byte{240, 235, 220, 255}
		if x == 0 || y == 0 || x == 63 || y == 63 || y/8 == 3 {
			colour = []byte{20, 40, 200, 255}
		}
		copy(p.Pix[4*i:], colour)
	}
	return p
}

// TestHalf averages pairs, and takes the last of an odd number for two.
func TestHalf(t *testing.T) {
	p := planar(3, 3, picture.Sub444)
	copy(p.Cb.Pix, []byte{10, 20, 30, 40, 51, 60, 70, 80, 90})
	across := half(p, true)
	if diff := cmp.Diff([]byte{15, 30, 45, 60, 75, 90}, across.Cb.Pix); diff != "" || across.Sub != picture.Sub422 {
		t.Errorf("across, to %v:\n%s", across.Sub, diff)
	}
	both := half(across, false)
	if diff := cmp.Diff([]byte{30, 45, 75, 90}, both.Cb.Pix); diff != "" || both.Sub != picture.Sub420 {
		t.Errorf("both, to %v:\n%s", both.Sub, diff)
	}
}

// TestHalfKeepsColours: rounding moves no colour, in the mean.
func TestHalfKeepsColours(t *testing.T) {
	p := planar(64, 64, picture.Sub444)
	want, random := 0, rand.New(rand.NewPCG(1, 2))
	for i := range p.Cb.Pix {
		p.Cb.Pix[i] = byte(random.IntN(256))
		want += int(p.Cb.Pix[i])
	}
	for _, first := range []bool{true, false} {
		got := 0
		for _, v := range half(half(p, first), !first).Cb.Pix {
			got += 4 * int(v)
		}
		if off := float64(got-want) / (64 * 64); off < -0.1 || off > 0.1 {
			t.Errorf("chroma is %+.2f off", off)
		}
	}
}

// TestPacked drops what stands between the rows.
func TestPacked(t *testing.T) {
	gaps := picture.Plane{Pix: []byte("abXcdXef"), Stride: 3} // the last row ends with itself
	if got := packed(gaps, 2, 3); string(got) != "abcdef" {
		t.Errorf("%q", got)
	}
}

// TestTail keeps the end.
func TestTail(t *testing.T) {
	var s tail
	all := strings.Repeat("0123456789", 1000)
	for i := 0; i < len(all); i += 700 {
		if n, err := s.Write([]byte(all[i:min(i+700, len(all))])); n == 0 || err != nil {
			t.Fatal(n, err)
		}
	}
	if got := s.String(); got != all[len(all)-maxMessage:] {
		t.Errorf("%d bytes: %.30s", len(got), got)
	}
	if _, err := s.Write([]byte("first\n " + all + "last")); err != nil || !strings.HasSuffix(s.String(), "9last") || len(s.String()) != maxMessage {
		t.Errorf("%d bytes, %v", len(s.String()), err)
	}
}

// TestQuantizers are those that later versions of avifenc take for -q.
func TestQuantizers(t *testing.T) {
	got := strings.Join(append(quantizers("", 60), quantizers("alpha", 100)...), " ")
	want := "--min 21 --max 29 -a color:end-usage=q -a color:cq-level=25 --minalpha 0 --maxalpha 4 -a alpha:end-usage=q -a alpha:cq-level=0"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if q := quantizers("", 0); q[1] != "59" || q[3] != "63" {
		t.Errorf("the worst: %v", q)
	}
}

// TestAVIFQuality never falls, and stays in the scale.
func TestAVIFQuality(t *testing.T) {
	for _, tuned := range []bool{false, true} {
		last := 1
		for q := -3; q < 110; q++ {
			got := avifQuality(q, tuned)
			if got < last || got > 100 {
				t.Errorf("tuned %v: WebP %d is AVIF %d, before it %d", tuned, q, got, last)
			}
			last = got
		}
		for _, p := range scaleOf(tuned) {
			if got := avifQuality(p.webp, tuned); got != p.avif {
				t.Errorf("tuned %v: WebP %d is AVIF %d, want %d", tuned, p.webp, got, p.avif)
			}
		}
	}
}

// TestMemory grows with the image, and is larger for AVIF.
func TestMemory(t *testing.T) {
	for _, level := range []string{"embedded", "tools", "another"} {
		for _, f := range []Format{WebP, AVIF} {
			if a, b := Memory(level, f, 1e6), Memory(level, f, 8e6); a <= 1e6 || b <= a {
				t.Errorf("%s %s: %d for 1 megapixel, %d for 8", level, f, a, b)
			}
		}
		if Memory(level, WebP, 4e6) >= Memory(level, AVIF, 4e6) {
			t.Errorf("%s: WebP takes more than AVIF", level)
		}
	}
}

// TestTimes of GIFs, as browsers show them, and of loops.
func TestTimes(t *testing.T) {
	for delay, want := range map[int]time.Duration{-1: usualFrame, 0: usualFrame, 1: usualFrame, 2: 20 * time.Millisecond, 10: usualFrame, 65535: 655350 * time.Millisecond} {
		if got := gifDuration(delay); got != want {
			t.Errorf("delay %d: %v, want %v", delay, got, want)
		}
	}
	for again, want := range map[int]int{0: 0, -1: 1, 1: 2, 65535: 65535} {
		if got := loops(again); got != want {
			t.Errorf("loop count %d: %d, want %d", again, got, want)
		}
	}
}

// TestDifference compares with looking at every pixel.
func TestDifference(t *testing.T) {
	size := image.Rect(0, 0, 7, 5)
	if r := difference(image.NewNRGBA(size), image.NewNRGBA(size)); !r.Empty() {
		t.Errorf("nothing changed in %v", r)
	}
	for y1 := range 5 {
		for x1 := range 7 {
			for i := range 4 {
				a, b := image.NewNRGBA(size), image.NewNRGBA(size)
				b.Pix[b.PixOffset(3, 2)] = 1
				b.Pix[b.PixOffset(x1, y1)+i] = 9
				want := image.Rect(3, 2, 4, 3).Union(image.Rect(x1, y1, x1+1, y1+1))
				if r := difference(a, b); r != want {
					t.Fatalf("%v, want %v", r, want)
				}
			}
		}
	}
	if r := even(image.Rect(3, 5, 4, 6)); r != image.Rect(2, 4, 4, 6) {
		t.Errorf("even: %v", r)
	}
}

// FuzzAnimate gives the embedded level GIFs that are broken.
func FuzzAnimate(f *testing.F) {
	file, err := testGIF()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(file)
	var out bytes.Buffer
	m := image.NewPaletted(image.Rect(2, 1, 6, 5), color.Palette{color.NRGBA{}, color.NRGBA{255, 0, 0, 255}})
	g := &gif.GIF{
		Config: image.Config{Width: 9, Height: 9}, Image: []*image.Paletted{m, m}, Delay: []int{0, 9},
		Disposal: []byte{gif.DisposalPrevious, gif.DisposalBackground},
	}
	if err := gif.EncodeAll(&out, g); err != nil {
		f.Fatal(err)
	}
	f.Add(out.Bytes())
	e := &Embedded{}
	f.Fuzz(func(t *testing.T, file []byte) {
		if c, err := gif.DecodeConfig(bytes.NewReader(file)); err != nil || c.Width*c.Height > 1<<10 {
			t.Skip("too large to try many")
		}
		out, err := e.Animate(t.Context(), file, Params{Format: WebP, Quality: 80}, nil)
		if (err == nil) != (checkWebP(out) == nil) {
			t.Errorf("%d bytes, %v", len(out), err)
		}
	})
}
