package header

import (
	"bytes"
	"encoding/binary"
	"errors"
	"image"
	_ "image/gif"
	_ "image/jpeg"
	_ "image/png"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRead reads a sound file of every kind and holds all that was found
// against what was put in.
func TestRead(t *testing.T) {
	files := seeds(t)
	p := testProfile(300)
	const copyright, artist = "(c) 2026 An", "Ann"
	for name, want := range map[string]Info{
		"jpeg":             {Format: JPEG, Width: 33, Height: 17, Depth: 8, Components: 3},
		"jpeg, everything": {Format: JPEG, Width: 40, Height: 30, Depth: 8, Components: 4, Progressive: true, Orientation: 6, ICC: p, Copyright: copyright, Artist: artist},
		"png":              {Format: PNG, Width: 33, Height: 17, Depth: 8, Alpha: true, Lossless: true},
		"png, everything": {
			Format: PNG, Width: 40, Height: 30, Depth: 8, Alpha: true, Lossless: true, Palette: true, Progressive: true,
			Frames: 3, Orientation: 6, ICC: p, Copyright: copyright, Artist: artist,
		},
		"gif":             {Format: GIF, Width: 20, Height: 10, Depth: 8, Lossless: true, Palette: true},
		"gif, animated":   {Format: GIF, Width: 20, Height: 10, Depth: 8, Lossless: true, Palette: true, Frames: 3},
		"webp":            {Format: WebP, Width: 40, Height: 30, Depth: 8},
		"webp, lossless":  {Format: WebP, Width: 40, Height: 30, Depth: 8, Lossless: true, Alpha: true},
		"webp, extended":  {Format: WebP, Width: 40, Height: 30, Depth: 8, Alpha: true, ICC: p, Copyright: copyright, Artist: artist},
		"webp, animated":  {Format: WebP, Width: 40, Height: 30, Depth: 8, Alpha: true, Frames: 2},
		"bmp":             {Format: BMP, Width: 40, Height: 30, Depth: 8, Lossless: true},
		"bmp, everything": {Format: BMP, Width: 40, Height: 30, Depth: 8, Lossless: true, Alpha: true},
		"tiff":            {Format: TIFF, Width: 40, Height: 30, Depth: 1, Lossless: true, Orientation: 3},
		"avif":            {Format: AVIF, Width: 40, Height: 30, Depth: 10, Alpha: true, ICC: p},
	} {
		t.Run(name, func(t *testing.T) {
			want.Frames = max(want.Frames, 1)
			want.Orientation = max(want.Orientation, 1)
			want.ProfileSize = len(want.ICC)
			got, err := Read(files[name])
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			delete(files, name)
		})
	}
	for name := range files {
		t.Errorf("nothing is expected of the seed %q", name)
	}
}

// TestTruncated cuts every file at every place: it is refused or has the size
// that the whole file has.
func TestTruncated(t *testing.T) {
	for name, file := range seeds(t) {
		whole, err := Read(file)
		if err != nil {
			t.Fatal(err)
		}
		for n := range file {
			got, err := Read(file[:n:n])
			switch {
			case errors.Is(err, ErrUnknown), errors.Is(err, ErrBroken):
			case err != nil:
				t.Errorf("%s, %d bytes: %v, want ErrUnknown or ErrBroken", name, n, err)
			case got.Width != whole.Width || got.Height != whole.Height || got.Frames > whole.Frames:
				t.Errorf("%s, %d bytes: %d × %d × %d, want %d × %d", name, n, got.Width, got.Height, got.Frames, whole.Width, whole.Height)
			}
		}
	}
}

// TestRefused has files that must not be taken for images.
func TestRefused(t *testing.T) {
	gifFrame := func(x, y, width, height int) []byte {
		return cat([]byte("GIF89a"), le16(20), le16(10), []byte{0, 0, 0, 0x2c}, le16(x), le16(y), le16(width), le16(height), []byte{0, 2, 0, 0x3b})
	}
	for name, c := range map[string]struct {
		file []byte
		want error
		says string
	}{
		"nothing":              {nil, ErrUnknown, "empty"},
		"text":                 {[]byte("BMW builds cars, and motorcycles too"), ErrUnknown, "42 4d 57"},
		"svg":                  {[]byte("<svg xmlns='http://www.w3.org/2000/svg'/>"), ErrUnknown, ""},
		"heic":                 {box("ftyp", []byte("heic\x00\x00\x00\x00mif1heic")), ErrUnknown, ""},
		"avif as version":      {box("ftyp", []byte("heicavifmif1")), ErrUnknown, ""},
		"wave":                 {riff("RIFF", []byte("WAVE"), make([]byte, 30)), ErrUnknown, ""},
		"big tiff":             {[]byte("II+\x00\x08\x00\x00\x00"), ErrUnsupported, "BigTIFF"},
		"jpeg, no frame":       {jpegFile(), ErrBroken, "frame header"},
		"jpeg, short frame":    {jpegFile(jpegSegment(0xc0, []byte{8, 0, 1})), ErrBroken, "too short"},
		"jpeg, two frames":     {jpegFile(jpegSOF(0xc0, 8, 8, 3), jpegSOF(0xc0, 0xffff, 0xffff, 3)), ErrBroken, "two"},
		"jpeg, two pictures":   {cat([]byte("\xff\xd8"), jpegFile(jpegSOF(0xc0, 8, 8, 3))), ErrBroken, "second picture"},
		"jpeg, no width":       {jpegFile(jpegSOF(0xc0, 0, 8, 3)), ErrBroken, "0 × 8"},
		"jpeg, no height":      {jpegFile(jpegSOF(0xc0, 8, 0, 3)), ErrUnsupported, "DNL"},
		"jpeg, length 1":       {[]byte("\xff\xd8\xff\xe0\x00\x01\xff\xd9"), ErrBroken, ""},
		"png, two headers":     {cat(pngHead(8, 8, 8, 2, 0), pngHead(60_000, 60_000, 8, 2, 0)[8:]), ErrBroken, "two"},
		"png, no header":       {cat([]byte(pngMagic), pngChunk("gAMA", make([]byte, 13))), ErrBroken, "IHDR"},
		"png, no width":        {pngFile(pngHead(0, 5, 8, 2, 0)), ErrBroken, "0 × 5"},
		"png, negative":        {pngFile(pngHead(5, 1<<31, 8, 2, 0)), ErrBroken, ""},
		"png, colour type":     {pngFile(pngHead(5, 5, 8, 5, 0)), ErrBroken, "colour type 5"},
		"png, depth":           {pngFile(pngHead(5, 5, 4, 2, 0)), ErrBroken, "depth of 4"},
		"gif, no frame":        {cat([]byte("GIF89a"), le16(20), le16(10), []byte{0, 0, 0, 0x3b}), ErrBroken, "no frame"},
		"gif, wide frame":      {gifFrame(1, 0, 20, 10), ErrBroken, "20 × 10 pixels at 1, 0"},
		"gif, high frame":      {gifFrame(0, 0, 20, 0xffff), ErrBroken, "does not fit"},
		"webp, nothing":        {webpFile(), ErrBroken, "no chunk"},
		"webp, other chunk":    {webpFile(riff("ABCD")), ErrBroken, "ABCD"},
		"webp, no key frame":   {webpFile(riff("VP8 ", []byte("\x11\x00\x00\x9d\x01\x2a\x08\x00\x08\x00"))), ErrBroken, "key frame"},
		"webp, no size":        {webpFile(vp8(0, 5)), ErrBroken, "0 × 5"},
		"webp, version":        {webpFile(riff("VP8L", []byte("\x2f\x00\x00\x00\xe0"))), ErrBroken, "version 7"},
		"webp, no pixels":      {webpFile(vp8x(0, 8, 8)), ErrBroken, "no pixels"},
		"webp, canvas":         {webpFile(vp8x(0, 1<<24, 1<<24)), ErrBroken, "more than WebP allows"},
		"webp, two sizes":      {webpFile(vp8x(0, 8, 8), vp8(16383, 16383)), ErrBroken, "16383"},
		"webp, frame's sizes":  {webpFile(vp8x(2, 8, 8), anmf(0, 0, 8, 8, vp8(16383, 16383))), ErrBroken, "16383"},
		"webp, frame outside":  {webpFile(vp8x(2, 8, 8), anmf(2, 0, 8, 8, vp8(8, 8))), ErrBroken, "does not fit"},
		"webp, frames unsaid":  {webpFile(vp8x(0, 8, 8), anmf(0, 0, 8, 8, vp8(8, 8))), ErrBroken, "no pixels"},
		"bmp, bits":            {bmpFile(bmpInfo, 8, 8, 7), ErrBroken, "7 bits"},
		"bmp, negative width":  {bmpFile(bmpInfo, -8, 8, 24), ErrBroken, "-8 × 8"},
		"tiff, far directory":  {cat([]byte("MM\x00*"), be32(1<<31-1)), ErrBroken, "directory"},
		"tiff, two sizes":      {tiffFile(8, 8, tiffField(tagWidth, 60_000)), ErrBroken, "two sizes"},
		"tiff, no size":        {cat([]byte("II*\x00"), le32(8), le16(0), le32(0)), ErrBroken, "0 × 0"},
		"tiff, 60,000 fields":  {cat([]byte("II*\x00"), le32(8), le16(60_000), make([]byte, 60_000*12)), ErrBroken, "directory"},
		"avif, no meta":        {cat(box("ftyp", []byte("avif\x00\x00\x00\x00avif")), box("mdat")), ErrBroken, "meta"},
		"avif, no primary":     {cat(box("ftyp", []byte("avif\x00\x00\x00\x00avif")), box("meta", be32(0))), ErrBroken, "items"},
		"avif, no size":        {avifFile(0, 0), ErrBroken, "no size"},
		"avif, box of 4 bytes": {cat(box("ftyp", []byte("avif\x00\x00\x00\x00avif")), be32(4), []byte("meta")), ErrBroken, "meta"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Read(c.file)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %+v, %v, want an error %q with %q", got, err, c.want, c.says)
			}
		})
	}
}

// TestCheck holds bombs and what is just below them against the limits.
func TestCheck(t *testing.T) {
	many := func(n int) []byte {
		frames := bytes.Repeat(anmf(0, 0, 1000, 500, vp8(1000, 500)), n)
		return webpFile(vp8x(2, 1000, 500), frames)
	}
	endless := cat([]byte("GIF89a"), le16(1), le16(1), make([]byte, 3),
		bytes.Repeat(cat([]byte{0x2c}, le16(0), le16(0), le16(1), le16(1), []byte{0, 2, 0}), 3*MaxFrames))
	for name, c := range map[string]struct {
		file   []byte
		limits Limits
		says   []string // nothing: it is within the limits
	}{
		"jpeg of 65,535²":      {jpegFile(jpegSOF(0xc0, 0xffff, 0xffff, 3)), Limits{}, []string{"65535 × 65535 pixels", "4294.837 megapixels", "limit is 50"}},
		"png of 60,000²":       {pngFile(pngHead(60_000, 60_000, 8, 2, 0), pngChunk("IDAT", make([]byte, 3000))), Limits{}, []string{"60000 × 60000", "3600 megapixels", "limit is 50"}},
		"png of 2^31-1":        {pngFile(pngHead(1<<31-1, 1<<31-1, 8, 2, 0)), Limits{}, []string{"2147483647 × 2147483647"}},
		"bmp of 2^31-1":        {bmpFile(bmpInfo, 1<<31-1, -1<<31+1, 24), Limits{}, []string{"2147483647 × 2147483647"}},
		"tiff":                 {tiffFile(1<<32-1, 1<<32-1), Limits{}, []string{"4294967295 × 4294967295"}},
		"avif":                 {avifFile(1<<31-1, 5), Limits{}, []string{"2147483647 × 5"}},
		"the limit":            {jpegFile(jpegSOF(0xc0, 10_000, 5000, 3)), Limits{}, nil},
		"a row above":          {jpegFile(jpegSOF(0xc0, 10_000, 5001, 3)), Limits{}, []string{"50.010", "limit is 50"}},
		"own limit":            {jpegFile(jpegSOF(0xc0, 1000, 501, 3)), Limits{Megapixels: 0.5}, []string{"0.501 megapixels", "limit is 0.500"}},
		"endless gif":          {endless, Limits{}, []string{"10000 frames or more", "limit is 1000"}},
		"400 frames":           {many(400), Limits{}, nil},
		"401 frames":           {many(401), Limits{}, []string{"401 frames of 1000 × 500", "200.500 megapixels", "limit is 200"}},
		"frames":               {many(11), Limits{Frames: 10}, []string{"11 frames", "limit is 10"}},
		"own limit of frames":  {many(11), Limits{Frames: 11, FrameMegapixels: 5.5}, nil},
		"still, large":         {jpegFile(jpegSOF(0xc0, 10_000, 5000, 3)), Limits{FrameMegapixels: 1}, nil},
		"png, claims frames":   {pngFile(pngHead(8, 8, 8, 2, 0), pngChunk("acTL", be32(-1), be32(0))), Limits{}, []string{"10000 frames or more"}},
		"avif, claims samples": {avifFile(8, 8), Limits{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			info, err := Read(c.file)
			if err != nil {
				t.Fatal(err)
			}
			err = info.Check(c.limits)
			if (len(c.says) > 0) != errors.Is(err, ErrTooLarge) {
				t.Fatalf("got %v, want an error with %q", err, c.says)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("got %v, want it to say %q", err, s)
				}
			}
		})
	}
}

// TestAllocation reads files that claim much and holds what is allocated
// against the file's size.
func TestAllocation(t *testing.T) {
	const slack = 256 << 10
	zeros := deflate(make([]byte, maxICC+1<<20))
	for name, c := range map[string]struct {
		file []byte
		most uint64
	}{
		"jpeg":              {jpegFile(jpegSOF(0xc0, 0xffff, 0xffff, 3)), slack},
		"png":               {pngFile(pngHead(60_000, 60_000, 16, 6, 1)), slack},
		"png, 2^32 bytes":   {cat(pngHead(8, 8, 8, 2, 0), be32(-1), []byte("iCCP")), slack},
		"png, icc of zeros": {pngFile(pngHead(8, 8, 8, 2, 0), pngChunk("iCCP", []byte("x\x00\x00"), zeros)), 8 * maxICC},
		"webp":              {cat([]byte("RIFF"), le32(-1), []byte("WEBP"), vp8x(2, 60_000, 60_000), []byte("ICCP"), le32(-1)), slack},
		"tiff":              {tiffFile(1<<32-1, 1<<32-1, cat(le16(tagICC), le16(typeUndefined), le32(-1), le32(8))), slack},
		"tiff, texts": {
			tiffFile(8, 8, bytes.Repeat(cat(le16(tagCopyright), le16(typeASCII), le32(8000), le32(0)), 900), make([]byte, 100)), 8 << 20,
		},
		"gif":  {cat(gifFile(t, 1)[:12], bytes.Repeat([]byte{0x21, 0xff, 0}, 1<<20), gifFile(t, 1)[13:]), slack},
		"avif": {avifFile(1<<31-1, 1<<31-1, bytes.Repeat(box("free"), 200_000)), slack},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		Read(c.file)
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > c.most {
			t.Errorf("%s: %d bytes were allocated for a file of %d, want at most %d", name, got, len(c.file), c.most)
		}
	}
}

// TestStandardLibrary holds sizes against image.DecodeConfig, for the pictures
// that Go's own tests use.
func TestStandardLibrary(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Skip("the go command does not say where GOROOT is:", err)
	}
	root := filepath.Join(strings.TrimSpace(string(out)), "src", "image")
	compared := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.Contains(path, "testdata") {
			return err
		}
		file, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		want, format, errStd := image.DecodeConfig(bytes.NewReader(file))
		got, err := Read(file)
		if errStd != nil {
			return nil
		}
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return nil
		}
		compared++
		if got.Width != want.Width || got.Height != want.Height || string(got.Format) != format {
			t.Errorf("%s: %s of %d × %d, image.DecodeConfig says %s of %d × %d",
				path, got.Format, got.Width, got.Height, format, want.Width, want.Height)
		}
		return nil
	})
	if err != nil {
		t.Skip("the standard library's test pictures are not there:", err)
	}
	if compared < 40 {
		t.Errorf("%d pictures were compared, want 40 or more", compared)
	}
}

// FuzzRead looks for panics and for answers that make no sense.
func FuzzRead(f *testing.F) {
	for _, file := range seeds(f) {
		f.Add(file)
	}
	f.Add(EXIF("(c) An", "Ann"))
	f.Fuzz(func(t *testing.T, file []byte) {
		i, err := Read(file)
		if err != nil {
			if !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrBroken) {
				t.Errorf("%v is neither ErrUnknown nor ErrBroken", err)
			}
			return
		}
		if i.Width <= 0 || i.Height <= 0 || i.Frames < 1 || i.Frames > MaxFrames || i.Orientation < 1 || i.Orientation > 8 {
			t.Errorf("%+v makes no sense", i)
		}
		if i.ICC != nil && (i.BrokenICC || len(i.ICC) > maxICC || int(binary.BigEndian.Uint32(i.ICC)) != len(i.ICC)) {
			t.Errorf("a profile of %d bytes, broken: %v", len(i.ICC), i.BrokenICC)
		}
		if len(i.Copyright) > maxText || len(i.Artist) > maxText {
			t.Errorf("texts of %d and %d bytes", len(i.Copyright), len(i.Artist))
		}
		if err := i.Check(Limits{}); err != nil && !errors.Is(err, ErrTooLarge) {
			t.Errorf("%v is not ErrTooLarge", err)
		}
	})
}
