package codec

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/color"
	"image/gif"
	"math"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gen2brain/webp"
	xwebp "golang.org/x/image/webp"

	"millrace/images/picture"
)

// Every level passes testEncoder: see TestEmbedded and TestTools.

// TestEmbedded holds the level that is always there against the contract.
func TestEmbedded(t *testing.T) {
	e, err := NewEmbedded(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if e.Level() != "embedded" {
		t.Errorf("level %q", e.Level())
	}
	testEncoder(t, e)
}

// TestTools holds the installed commands against the contract.
func TestTools(t *testing.T) {
	testEncoder(t, needTools(t, "cwebp", "gif2webp", "avifenc"))
}

// needTools is the level of tools with all the commands of the names.
func needTools(t *testing.T, names ...string) *Tools {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed (Debian: apt-get install webp libavif-bin)", name)
		}
	}
	e, err := NewTools(t.Context(), ToolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(names) == 3 && len(e.Problems()) > 0 {
		t.Fatal(e.Problems())
	}
	return e
}

// testEncoder is the suite for all levels.
func testEncoder(t *testing.T, e Encoder) {
	for _, f := range []Format{WebP, AVIF} {
		if e.Formats()[f] == "" {
			t.Errorf("%s: nobody named who writes it", f)
		}
	}
	t.Run("lossy", func(t *testing.T) { testLossy(t, e) })
	t.Run("quality", func(t *testing.T) { testQuality(t, e) })
	t.Run("alpha", func(t *testing.T) { testAlpha(t, e) })
	t.Run("lossless", func(t *testing.T) { testLossless(t, e) })
	t.Run("avif", func(t *testing.T) { testAVIF(t, e) })
	t.Run("refusals", func(t *testing.T) { testRefusals(t, e) })
	t.Run("cancelled", func(t *testing.T) { testCancelled(t, e) })
	t.Run("at once", func(t *testing.T) { testAtOnce(t, e) })
	t.Run("animation", func(t *testing.T) { testAnimation(t, e) })
}

// scene is a smooth image with all kinds of colours: red grows to the right,
// green downwards, blue on the diagonal.
func scene(width, height int) *picture.Picture {
	p := picture.New(width, height, picture.NRGBA, picture.Sub444)
	for y := range height {
		for x := range width {
			r, g := 255*x/max(width-1, 1), 255*y/max(height-1, 1)
			copy(p.Pix[y*p.Stride+4*x:], []byte{byte(r), byte(g), byte(255 - (r+g)/2), 255})
		}
	}
	return p
}

// planar is scene in YCbCr of full range.
func planar(width, height int, sub picture.Subsampling) *picture.Picture {
	ratio := map[picture.Subsampling]image.YCbCrSubsampleRatio{
		picture.Sub444: image.YCbCrSubsampleRatio444, picture.Sub422: image.YCbCrSubsampleRatio422,
		picture.Sub420: image.YCbCrSubsampleRatio420, picture.Sub440: image.YCbCrSubsampleRatio440,
	}[sub]
	m := image.NewYCbCr(image.Rect(0, 0, width, height), ratio)
	s := scene(width, height)
	for y := range height {
		for x := range width {
			c := s.Pix[y*s.Stride+4*x:]
			yy, cb, cr := color.RGBToYCbCr(c[0], c[1], c[2])
			m.Y[m.YOffset(x, y)] = yy
			m.Cb[m.COffset(x, y)], m.Cr[m.COffset(x, y)] = cb, cr
		}
	}
	return picture.FromImage(m)
}

// grayScene is a ramp.
func grayScene(width, height int) *picture.Picture {
	p := picture.New(width, height, picture.Gray, picture.Sub444)
	for y := range height {
		for x := range width {
			p.Y.Pix[y*p.Y.Stride+x] = byte(255 * x / max(width-1, 1))
		}
	}
	return p
}

// decodeWebP decodes with a decoder that none of the levels has to do with,
// into straight RGBA; VP8's limited range is expanded here.
func decodeWebP(t *testing.T, file []byte) *image.NRGBA {
	t.Helper()
	m, err := xwebp.Decode(bytes.NewReader(file))
	if err != nil {
		t.Fatalf("decoding: %v", err)
	}
	out := image.NewNRGBA(m.Bounds())
	at := func(x, y int) color.NRGBA { return color.NRGBAModel.Convert(m.At(x, y)).(color.NRGBA) }
	switch m := m.(type) {
	case *image.YCbCr:
		at = func(x, y int) color.NRGBA { return limited(m.YCbCrAt(x, y), 255) }
	case *image.NYCbCrA:
		at = func(x, y int) color.NRGBA { return limited(m.YCbCrAt(x, y), m.A[m.AOffset(x, y)]) }
	}
	for y := range m.Bounds().Dy() {
		for x := range m.Bounds().Dx() {
			out.SetNRGBA(x, y, at(x, y))
		}
	}
	return out
}

// limited converts BT.601 of limited range.
func limited(c color.YCbCr, a uint8) color.NRGBA {
	y, cb, cr := 255./219*(float64(c.Y)-16), 255./224*(float64(c.Cb)-128), 255./224*(float64(c.Cr)-128)
	clamp := func(v float64) uint8 { return uint8(min(max(math.Round(v), 0), 255)) }
	return color.NRGBA{clamp(y + 1.402*cr), clamp(y - 0.344136*cb - 0.714136*cr), clamp(y + 1.772*cb), a}
}

// expectLike compares a decoded image with what it was made of: the mean
// difference of each channel's samples must not be more than limit, nor may the
// channel be shifted as a whole by more than a third of it (wrong range, wrong
// coefficients).
func expectLike(t *testing.T, got, want *image.NRGBA, limit float64) {
	t.Helper()
	if got.Rect.Size() != want.Rect.Size() {
		t.Fatalf("%v pixels, want %v", got.Rect.Size(), want.Rect.Size())
	}
	var sum, shift [4]float64
	for y := range got.Rect.Dy() {
		for x := range got.Rect.Dx() {
			a, b := got.NRGBAAt(x, y), want.NRGBAAt(x, y)
			if a.A == 0 && b.A == 0 {
				continue
			}
			for i, d := range []float64{float64(a.R) - float64(b.R), float64(a.G) - float64(b.G), float64(a.B) - float64(b.B), float64(a.A) - float64(b.A)} {
				sum[i] += math.Abs(d)
				shift[i] += d
			}
		}
	}
	n := float64(got.Rect.Dx() * got.Rect.Dy())
	for i, channel := range []string{"red", "green", "blue", "alpha"} {
		if sum[i]/n > limit || math.Abs(shift[i]/n) > max(limit/3, 0.01) {
			t.Errorf("%s differs by %.2f in the mean, is shifted by %.2f, allowed %.2f", channel, sum[i]/n, shift[i]/n, limit)
		}
	}
}

// rgb is what an image looks like.
func rgb(p *picture.Picture) *image.NRGBA { return nrgbaImage(p.NRGBA()) }

// sizes are even, odd, and as thin as can be.
var sizes = []image.Point{{64, 48}, {33, 17}, {1, 1}, {1, 9}, {9, 1}}

// testLossy writes every model and subsampling.
func testLossy(t *testing.T, e Encoder) {
	for _, size := range sizes {
		w, h := size.X, size.Y
		pictures := map[string]*picture.Picture{"rgb": scene(w, h), "gray": grayScene(w, h), "limited": planar(w, h, picture.Sub420).Limited420()}
		for name, sub := range map[string]picture.Subsampling{"444": picture.Sub444, "422": picture.Sub422, "420": picture.Sub420, "440": picture.Sub440} {
			pictures[name] = planar(w, h, sub)
		}
		for name, p := range pictures {
			before := slices.Concat(p.Y.Pix, p.Cb.Pix, p.Cr.Pix, p.Pix)
			for _, effort := range []Effort{Fast, Best} {
				file, err := e.Encode(t.Context(), p, Params{Format: WebP, Quality: 95, Effort: effort})
				if err != nil {
					t.Errorf("%s %v: %v", name, size, err)
					continue
				}
				limit := 8.
				if min(w, h) < 16 {
					limit = 40 // chroma is shared by pixels of all colours
				}
				expectLike(t, decodeWebP(t, file), rgb(p), limit)
			}
			if !bytes.Equal(before, slices.Concat(p.Y.Pix, p.Cb.Pix, p.Cr.Pix, p.Pix)) {
				t.Errorf("%s %v: the picture was changed", name, size)
			}
		}
	}
}

// testQuality finds more quality larger and more effort smaller, and values
// out of range taken for the next in range.
func testQuality(t *testing.T, e Encoder) {
	p := noisy(96, 96)
	size := func(o Params) int {
		file, err := e.Encode(t.Context(), p, o)
		if err != nil {
			t.Fatal(err)
		}
		return len(file)
	}
	q := map[int]int{}
	for _, quality := range []int{-5, 1, 30, 80, 99, 1000} {
		q[quality] = size(Params{Format: WebP, Quality: quality})
	}
	if q[-5] != q[1] || q[1] >= q[30] || q[30] >= q[80] || q[80] >= q[99] || q[1000] < q[99] {
		t.Errorf("bytes by quality: %v", q)
	}
	if best := size(Params{Format: WebP, Quality: 80, Effort: Best}); best == q[80] {
		t.Errorf("both efforts took %d bytes: are they the same?", best)
	}
}

// noisy is an image with detail, always the same.
func noisy(width, height int) *picture.Picture {
	p := scene(width, height)
	state := uint32(1)
	for i := range p.Pix {
		if i%4 == 3 {
			continue
		}
		state = state*1664525 + 1013904223
		p.Pix[i] = byte(int(p.Pix[i])*3/4 + int(state>>27)*2)
	}
	return p
}

// glass is scene with transparency that grows to the right.
func glass(width, height int) *picture.Picture {
	p := scene(width, height)
	for y := range height {
		for x := range width {
			p.Pix[y*p.Stride+4*x+3] = byte(255 * x / max(width-1, 1))
		}
	}
	return p
}

// testAlpha codes transparency with loss of colours, not of alpha; in RGB and
// as a plane beside YCbCr and Gray.
func testAlpha(t *testing.T, e Encoder) {
	veiled := planar(40, 30, picture.Sub420)
	veiled.A = picture.Plane{Pix: make([]byte, 40*30), Stride: 40}
	shade := grayScene(40, 30)
	shade.A = picture.Plane{Pix: make([]byte, 40*30), Stride: 40}
	for i := range veiled.A.Pix {
		veiled.A.Pix[i], shade.A.Pix[i] = byte(i/5), byte(i/5)
	}
	for name, p := range map[string]*picture.Picture{"rgb": glass(40, 30), "yuv": veiled, "gray": shade} {
		file, err := e.Encode(t.Context(), p, Params{Format: WebP, Quality: 90})
		if err != nil {
			t.Fatal(err)
		}
		got := decodeWebP(t, file)
		want := rgb(p)
		for i := 3; i < len(got.Pix); i += 4 {
			if got.Pix[i] != want.Pix[i] {
				t.Fatalf("%s: alpha of pixel %d is %d, want %d", name, i/4, got.Pix[i], want.Pix[i])
			}
		}
		expectLike(t, got, want, 12)
	}
}

// testLossless wants every pixel back; nearly lossless ones are close.
func testLossless(t *testing.T, e Encoder) {
	for _, p := range map[string]*picture.Picture{
		"opaque": noisy(33, 17), "transparent": glass(33, 17), "yuv": planar(33, 17, picture.Sub422), "gray": grayScene(33, 17),
	} {
		for _, o := range []Params{{Lossless: true}, {Lossless: true, Quality: 1, Effort: Best}} {
			o.Format = WebP
			file, err := e.Encode(t.Context(), p, o)
			if err != nil {
				t.Fatal(err)
			}
			expectLike(t, decodeWebP(t, file), rgb(p), 0)
		}
		file, err := e.Encode(t.Context(), p, Params{Format: WebP, NearLossless: 60})
		if err != nil {
			t.Fatal(err)
		}
		expectLike(t, decodeWebP(t, file), rgb(p), 4)
	}
	// A row's stride may be larger than the row.
	wide := noisy(40, 20)
	part := &picture.Picture{Width: 21, Height: 20, Model: picture.NRGBA, Pix: wide.Pix[4*3:], Stride: wide.Stride}
	file, err := e.Encode(t.Context(), part, Params{Format: WebP, Lossless: true})
	if err != nil {
		t.Fatal(err)
	}
	expectLike(t, decodeWebP(t, file), rgb(part), 0)
}

// testRefusals asks for what no level can write.
func testRefusals(t *testing.T, e Encoder) {
	p := scene(8, 8)
	for name, ask := range map[string]func() ([]byte, error){
		"format":    func() ([]byte, error) { return e.Encode(t.Context(), p, Params{Format: "jxl", Quality: 80}) },
		"no format": func() ([]byte, error) { return e.Encode(t.Context(), p, Params{Quality: 80}) },
		"lossless AVIF": func() ([]byte, error) {
			return e.Encode(t.Context(), p, Params{Format: AVIF, Lossless: true})
		},
		"CMYK": func() ([]byte, error) {
			return e.Encode(t.Context(), picture.New(8, 8, picture.CMYK, picture.Sub444), Params{Format: WebP})
		},
		"too wide": func() ([]byte, error) {
			return e.Encode(t.Context(), picture.New(maxWebP+1, 1, picture.NRGBA, picture.Sub444), Params{Format: WebP})
		},
		"animated AVIF": func() ([]byte, error) { return e.Animate(t.Context(), nil, Params{Format: AVIF}, nil) },
	} {
		if file, err := ask(); !errors.Is(err, ErrUnsupported) || file != nil {
			t.Errorf("%s: %d bytes, %v; want ErrUnsupported", name, len(file), err)
		}
	}
	for name, file := range map[string][]byte{"next to nothing": []byte("GIF8"), "text": []byte("GIF89a, or not"), "half": testGIFFile(t)[:30]} {
		if out, err := e.Animate(t.Context(), file, Params{Format: WebP, Quality: 80}, nil); !errors.Is(err, ErrFailed) || out != nil {
			t.Errorf("animating %s: %d bytes, %v; want ErrFailed", name, len(out), err)
		}
	}
}

func testGIFFile(t *testing.T) []byte {
	t.Helper()
	file, err := testGIF()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// testCancelled must not begin.
func testCancelled(t *testing.T, e Encoder) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Encode(ctx, scene(8, 8), Params{Format: WebP, Quality: 80}); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrFailed) {
		t.Errorf("encoding: %v", err)
	}
	if _, err := e.Animate(ctx, testGIFFile(t), Params{Format: WebP, Quality: 80}, nil); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrFailed) {
		t.Errorf("animating: %v", err)
	}
}

// testAtOnce has many goroutines encode the same image.
func testAtOnce(t *testing.T, e Encoder) {
	p := planar(50, 40, picture.Sub420)
	o := Params{Format: WebP, Quality: 80}
	want, err := e.Encode(t.Context(), p, o)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got, err := e.Encode(t.Context(), p, o); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, %v; alone it took %d", len(got), err, len(want))
			}
		})
	}
	wg.Wait()
}

// testAnimation compares every frame of an animation with disposals of all
// kinds and a transparent background with what a player of GIFs shows.
func testAnimation(t *testing.T, e Encoder) {
	palette := color.Palette{color.NRGBA{}, color.NRGBA{250, 20, 20, 255}, color.NRGBA{20, 200, 20, 255}, color.NRGBA{20, 20, 250, 255}}
	block := func(r image.Rectangle, index byte) *image.Paletted {
		m := image.NewPaletted(r, palette)
		for i := range m.Pix {
			m.Pix[i] = index
		}
		return m
	}
	const red, green, blue = 1, 2, 3
	g := &gif.GIF{
		Config: image.Config{Width: 23, Height: 19, ColorModel: palette},
		Image: []*image.Paletted{
			block(image.Rect(3, 3, 20, 16), red),
			block(image.Rect(5, 5, 10, 9), green),  // to be taken away again
			block(image.Rect(7, 7, 14, 12), blue),  // leaves a hole
			block(image.Rect(0, 0, 5, 5), green),   // beside the hole
			block(image.Rect(0, 0, 23, 19), 0),     // changes nothing
			block(image.Rect(22, 18, 23, 19), red), // one pixel in the corner
		},
		Delay:     []int{5, 0, 20, 30, 40, 50},
		Disposal:  []byte{gif.DisposalNone, gif.DisposalPrevious, gif.DisposalBackground, gif.DisposalNone, gif.DisposalNone, gif.DisposalNone},
		LoopCount: 2,
	}
	var file bytes.Buffer
	if err := gif.EncodeAll(&file, g); err != nil {
		t.Fatal(err)
	}
	out, err := e.Animate(t.Context(), file.Bytes(), Params{Format: WebP, Quality: 80, Lossless: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if loops := int(out[42]) | int(out[43])<<8; string(out[30:34]) != "ANIM" || loops != 3 {
		t.Errorf("%q, shown %d times, want 3", out[30:34], loops)
	}
	got, err := webp.DecodeAll(bytes.NewReader(out))
	if err != nil {
		t.Fatal(err)
	}
	// The fifth frame changes nothing, so it may be one with the fourth.
	if want := []int{50, 100, 200, 700, 500}; !slices.Equal(got.Delay, want) {
		t.Fatalf("delays %v, want %v", got.Delay, want)
	}
	at := func(frame, x, y int) color.NRGBA {
		return color.NRGBAModel.Convert(got.Image[frame].At(x, y)).(color.NRGBA)
	}
	for _, c := range []struct{ frame, x, y, want int }{
		{0, 0, 0, 0},
		{0, 3, 3, red},
		{0, 19, 15, red},
		{0, 20, 16, 0},
		{1, 5, 5, green},
		{1, 9, 8, green},
		{1, 10, 9, red},
		{2, 5, 5, red},
		{2, 7, 7, blue},
		{2, 13, 11, blue},
		{3, 7, 7, 0},
		{3, 13, 11, 0},
		{3, 14, 12, red},
		{3, 0, 0, green},
		{3, 4, 4, green},
		{3, 5, 5, red},
		{4, 22, 18, red},
		{4, 0, 0, green},
		{4, 7, 7, 0},
		{4, 21, 18, 0},
	} {
		if got, want := at(c.frame, c.x, c.y), palette[c.want].(color.NRGBA); got != want {
			t.Errorf("frame %d at %d, %d: %v, want %v", c.frame, c.x, c.y, got, want)
		}
	}
	if lossy, err := e.Animate(t.Context(), file.Bytes(), Params{Format: WebP, Quality: 50}, nil); err != nil || !strings.HasPrefix(string(lossy[8:]), "WEBPVP8X") {
		t.Errorf("lossy: %d bytes, %v", len(lossy), err)
	}
}
