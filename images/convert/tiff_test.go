package convert

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"math"
	"math/bits"
	"testing"

	"millrace/images/header"
	"millrace/images/picture"
)

// kindOfTIFF is one way to store an image.
type kindOfTIFF struct {
	order       binary.AppendByteOrder
	photometric int // -1: not said
	samples     int // a pixel
	extra       int // what the last of them is, -1: a colour
	bits        int // a sample
	format      int // 1: whole numbers, 2: signed, 3: floating point
	planes      bool
	tiled       bool
	compression int // oldLZW is 5, too
	predictor   int
	lowestFirst bool
	orientation int
}

const (
	oldLZW           = -tiffLZW
	tiffW, tiffH     = 21, 19
	tiffTile, strips = 16, 8 // a tile's side, a strip's rows
)

// sample is what a pixel has in a channel, from 0 to most. Red, green and blue
// never have more than alpha, which is the fourth.
func (k kindOfTIFF) sample(x, y, channel, most int) int {
	v := (x*(3+channel) + y*(7-channel) + 20*channel) % 61 * most / 122
	if channel == k.samples-1 && k.extra >= 0 {
		v = most/2 + v
	}
	return v
}

// pixel is the bits of a sample, above and left of the image's edge too.
func (k kindOfTIFF) pixel(x, y, channel int) uint64 {
	x, y = min(x, tiffW-1), min(y, tiffH-1)
	switch k.format {
	case 3:
		v := float64(k.sample(x, y, channel, 255)) / 255
		if k.bits == 64 {
			return math.Float64bits(v)
		}
		return uint64(math.Float32bits(float32(v)))
	default:
		return uint64(k.sample(x, y, channel, 1<<k.bits-1))
	}
}

// part is the bytes of a strip or tile before compression.
func (k kindOfTIFF) part(left, top, width, height int, channels []int) []byte {
	var out []byte
	for y := top; y < top+height; y++ {
		var row []byte
		var acc, n uint64 // bits that do not fill a byte yet
		for x := left; x < left+width; x++ {
			for _, c := range channels {
				v := k.pixel(x, y, c)
				if k.predictor == tiffDifferences && x > left {
					v -= k.pixel(x-1, y, c)
				}
				switch k.bits {
				case 8:
					row = append(row, byte(v))
				case 16:
					row = k.order.AppendUint16(row, uint16(v))
				case 32:
					row = k.order.AppendUint32(row, uint32(v))
				case 64:
					row = k.order.AppendUint64(row, v)
				default:
					acc, n = acc<<k.bits|v, n+uint64(k.bits)
					if n >= 8 {
						row, n = append(row, byte(acc>>(n-8))), n-8
					}
				}
			}
		}
		if n > 0 {
			row = append(row, byte(acc<<(8-n)))
		}
		out = append(out, row...)
	}
	return out
}

// packed compresses a part.
func (k kindOfTIFF) packed(raw []byte) []byte {
	var b bytes.Buffer
	switch k.compression {
	case tiffUncompressed:
		b.Write(raw)
	case tiffPackBits:
		for len(raw) > 0 {
			n := min(len(raw), 128)
			b.WriteByte(byte(n - 1))
			b.Write(raw[:n])
			raw = raw[n:]
		}
	case tiffDeflate, tiffOldDeflate:
		// One stored block: RFC 1951, 3.2.4, in RFC 1950.
		b.WriteString("\x78\x01\x01")
		b.Write(binary.LittleEndian.AppendUint16(nil, uint16(len(raw))))
		b.Write(binary.LittleEndian.AppendUint16(nil, ^uint16(len(raw))))
		b.Write(raw)
		b.Write(binary.BigEndian.AppendUint32(nil, adler32.Checksum(raw)))
	case oldLZW:
		b.WriteString("\x00\x01")
		b.Write(raw) // nobody will look at it
	case tiffLZW: // codes of 9 bits all the way, as the table is cleared in time
		var acc, n uint32
		put := func(code uint32) {
			acc, n = acc<<9|code, n+9
			for ; n >= 8; n -= 8 {
				b.WriteByte(byte(acc >> (n - 8)))
			}
		}
		for i, v := range raw {
			if i%200 == 0 {
				put(256)
			}
			put(uint32(v))
		}
		put(257)
		if n > 0 {
			b.WriteByte(byte(acc << (8 - n)))
		}
	default:
		b.Write(raw) // nobody will look at it
	}
	out := b.Bytes()
	if k.lowestFirst {
		for i, v := range out {
			out[i] = bits.Reverse8(v)
		}
	}
	return out
}

// paint is a channel of a colour in the palette, of eight bits.
func paint(i, channel int) int { return i * (7 + 2*channel) % 256 }

func (k kindOfTIFF) palette() []int {
	var all []int
	for channel := range 3 {
		for i := range 1 << min(k.bits, 8) {
			all = append(all, 257*paint(i, channel))
		}
	}
	return all
}

// file writes the TIFF by the means of the decoder, which needs one to begin with.
func (k kindOfTIFF) file() []byte {
	out := []byte("\x00\x00\x00\x00\x00\x00\x00\x00")
	var offsets, counts []int
	add := func(channels ...int) {
		width, height := tiffW, strips
		if k.tiled {
			width, height = tiffTile, tiffTile
		}
		for y := 0; y < tiffH; y += height {
			rows := height
			if !k.tiled {
				rows = min(rows, tiffH-y)
			}
			for x := 0; x < tiffW; x += width {
				part := k.packed(k.part(x, y, width, rows, channels))
				offsets, counts = append(offsets, len(out)), append(counts, len(part))
				out = append(out, part...)
			}
		}
	}
	all := []int{0, 1, 2, 3, 4}[:k.samples]
	if k.planes {
		for _, c := range all {
			add(c)
		}
	} else {
		add(all...)
	}
	depths, formats := make([]int, k.samples), make([]int, k.samples)
	for i := range k.samples {
		depths[i], formats[i] = k.bits, k.format
	}
	one := func(tag, v int) tiffField { return tiffField{tag, []int{v}} }
	fields := []tiffField{
		one(256, tiffW), one(257, tiffH),
		{258, depths},
		one(259, max(k.compression, -k.compression)),
		one(274, k.orientation), one(277, k.samples), one(317, k.predictor),
		{339, formats},
	}
	if k.photometric >= 0 {
		fields = append(fields, one(262, k.photometric))
	}
	if k.photometric == tiffPalette {
		fields = append(fields, tiffField{320, k.palette()})
	}
	if k.lowestFirst {
		fields = append(fields, one(266, 2))
	}
	if k.planes {
		fields = append(fields, one(284, 2))
	}
	if k.extra >= 0 {
		fields = append(fields, one(338, k.extra))
	}
	if k.tiled {
		fields = append(fields, one(322, tiffTile), one(323, tiffTile), tiffField{324, offsets}, tiffField{325, counts})
	} else {
		fields = append(fields, one(278, strips), tiffField{273, offsets}, tiffField{279, counts})
	}
	return appendDirectory(append(out, make([]byte, 1000)...), k.order, fields) // large enough to be worth it
}

// colour is what a pixel is to be shown as, in NRGBA.
func (k kindOfTIFF) colour(x, y int) [4]int {
	most := 1<<k.bits - 1
	channel := func(c int) float64 { return float64(k.sample(x, y, c, most)) / float64(most) }
	to8 := func(v float64) int { return int(math.Round(v * 255)) }
	switch k.photometric {
	case tiffWhiteIsZero, tiffBlackIsZero:
		v := to8(channel(0))
		if k.photometric == tiffWhiteIsZero {
			v = to8(1 - channel(0))
		}
		return [4]int{v, v, v, 255}
	case tiffPalette:
		i := k.sample(x, y, 0, most)
		return [4]int{paint(i, 0), paint(i, 1), paint(i, 2), 255}
	}
	out := [4]int{to8(channel(0)), to8(channel(1)), to8(channel(2)), 255}
	switch a := channel(3); k.extra {
	case tiffPremultiplied:
		out = [4]int{to8(channel(0) / a), to8(channel(1) / a), to8(channel(2) / a), to8(a)}
	case tiffUnmultiplied:
		out[3] = to8(a)
	}
	return out
}

// known reports whether a kind has to be converted.
func (k kindOfTIFF) known() bool {
	colours := k.bits == 8 || k.bits == 16
	switch k.photometric {
	case tiffWhiteIsZero, tiffBlackIsZero:
		colours = k.samples == 1 && (colours || k.bits == 1)
	case tiffRGB:
		colours = colours && (k.samples == 3 || k.samples == 4 && k.extra > 0)
	case tiffPalette:
		colours = k.bits == 8 || k.bits == 1
	default:
		colours = false
	}
	squeezed := k.compression == tiffLZW || k.compression == tiffDeflate || k.compression == tiffOldDeflate
	return colours && k.format == 1 &&
		(squeezed || k.compression == tiffUncompressed || k.compression == tiffPackBits) &&
		(k.predictor == tiffNotPredicted || k.predictor == tiffDifferences && squeezed && k.bits >= 8)
}

// kindsOfTIFF goes through the matrix.
func kindsOfTIFF(yield func(kindOfTIFF)) {
	colours := []kindOfTIFF{
		{photometric: -1, samples: 1, extra: -1},
		{photometric: tiffWhiteIsZero, samples: 1, extra: -1},
		{photometric: tiffBlackIsZero, samples: 1, extra: -1},
		{photometric: tiffBlackIsZero, samples: 2, extra: tiffUnmultiplied},
		{photometric: tiffRGB, samples: 3, extra: -1},
		{photometric: tiffRGB, samples: 4, extra: 0},
		{photometric: tiffRGB, samples: 4, extra: tiffPremultiplied},
		{photometric: tiffRGB, samples: 4, extra: tiffUnmultiplied},
		{photometric: tiffRGB, samples: 5, extra: tiffUnmultiplied},
		{photometric: tiffPalette, samples: 1, extra: -1},
		{photometric: 5, samples: 4, extra: -1}, // CMYK
		{photometric: 6, samples: 3, extra: -1}, // YCbCr
		{photometric: 8, samples: 3, extra: -1}, // Lab
	}
	samples := []kindOfTIFF{
		{bits: 1, format: 1},
		{bits: 2, format: 1},
		{bits: 4, format: 1},
		{bits: 8, format: 1},
		{bits: 16, format: 1},
		{bits: 32, format: 1},
		{bits: 16, format: 2},
		{bits: 32, format: 3},
		{bits: 64, format: 3},
	}
	codings := []int{tiffUncompressed, 2, tiffLZW, oldLZW, 7, tiffDeflate, tiffOldDeflate, tiffPackBits, 50000}
	both := []bool{false, true}
	n := 0
	for _, c := range colours {
		for _, s := range samples {
			for _, k := range codings {
				for _, predictor := range []int{1, 2, 3} {
					for i := range 16 {
						c.order = binary.LittleEndian
						if i&8 != 0 {
							c.order = binary.BigEndian
						}
						c.bits, c.format, c.compression, c.predictor, c.orientation = s.bits, s.format, k, predictor, 1
						c.planes, c.tiled, c.lowestFirst = both[i&1], both[i>>1&1], both[i>>2&1]
						// Of a kind that is refused anyway, one of sixteen is enough.
						if n++; c.known() || i == n/16%16 {
							yield(c)
						}
					}
				}
			}
		}
	}
}

// TestTIFF: a TIFF has the pixels that were put in, or is not converted.
// libtiff 4.5 and tifffile agree with what is expected here.
func TestTIFF(t *testing.T) {
	converted, refused := 0, 0
	kindsOfTIFF(func(k kindOfTIFF) {
		p, err := decodeKind(k.file())
		switch {
		case err == nil && !k.known():
			t.Errorf("%+v is converted", k)
		case k.known():
			converted++
			if err == nil {
				err = k.compare(p)
			}
			if err != nil {
				t.Errorf("%+v: %v", k, err)
			}
		default:
			refused++
			if !errors.Is(err, ErrUnsupported) {
				t.Errorf("%+v: %v", k, err)
			}
		}
		if t.Failed() && converted+refused > 2000 {
			t.Fatal("and so on")
		}
	})
	if converted < 1000 || refused < 500 {
		t.Errorf("%d converted, %d refused: that is not the matrix", converted, refused)
	}
}

// decodeKind decodes a file and turns it upright.
func decodeKind(file []byte) (*picture.Picture, error) {
	info, err := header.Read(file)
	if err != nil {
		return nil, err
	}
	p, err := (&job{source: file, info: info}).decode(plan{})
	if err != nil {
		return nil, err
	}
	return p.Orient(info.Orientation).NRGBA(), nil
}

// compare holds an image against what was stored with an orientation. What
// rounding twice does is allowed.
func (k kindOfTIFF) compare(p *picture.Picture) error {
	for y := range tiffH {
		for x := range tiffW {
			px, py := whereUpright(k.orientation, x, y, tiffW, tiffH)
			got := p.Pix[py*p.Stride+4*px:][:4]
			for i, want := range k.colour(x, y) {
				if int(got[i]) < want-1 || int(got[i]) > want+1 {
					return fmt.Errorf("%d, %d has %d instead of %v", x, y, got, k.colour(x, y))
				}
			}
		}
	}
	return nil
}

// Every orientation, of files that go each of the ways through the decoder.
func TestTIFFOrientation(t *testing.T) {
	for orientation := 1; orientation <= 8; orientation++ {
		for i := range 4 {
			k := kindOfTIFF{
				order: binary.BigEndian, photometric: tiffRGB, samples: 3, extra: -1, bits: 16, format: 1, tiled: true,
				compression: tiffLZW, predictor: tiffDifferences, planes: i&1 == 1, lowestFirst: i&2 == 2, orientation: orientation,
			}
			p, err := decodeKind(k.file())
			if err == nil {
				err = k.compare(p)
			}
			if err != nil {
				t.Errorf("orientation %d, %+v: %v", orientation, k, err)
			}
		}
	}
}

// Files that would cost much, or that say what cannot be.
func TestTIFFRefused(t *testing.T) {
	whole := kindOfTIFF{
		order: binary.LittleEndian, photometric: tiffRGB, samples: 3, extra: -1, bits: 8, format: 1, orientation: 1,
		compression: tiffUncompressed, predictor: 1, planes: true,
	}
	file := whole.file()
	for n := range len(file) - 4 { // the last four say that no other image follows
		if _, err := decodeTIFF(file[:n]); err == nil {
			t.Fatalf("%d bytes of %d are a picture", n, len(file))
		}
	}
	// Every strip of a plane is all of the file.
	greedy := whole
	greedy.lowestFirst = true
	all := greedy.file()
	l, err := header.ReadTIFF(all)
	if err != nil {
		t.Fatal(err)
	}
	counts := make([]int, 3*l.Down())
	for i := range counts {
		counts[i] = len(all)
	}
	all = appendDirectory(all, l.Order, []tiffField{
		{256, []int{tiffW}},
		{257, []int{tiffH}},
		{258, []int{8, 8, 8}},
		{262, []int{2}},
		{266, []int{2}},
		{277, []int{3}},
		{273, make([]int, len(counts))},
		{278, []int{strips}},
		{279, counts},
		{284, []int{2}},
	})
	if _, err := decodeTIFF(all); !errors.Is(err, header.ErrBroken) {
		t.Errorf("strips over each other: %v", err)
	}
	for _, name := range []string{"II+\x00\x08\x00\x00\x00", "MM\x00+\x00\x08\x00\x00"} {
		_, err := decodeKind(append([]byte(name), make([]byte, 500)...))
		if !errors.Is(err, header.ErrUnsupported) {
			t.Errorf("BigTIFF: %v", err)
		}
	}
	for _, options := range []int{1, 2, 4} { // in two dimensions, uncompressed parts, filled up
		l := header.TIFFLayout{
			Samples: 1, Bits: []int{1}, Planar: 1, FillOrder: 1, Predictor: 1, Compression: tiffFax3, T4Options: options, Photometric: 0,
		}
		if err := readable(&l); !errors.Is(err, ErrUnsupported) {
			t.Errorf("T.4 options %d: %v", options, err)
		}
	}
}
