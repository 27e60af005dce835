package convert

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"image/gif"
	stdjpeg "image/jpeg"
	"image/png"
	"math"
	"strings"
	"testing"
)

// quadrants is an image of four flat colours: red and green above, blue and
// white below.
func quadrants(w, h int) *image.NRGBA {
	m := image.NewNRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			m.SetNRGBA(x, y, corner(x < w/2, y < h/2))
		}
	}
	return m
}

func corner(left, top bool) color.NRGBA {
	switch {
	case left && top:
		return color.NRGBA{220, 20, 20, 255}
	case top:
		return color.NRGBA{20, 180, 20, 255}
	case left:
		return color.NRGBA{20, 20, 220, 255}
	}
	return color.NRGBA{240, 240, 240, 255}
}

// photograph is an image that no lossless coder likes: soft shapes and noise.
func photograph(w, h int) *image.NRGBA {
	m := image.NewNRGBA(image.Rect(0, 0, w, h))
	seed := uint32(1)
	for y := range h {
		for x := range w {
			seed = seed*1664525 + 1013904223
			n := float64(seed>>28) - 8
			fx, fy := float64(x)/float64(w), float64(y)/float64(h)
			v := func(f float64) uint8 { return uint8(min(max(128+100*math.Sin(f)+n, 0), 255)) }
			m.SetNRGBA(x, y, color.NRGBA{v(7*fx + 3*fy), v(5*fy - 4*fx + 1), v(9 * fx * fy), 255})
		}
	}
	return m
}

func asPNG(t testing.TB, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func asJPEG(t testing.TB, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := stdjpeg.Encode(&b, m, &stdjpeg.Options{Quality: 95}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// animated is a GIF of n frames, shown again loop times.
func animated(t testing.TB, n, loop int) []byte {
	t.Helper()
	g := &gif.GIF{LoopCount: loop}
	palette := color.Palette{color.Black, color.White, color.NRGBA{200, 0, 0, 255}}
	for i := range n {
		m := image.NewPaletted(image.Rect(0, 0, 64, 48), palette)
		for k := range m.Pix {
			m.Pix[k] = byte((k/64/8 + k%64/8 + i) % 3)
		}
		g.Image = append(g.Image, m)
		g.Delay = append(g.Delay, 5+i)
	}
	var b bytes.Buffer
	if err := gif.EncodeAll(&b, g); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// withSegment puts a segment behind a JPEG's start.
func withSegment(file []byte, marker byte, body []byte) []byte {
	out := append([]byte{}, file[:2]...)
	out = append(out, 0xff, marker)
	out = binary.BigEndian.AppendUint16(out, uint16(len(body)+2))
	out = append(out, body...)
	return append(out, file[2:]...)
}

// exif is a block with an orientation, a copyright and a place on the earth.
func exif(orientation int) []byte {
	const holder = "Jane Doe 2026\x00"
	be := binary.BigEndian
	b := []byte("Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x03")
	entry := func(tag, kind uint16, count, value uint32) {
		b = be.AppendUint16(b, tag)
		b = be.AppendUint16(b, kind)
		b = be.AppendUint32(b, count)
		b = be.AppendUint32(b, value)
	}
	const after = 8 + 2 + 3*12 + 4
	entry(0x0112, 3, 1, uint32(orientation)<<16)
	entry(0x8298, 2, uint32(len(holder)), after)
	entry(0x8825, 4, 1, after+uint32(len(holder)))
	b = be.AppendUint32(b, 0)
	b = append(b, holder...)
	b = append(b, 0, 1) // the GPS directory: one latitude
	entry(2, 2, 4, 0x47505321)
	return be.AppendUint32(b, 0)
}

// withProfile puts an ICC profile into a JPEG: ICC.1:2022, B.4.
func withProfile(file, profile []byte) []byte {
	const most = 65_000 // bytes in a segment
	for count, n := (len(profile)+most-1)/most, (len(profile)+most-1)/most; n > 0; n-- {
		part := profile[most*(n-1) : min(most*n, len(profile))]
		file = withSegment(file, 0xe2, append([]byte{'I', 'C', 'C', '_', 'P', 'R', 'O', 'F', 'I', 'L', 'E', 0, byte(n), byte(count)}, part...))
	}
	return file
}

// profile builds an ICC profile of version 2 with the curve value^gamma: of RGB
// with primaries given as XYZ under D50, or of gray without.
func profile(gamma float64, primaries ...[3]float64) []byte {
	be := binary.BigEndian
	fixed := func(b []byte, v float64) []byte { return be.AppendUint32(b, uint32(int32(math.Round(v*65536)))) }
	xyz := func(v [3]float64) []byte {
		b := []byte("XYZ \x00\x00\x00\x00")
		for _, c := range v {
			b = fixed(b, c)
		}
		return b
	}
	curve := append([]byte("curv\x00\x00\x00\x00\x00\x00\x00\x01"), byte(int(gamma*256)>>8), byte(int(gamma*256)), 0, 0)
	name := append([]byte("desc\x00\x00\x00\x00\x00\x00\x00\x05test\x00"), make([]byte, 79)...)
	type tag struct {
		name string
		data []byte
	}
	space := "GRAY"
	tags := []tag{{"desc", name}, {"wtpt", xyz([3]float64{0.9642, 1, 0.8249})}}
	if len(primaries) == 3 {
		space = "RGB "
		for i, c := range "rgb" {
			tags = append(tags, tag{string(c) + "XYZ", xyz(primaries[i])}, tag{string(c) + "TRC", curve})
		}
	} else {
		tags = append(tags, tag{"kTRC", curve})
	}
	table := be.AppendUint32(nil, uint32(len(tags)))
	var data []byte
	at := 128 + 4 + 12*len(tags)
	for _, t := range tags {
		table = append(table, t.name...)
		table = be.AppendUint32(table, uint32(at+len(data)))
		table = be.AppendUint32(table, uint32(len(t.data)))
		data = append(data, t.data...)
		data = append(data, make([]byte, (4-len(data)%4)%4)...)
	}
	head := append([]byte{}, strings.Repeat("\x00", 128)...)
	be.PutUint32(head, uint32(at+len(data)))
	be.PutUint32(head[8:], 0x02400000)
	copy(head[12:], "mntr"+space+"XYZ ")
	copy(head[36:], "acsp")
	be.PutUint32(head[68:], 0xf6d6)
	be.PutUint32(head[72:], 0x10000)
	be.PutUint32(head[76:], 0xd32d)
	return append(append(head, table...), data...)
}

// displayP3 has the primaries of Apple's displays, adapted to D50.
func displayP3() []byte {
	return profile(2.2, [3]float64{0.5151, 0.2412, -0.0011}, [3]float64{0.2920, 0.6922, 0.0419}, [3]float64{0.1571, 0.0666, 0.7841})
}

// cmykJPEG writes a baseline JPEG of four components, Adobe's inverted ones,
// whose blocks of 8 × 8 pixels each have one colour (ITU-T T.81, F.1).
func cmykJPEG(blocksX, blocksY int, at func(x, y int) color.CMYK) []byte {
	b := []byte{0xff, 0xd8}
	segment := func(marker byte, body ...byte) {
		b = append(b, 0xff, marker)
		b = binary.BigEndian.AppendUint16(b, uint16(len(body)+2))
		b = append(b, body...)
	}
	segment(0xee, append([]byte("Adobe"), 0, 100, 0, 0, 0, 0, 0)...)
	segment(0xdb, append([]byte{0}, bytes.Repeat([]byte{8}, 64)...)...) // all steps 8: a DC of 1 is a level
	w, h := 8*blocksX, 8*blocksY
	segment(0xc0, 8, byte(h>>8), byte(h), byte(w>>8), byte(w), 4, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0, 4, 0x11, 0)
	// Nine lengths of DC differences as codes of 4 bits, the end of a block as one of 1.
	segment(0xc4, append([]byte{0x00, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0, 1, 2, 3, 4, 5, 6, 7, 8)...)
	segment(0xc4, append([]byte{0x10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0)...)
	segment(0xda, 4, 1, 0, 2, 0, 3, 0, 4, 0, 0, 63, 0)
	var acc, bits uint32
	put := func(v, n uint32) {
		for n > 0 {
			n--
			acc, bits = acc<<1|v>>n&1, bits+1
			if bits == 8 {
				b = append(b, byte(acc))
				if byte(acc) == 0xff {
					b = append(b, 0)
				}
				acc, bits = 0, 0
			}
		}
	}
	var before [4]int
	for y := range blocksY {
		for x := range blocksX {
			c := at(x, y)
			for i, v := range []uint8{c.C, c.M, c.Y, c.K} {
				level := 255 - int(v) - 128
				d := level - before[i]
				before[i] = level
				size := uint32(0)
				for a := max(d, -d); a > 0; a >>= 1 {
					size++
				}
				put(size, 4)
				if d < 0 {
					d += 1<<size - 1
				}
				put(uint32(d), size)
				put(0, 1)
			}
		}
	}
	for bits != 0 {
		put(1, 1)
	}
	return append(b, 0xff, 0xd9)
}

// chunks splits a WebP file.
func chunks(t testing.TB, file []byte) map[string][][]byte {
	t.Helper()
	if len(file) < 12 || string(file[8:12]) != "WEBP" {
		t.Fatalf("no WebP: % x", file[:min(len(file), 16)])
	}
	all := map[string][][]byte{}
	for rest := file[12:]; len(rest) >= 8; {
		n := int(binary.LittleEndian.Uint32(rest[4:]))
		all[string(rest[:4])] = append(all[string(rest[:4])], rest[8:8+n])
		rest = rest[8+n+n%2:]
	}
	return all
}
