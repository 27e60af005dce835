package header

import (
	"bytes"
	"compress/zlib"
	"image"
	"strings"
	"testing"
)

func read(t *testing.T, file []byte) Info {
	t.Helper()
	i, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// TestProfiles: a profile is found however it is stored, and a broken one is
// noted and keeps nobody from the image.
func TestProfiles(t *testing.T) {
	p := testProfile(300)
	sof := jpegSOF(0xc0, 8, 8, 3)
	head := pngHead(8, 8, 8, 2, 0)
	iccp := func(body ...[]byte) []byte { return pngFile(head, pngChunk("iCCP", body...)) }
	bad := append([]byte{}, p...)
	bad[36] = 'x'
	v5 := cat(bmpFile(bmpV5, 8, 8, 24), p)
	copy(v5[14+56:], "DEBM")
	copy(v5[14+112:], cat(le32(bmpV5), le32(len(p))))
	tiffICC := func(at int) []byte {
		return cat(tiffFile(8, 8, cat(le16(tagICC), le16(typeUndefined), le32(len(p)), le32(at))), p)
	}
	long, largest := testProfile(3*60_000), testProfile(maxICC)
	for name, c := range map[string]struct {
		file   []byte
		want   []byte
		broken bool
	}{
		"jpeg, none":           {jpegFile(sof), nil, false},
		"jpeg, one part":       {jpegFile(iccSegment(1, 1, p), sof), p, false},
		"jpeg, three parts":    {jpegFile(iccSegment(3, 3, long[120_000:]), iccSegment(1, 3, long[:60_000]), sof, iccSegment(2, 3, long[60_000:120_000])), long, false},
		"jpeg, part missing":   {jpegFile(iccSegment(1, 3, p[:100]), iccSegment(3, 3, p[200:]), sof), nil, true},
		"jpeg, part twice":     {jpegFile(iccSegment(1, 1, p), iccSegment(1, 1, p), sof), nil, true},
		"jpeg, part 0":         {jpegFile(iccSegment(0, 1, p), sof), nil, true},
		"jpeg, part 2 of 1":    {jpegFile(iccSegment(2, 1, p), sof), nil, true},
		"jpeg, two counts":     {jpegFile(iccSegment(1, 2, p[:200]), iccSegment(2, 3, p[200:]), sof), nil, true},
		"jpeg, no numbers":     {jpegFile(jpegSegment(markAPP2, []byte(iccPrefix)), sof), nil, true},
		"jpeg, other APP2":     {jpegFile(jpegSegment(markAPP2, []byte("MPF\x00"), p), sof), nil, false},
		"jpeg, filled up":      {jpegFile(iccSegment(1, 1, cat(p, make([]byte, 50))), sof), p, false},
		"jpeg, cut off inside": {jpegFile(iccSegment(1, 1, p[:299]), sof), nil, true},
		"jpeg, not a profile":  {jpegFile(iccSegment(1, 1, bad), sof), nil, true},
		"png":                  {iccp([]byte("name\x00\x00"), deflate(p)), p, false},
		"png, no name":         {iccp([]byte("\x00\x00"), deflate(p)), nil, true},
		"png, long name":       {iccp(bytes.Repeat([]byte("n"), 80), []byte("\x00\x00"), deflate(p)), nil, true},
		"png, method":          {iccp([]byte("name\x00\x01"), deflate(p)), nil, true},
		"png, not zlib":        {iccp([]byte("name\x00\x00"), p), nil, true},
		"png, cut off":         {iccp([]byte("name\x00\x00"), deflate(p)[:20]), nil, true},
		"png, empty":           {iccp(), nil, true},
		"png, largest":         {iccp([]byte("name\x00\x00"), zlibAt(zlib.NoCompression, largest)), largest, false},
		"png, too large":       {iccp([]byte("name\x00\x00"), zlibAt(zlib.NoCompression, append(largest[:maxICC:maxICC], 0))), nil, true},
		"png, behind pixels":   {cat(pngFile(head)[:len(head)+13], pngChunk("iCCP", []byte("n\x00\x00"), deflate(p)), pngChunk("IEND")), nil, false},
		"webp, odd":            {webpFile(vp8x(0x20, 8, 8), riff("ICCP", testProfile(301)), vp8(8, 8)), testProfile(301), false},
		"webp, rubbish":        {webpFile(vp8x(0x20, 8, 8), riff("ICCP", []byte("hi")), vp8(8, 8)), nil, true},
		"bmp":                  {v5, p, false},
		"bmp, cut off":         {v5[:len(v5)-1], nil, true},
		"tiff":                 {tiffICC(8 + 2 + 3*12 + 4), p, false},
		"tiff, outside":        {tiffICC(1 << 30), nil, true},
		"avif, restricted":     {avifFile(8, 8, box("colr", []byte("rICC"), p)), p, false},
		"avif, numbers":        {avifFile(8, 8, box("colr", []byte("nclx"), make([]byte, 7))), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			i := read(t, c.file)
			if !bytes.Equal(i.ICC, c.want) || i.BrokenICC != c.broken || i.ICC != nil && len(i.ICC) == 0 {
				t.Errorf("a profile of %d bytes, broken: %v; want %d bytes, %v", len(i.ICC), i.BrokenICC, len(c.want), c.broken)
			}
		})
	}
}

// TestEXIF: orientation and texts, in both byte orders, and blocks that are
// broken in all ways.
func TestEXIF(t *testing.T) {
	in := func(block []byte) Info {
		return read(t, jpegFile(jpegSegment(markAPP1, []byte("Exif\x00\x00"), block), jpegSOF(0xc0, 8, 8, 3)))
	}
	for o := range 10 {
		want := o
		if o < 1 || o > 8 {
			want = 1
		}
		if got := in(testEXIF(o)).Orientation; got != want {
			t.Errorf("an orientation of %d is read as %d, want %d", o, got, want)
		}
		little := tiffFile(640, 480, cat(le16(tagOrientation), le16(typeShort), le32(1), le16(o), le16(0)))
		if got := in(little); got.Orientation != want || got.Width != 8 {
			t.Errorf("an orientation of %d, little-endian, is read as %d, want %d; width %d", o, got.Orientation, want, got.Width)
		}
	}
	sound := testEXIF(6)
	for n := range sound {
		if i := in(sound[:n]); i.Orientation != 1 && i.Orientation != 6 {
			t.Errorf("cut off at %d: orientation %d", n, i.Orientation)
		}
		for _, b := range []byte{0, 1, 0x7f, 0xff} {
			bad := append([]byte{}, sound...)
			bad[n] = b
			in(bad)
		}
	}
	if i := in(append([]byte("Exif\x00\x00"), sound...)); i.Orientation != 6 {
		t.Error("a prefix that is there twice hides the block")
	}
}

// TestOrientation: it is obeyed where browsers do. Chromium 156 showed a picture whose
// EXIF has the orientation 6 turned as a JPEG, and as a PNG with eXIf before IDAT; as it
// is stored as a PNG with eXIf behind IDAT (so is pngtest.png of libpng, with 5), as a WebP
// and as an AVIF.
func TestOrientation(t *testing.T) {
	block := testEXIF(6)
	exif := pngChunk("eXIf", block)
	head, pixels := pngHead(8, 8, 8, 2, 0), pngChunk("IDAT", deflate(make([]byte, 8*25)))
	for name, c := range map[string]struct {
		file []byte
		want int
	}{
		"jpeg":             {jpegFile(jpegSegment(markAPP1, []byte("Exif\x00\x00"), block), jpegSOF(0xc0, 8, 8, 3)), 6},
		"png":              {pngFile(head, exif, pixels), 6},
		"png, behind":      {pngFile(head, pixels, exif), 1},
		"png, before both": {pngFile(head, exif, pixels, pngChunk("eXIf", testEXIF(3))), 6},
		"webp":             {webpFile(vp8x(8, 8, 8), vp8(8, 8), riff("EXIF", block)), 1},
		"webp, before":     {webpFile(vp8x(8, 8, 8), riff("EXIF", block), vp8(8, 8)), 1},
		"avif":             {avifFile(8, 8), 1},
	} {
		if i := read(t, c.file); i.Orientation != c.want || i.Copyright == "" && name != "avif" {
			t.Errorf("%s: orientation %d of %+v, want %d", name, i.Orientation, i, c.want)
		}
	}
}

// TestTexts: what is not clean text becomes one.
func TestTexts(t *testing.T) {
	for raw, want := range map[string]string{
		"":                               "",
		"  \x00":                         "",
		"Ann\x00":                        "Ann",
		"Ann\x00Bob\x00":                 "Ann, Bob",
		" \x00Bob\x00":                   "Bob",
		"J\xf6rg":                        "Jörg", // Latin-1
		"Jörg":                           "Jörg",
		"a\nb\x1b[31m":                   "a b [31m",
		strings.Repeat("ö", maxText):     strings.Repeat("ö", maxText/2),
		"x" + strings.Repeat("ö", 3000):  "x" + strings.Repeat("ö", maxText/2-1),
		strings.Repeat("\xf6", maxText):  strings.Repeat("ö", maxText/2),
		strings.Repeat("\x80", 2) + "ok": "ok",
	} {
		if got := cleanText([]byte(raw)); got != want {
			t.Errorf("%.40q becomes %.40q (%d bytes), want %.40q (%d)", raw, got, len(got), want, len(want))
		}
	}
}

// TestEXIFWritten reads back what EXIF writes.
func TestEXIFWritten(t *testing.T) {
	if b := EXIF("", " "); b != nil {
		t.Errorf("nothing becomes % x", b)
	}
	for _, c := range []struct{ copyright, artist string }{
		{"© 2026 Ann Example, all rights reserved", "Ann"},
		{"An", ""},
		{"", "Ann Example"},
		{"(c)", "even"},
		{strings.Repeat("c", maxText), strings.Repeat("a", maxText)},
	} {
		block := EXIF(c.copyright, c.artist)
		i := read(t, webpFile(vp8x(8, 8, 8), vp8(8, 8), riff("EXIF", block)))
		if i.Copyright != c.copyright || i.Artist != c.artist || i.Orientation != 1 {
			t.Errorf("%.40q and %.40q are read as %.40q and %.40q", c.copyright, c.artist, i.Copyright, i.Artist)
		}
	}
}

// TestJPEGPictures: other images inside a file do not count.
func TestJPEGPictures(t *testing.T) {
	thumbnail := jpegFile(jpegSOF(0xc0, 160, 120, 3))
	mpf := jpegSegment(markAPP2, []byte("MPF\x00"), jpegFile(jpegSOF(0xc0, 1, 1, 1)))
	first := cat([]byte("\xff\xd8"), jpegSegment(markAPP1, []byte("Exif\x00\x00"), testEXIF(8), thumbnail), mpf,
		[]byte("junk\xff\xff\xff\x00\xff\xd0"), // between segments
		jpegSegment(markAPP1, []byte("Exif\x00\x00"), testEXIF(2)), jpegSOF(0xc2, 4000, 3000, 3), jpegSegment(markSOS, make([]byte, 10)),
		[]byte("pixels\xff\xd9"))
	i := read(t, cat(first, jpegFile(iccSegment(1, 1, testProfile(200)), jpegSOF(0xc0, 800, 600, 1))))
	if i.Width != 4000 || i.Height != 3000 || i.Orientation != 8 || !i.Progressive || i.ICC != nil || i.BrokenICC || i.Components != 3 {
		t.Errorf("got %+v", i)
	}
}

// TestGainMap: what tells of a second image with the brightness of the first.
func TestGainMap(t *testing.T) {
	xmp := func(s string) []byte { return jpegSegment(markAPP1, []byte(xmpPrefix), []byte(s)) }
	const (
		ultra = `<x:xmpmeta><rdf:Description xmlns:hdrgm="http://ns.adobe.com/hdr-gain-map/1.0/" hdrgm:Version="1.0"/></x:xmpmeta>`
		apple = `<x:xmpmeta><rdf:Description xmlns:HDRGainMap="http://ns.apple.com/HDRGainMap/1.0/"/></x:xmpmeta>`
	)
	second := jpegFile(xmp(apple), jpegSOF(0xc0, 80, 60, 1))
	mpf := jpegSegment(markAPP2, []byte(mpfPrefix), make([]byte, 80))
	sof := jpegSOF(0xc0, 160, 120, 3)
	for name, c := range map[string]struct {
		file []byte
		want bool
	}{
		"none":              {jpegFile(sof), false},
		"other XMP":         {jpegFile(xmp(`<x:xmpmeta/>`), sof), false},
		"Ultra HDR":         {jpegFile(xmp(ultra), mpf, sof), true},
		"behind the size":   {jpegFile(sof, xmp(ultra)), true},
		"ISO 21496-1":       {jpegFile(jpegSegment(markAPP2, []byte(gainPrefix), make([]byte, 4)), sof), true},
		"of Apple":          {cat(jpegFile(mpf, sof), []byte("pixels\xff\xd9"), second), true},
		"a preview, by MPF": {cat(jpegFile(mpf, sof), []byte("pixels\xff\xd9"), jpegFile(jpegSOF(0xc0, 80, 60, 3))), false},
		"behind the end":    {cat(jpegFile(sof), []byte("pixels\xff\xd9"), second), false},
		"only words":        {jpegFile(jpegSegment(0xfe, []byte(ultra)), sof), false},
	} {
		if got := read(t, c.file).GainMap; got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestPNGColours: what describes colours other than sRGB's, and who overrides
// whom.
func TestPNGColours(t *testing.T) {
	gamma := func(v int) []byte { return pngChunk("gAMA", be32(v)) }
	chrm := func(first int) []byte {
		var b []byte
		for _, v := range []int{first, 32900, 64000, 33000, 30000, 60000, 15000, 6000} {
			b = append(b, be32(v)...)
		}
		return pngChunk("cHRM", b)
	}
	srgb := pngChunk("sRGB", []byte{0})
	icc := pngChunk("iCCP", []byte("p\x00\x00"), deflate(testProfile(200)))
	cicp := func(b ...byte) []byte { return pngChunk("cICP", b) }
	for name, c := range map[string]struct {
		chunks []byte
		want   bool
	}{
		"nothing":             {nil, false},
		"usual gamma":         {gamma(45455), false},
		"gamma 1/2.25":        {gamma(44444), false},
		"gamma 1":             {gamma(100_000), true},
		"gamma of old Macs":   {gamma(55_556), true},
		"usual primaries":     {chrm(31_270), false},
		"white of D50":        {chrm(34_570), true},
		"sRGB overrides":      {cat(gamma(100_000), srgb), false},
		"profile overrides":   {cat(gamma(100_000), icc), false},
		"broken profile":      {cat(gamma(100_000), pngChunk("iCCP", []byte("p\x00\x00"))), true},
		"cICP of sRGB":        {cat(gamma(100_000), cicp(1, 13, 0, 1)), false},
		"cICP of Display P3":  {cat(icc, cicp(12, 13, 0, 1)), true},
		"cICP of BT.2100 PQ":  {cat(srgb, cicp(9, 16, 0, 1)), true},
		"cICP cut off":        {cicp(9, 16), false},
		"behind the pixels":   {cat(pngChunk("IDAT"), gamma(100_000)), false},
		"gamma of wrong size": {pngChunk("gAMA", []byte{1}), false},
	} {
		if got := read(t, pngFile(pngHead(8, 8, 8, 2, 0), c.chunks)).NotSRGB; got != c.want {
			t.Errorf("%s: not sRGB: %v, want %v", name, got, c.want)
		}
	}
}

// TestAlphaAndFrames: when an image may be transparent, and how many it has.
func TestAlphaAndFrames(t *testing.T) {
	gce := func(flags byte) []byte { return []byte{0x21, 0xf9, 4, flags, 0, 0, 0, 0} }
	still := gifFile(t, 1)
	withGCE := func(g []byte, flags byte) []byte { return cat(g[:13], gce(flags), g[13:]) }
	two := gifFile(t, 2)
	actl := pngChunk("acTL", be32(2), be32(0))
	fctl := pngChunk("fcTL", make([]byte, 26))
	rgb := pngHead(8, 8, 8, pngRGB, 0)
	stsz := func(n int) []byte {
		return cat(avifFile(8, 8), box("moov", box("trak", box("mdia", box("minf", box("stbl", box("stsz", be32(0), be32(0), be32(n))))))))
	}
	for name, c := range map[string]struct {
		file   []byte
		alpha  bool
		frames int
	}{
		"gif":                      {still, false, 1},
		"gif, transparent":         {withGCE(still, 1), true, 1},
		"gif, disposed, still":     {withGCE(still, 2<<2), false, 1},
		"gif, disposed":            {withGCE(two, 2<<2), true, 2},
		"gif, first frame smaller": {gifFile(t, 2, image.Rect(2, 0, 20, 10)), true, 2},
		"gif, frame cut off":       {two[:len(two)-12], false, 2},
		"gif, rubbish behind":      {cat(still[:len(still)-1], []byte("\x00rubbish,,,")), false, 1},
		"png, key colour":          {pngFile(rgb, pngChunk("tRNS", make([]byte, 6))), true, 1},
		"png, behind pixels":       {pngFile(rgb, pngChunk("IDAT"), pngChunk("tRNS", make([]byte, 6)), actl), false, 1},
		"apng":                     {pngFile(rgb, actl, fctl), false, 2},
		"apng, another still":      {pngFile(rgb, actl), false, 3},
		"webp, flag":               {webpFile(vp8x(0x10, 8, 8), vp8(8, 8)), true, 1},
		"webp, alpha unsaid":       {webpFile(vp8x(0, 8, 8), riff("ALPH", []byte{0}), vp8(8, 8)), true, 1},
		"webp, rubbish behind":     {cat(webpFile(vp8x(2, 8, 8), anmf(0, 0, 8, 8, vp8(8, 8))), anmf(0, 0, 8, 8, vp8(8, 8))), false, 1},
		"webp, empty frame":        {webpFile(vp8x(2, 8, 8), anmf(0, 0, 8, 8, vp8(8, 8)), anmf(0, 0, 8, 8), riff("ANMF")), false, 1},
		"avif, sequence":           {stsz(25), false, 25},
		"avif, claims":             {stsz(-1), false, MaxFrames},
	} {
		if i := read(t, c.file); i.Alpha != c.alpha || i.Frames != c.frames {
			t.Errorf("%s: alpha %v, %d frames, want %v, %d", name, i.Alpha, i.Frames, c.alpha, c.frames)
		}
	}
}

// TestScreenOfNothing: old writers leave the size to the first frame.
func TestScreenOfNothing(t *testing.T) {
	g := gifFile(t, 2)
	copy(g[6:], []byte{0, 0, 0, 0})
	if i := read(t, g); i.Width != 20 || i.Height != 10 || i.Frames != 2 || i.Alpha {
		t.Errorf("got %+v", i)
	}
}

func BenchmarkRead(b *testing.B) {
	for name, file := range seeds(b) {
		b.Run(strings.ReplaceAll(name, ", ", "-"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Read(file); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What an AVIF says by irot and imir is what EXIF says by a number: the corner that is stored first
// ends where both say.
func TestAVIFShown(t *testing.T) {
	const w, h = 5, 3
	for quarters := range byte(4) {
		for _, mirror := range []string{"", "\x00", "\x01"} { // top and bottom, left and right
			var s avifShown
			s.property("irot", []byte{quarters})
			x, y, width, height := 0, 0, w, h
			for range quarters { // each turns anticlockwise
				x, y, width, height = y, width-1-x, height, width
			}
			if mirror != "" {
				s.property("imir", []byte(mirror))
				if mirror == "\x01" {
					x = width - 1 - x
				} else {
					y = height - 1 - y
				}
			}
			// TIFF 6.0, section 8: where row 0 and column 0 are.
			corners := map[int][2]bool{1: {false, false}, 2: {true, false}, 3: {true, true}, 4: {false, true}, 5: {false, false}, 6: {true, false}, 7: {true, true}, 8: {false, true}}
			o := s.orientation()
			if got, want := [2]bool{x > 0, y > 0}, corners[o]; got != want || (width == h) != (o >= 5) {
				t.Errorf("irot %d, imir %q: %d; the first corner is at %v of %d × %d", quarters, mirror, o, got, width, height)
			}
		}
	}
	for colours, other := range map[string]bool{
		"nclx\x00\x01\x00\x0d\x00\x06\x80": false, "nclx\x00\x02\x00\x02\x00\x02\x80": false,
		"nclx\x00\x09\x00\x10\x00\x09\x80": true, "nclx\x00\x0c\x00\x0d\x00\x06\x80": true, "nclx\x00\x01\x00\x12\x00\x06\x80": true, "nclx": false,
	} {
		var s avifShown
		if s.property("colr", []byte(colours)); s.otherColours != other {
			t.Errorf("%q: other colours %t", colours, s.otherColours)
		}
	}
}
