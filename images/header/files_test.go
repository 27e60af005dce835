package header

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"testing"
)

// What the tests read is made here, block by block.

func be16(v int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(v)) }
func be32(v int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(v)) }
func le16(v int) []byte { return binary.LittleEndian.AppendUint16(nil, uint16(v)) }
func le24(v int) []byte { return []byte{byte(v), byte(v >> 8), byte(v >> 16)} }
func le32(v int) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(v)) }

func cat(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// testProfile is a profile as far as this package looks at it.
func testProfile(size int) []byte {
	p := make([]byte, size)
	binary.BigEndian.PutUint32(p, uint32(size))
	copy(p[36:], "acsp")
	for i := 132; i < size; i++ {
		p[i] = byte(i * 7)
	}
	return p
}

// testEXIF is a block with an orientation and both texts, big-endian.
func testEXIF(orientation int) []byte {
	field := func(tag, kind, count int, value []byte) []byte {
		return cat(be16(tag), be16(kind), be32(count), value)
	}
	return cat([]byte("MM\x00*"), be32(8), be16(3),
		field(tagOrientation, typeShort, 1, cat(be16(orientation), be16(0))),
		field(tagArtist, typeASCII, 4, []byte("Ann\x00")),
		field(tagCopyright, typeASCII, 12, be32(8+2+36+4)), be32(0),
		[]byte("(c) 2026 An\x00"))
}

func jpegSegment(marker byte, body ...[]byte) []byte {
	all := cat(body...)
	return cat([]byte{0xff, marker}, be16(len(all)+2), all)
}

func jpegSOF(marker byte, width, height, components int) []byte {
	body := cat([]byte{8}, be16(height), be16(width), []byte{byte(components)})
	for c := range components {
		body = append(body, byte(c+1), 0x11, 0)
	}
	return jpegSegment(marker, body)
}

// jpegFile has headers only, up to the first scan.
func jpegFile(segments ...[]byte) []byte {
	return cat([]byte("\xff\xd8"), cat(segments...), jpegSegment(markSOS, make([]byte, 10)))
}

func iccSegment(number, count int, part []byte) []byte {
	return jpegSegment(markAPP2, []byte(iccPrefix), []byte{byte(number), byte(count)}, part)
}

func pngChunk(kind string, body ...[]byte) []byte {
	all := cat([]byte(kind), cat(body...))
	return cat(be32(len(all)-4), all, be32(int(crc32.ChecksumIEEE(all))))
}

func pngHead(width, height int, depth, colour, interlace byte) []byte {
	return cat([]byte(pngMagic), pngChunk("IHDR", be32(width), be32(height), []byte{depth, colour, 0, 0, interlace}))
}

func pngFile(head []byte, chunks ...[]byte) []byte {
	return cat(head, cat(chunks...), pngChunk("IDAT", []byte{0}), pngChunk("IEND"))
}

func deflate(data []byte) []byte { return zlibAt(zlib.BestSpeed, data) }

func zlibAt(level int, data []byte) []byte {
	var b bytes.Buffer
	z, _ := zlib.NewWriterLevel(&b, level)
	z.Write(data)
	z.Close()
	return b.Bytes()
}

func riff(kind string, body ...[]byte) []byte {
	all := cat(body...)
	b := cat([]byte(kind), le32(len(all)), all)
	if len(all)%2 == 1 {
		b = append(b, 0)
	}
	return b
}

func webpFile(chunks ...[]byte) []byte { return riff("RIFF", []byte("WEBP"), cat(chunks...)) }

func vp8(width, height int) []byte {
	return riff("VP8 ", []byte("\x10\x00\x00\x9d\x01\x2a"), le16(width), le16(height), make([]byte, 6))
}

func vp8l(width, height, alpha int) []byte {
	return riff("VP8L", []byte{0x2f}, le32((width-1)|(height-1)<<14|alpha<<28), make([]byte, 6))
}

func vp8x(flags byte, width, height int) []byte {
	return riff("VP8X", []byte{flags, 0, 0, 0}, le24(width-1), le24(height-1))
}

// anmf is a frame of an animation, placed at x, y.
func anmf(x, y, width, height int, chunks ...[]byte) []byte {
	return riff("ANMF", le24(x/2), le24(y/2), le24(width-1), le24(height-1), le24(100), []byte{0}, cat(chunks...))
}

// bmpFile has a header of 40 or more bytes; masks are those of BMPs with alpha.
func bmpFile(size, width, height, bits int) []byte {
	dib := cat(le32(size), le32(width), le32(height), le16(1), le16(bits))
	dib = append(dib, make([]byte, size-len(dib))...)
	if size >= bmpV3 && bits == 32 {
		copy(dib[52:], le32(0xff000000))
	}
	return cat([]byte("BM"), make([]byte, 12), dib)
}

// tiffFile is little-endian, with fields of one SHORT or LONG each.
func tiffFile(width, height int, extra ...[]byte) []byte {
	fields := append([][]byte{tiffField(tagWidth, width), tiffField(tagHeight, height)}, extra...)
	return cat([]byte("II*\x00"), le32(8), le16(len(fields)), cat(fields...), le32(0))
}

func tiffField(tag, value int) []byte { return cat(le16(tag), le16(typeLong), le32(1), le32(value)) }

func box(kind string, body ...[]byte) []byte {
	all := cat(body...)
	return cat(be32(len(all)+8), []byte(kind), all)
}

// avifFile has two items: the primary one's size is the second ispe.
func avifFile(width, height int, properties ...[]byte) []byte {
	own := []byte{2}
	for n := range properties {
		own = append(own, byte(3+n))
	}
	return cat(box("ftyp", []byte("mif1\x00\x00\x00\x00mif1avif")),
		box("meta", be32(0), box("pitm", be32(0), be16(7)), box("iprp",
			box("ipco", box("ispe", be32(0), be32(9), be32(9)), box("ispe", be32(0), be32(width), be32(height)), cat(properties...)),
			box("ipma", be32(0), be32(2), be16(1), []byte{1, 1}, be16(7), []byte{byte(len(own))}, own))),
		box("mdat", []byte("pixels")))
}

// rainbow is a small image with every pixel of its own colour.
func rainbow(width, height int) *image.NRGBA {
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			m.Set(x, y, color.NRGBA{uint8(x * 9), uint8(y * 11), uint8(x * y), uint8(255 - x)})
		}
	}
	return m
}

func gifFile(t testing.TB, frames int, bounds ...image.Rectangle) []byte {
	t.Helper()
	all := &gif.GIF{Config: image.Config{Width: 20, Height: 10}}
	for n := range frames {
		r := image.Rect(0, 0, 20, 10)
		if n < len(bounds) {
			r = bounds[n]
		}
		all.Image = append(all.Image, image.NewPaletted(r, color.Palette{color.Black, color.White}))
		all.Delay = append(all.Delay, 5)
		all.Disposal = append(all.Disposal, gif.DisposalNone)
	}
	var b bytes.Buffer
	if err := gif.EncodeAll(&b, all); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func encoded(t testing.TB, encode func(*bytes.Buffer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := encode(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// seeds is a sound file of every kind, by what is special in it.
func seeds(t testing.TB) map[string][]byte {
	t.Helper()
	p, e := testProfile(300), testEXIF(6)
	exif := jpegSegment(markAPP1, []byte("Exif\x00\x00"), e)
	return map[string][]byte{
		"jpeg":             encoded(t, func(b *bytes.Buffer) error { return jpeg.Encode(b, rainbow(33, 17), nil) }),
		"jpeg, everything": jpegFile(exif, iccSegment(2, 2, p[200:]), jpegSOF(0xc2, 40, 30, 4), iccSegment(1, 2, p[:200])),
		"png":              encoded(t, func(b *bytes.Buffer) error { return png.Encode(b, rainbow(33, 17)) }),
		"png, everything": pngFile(pngHead(40, 30, 8, pngPalette, 1), pngChunk("gAMA", be32(45455)), pngChunk("iCCP", []byte("x\x00\x00"), deflate(p)),
			pngChunk("tRNS", []byte{0}), pngChunk("acTL", be32(3), be32(0)), pngChunk("fcTL", make([]byte, 26)), pngChunk("eXIf", e)),
		"gif":             gifFile(t, 1),
		"gif, animated":   gifFile(t, 3),
		"webp":            webpFile(vp8(40, 30)),
		"webp, lossless":  webpFile(vp8l(40, 30, 1)),
		"webp, extended":  webpFile(vp8x(0x3c, 40, 30), riff("ICCP", p), riff("ALPH", []byte{0, 1, 2}), vp8(40, 30), riff("EXIF", e)),
		"webp, animated":  webpFile(vp8x(0x02, 40, 30), riff("ANIM", make([]byte, 6)), anmf(0, 0, 40, 30, vp8(40, 30)), anmf(2, 4, 8, 8, vp8l(8, 8, 1))),
		"bmp":             bmpFile(bmpInfo, 40, -30, 24),
		"bmp, everything": bmpFile(bmpV5, 40, 30, 32),
		"tiff":            tiffFile(40, 30, tiffField(tagOrientation, 3)),
		"avif": avifFile(40, 30, box("pixi", be32(0), []byte{3, 10, 10, 10}), box("colr", []byte("prof"), p),
			box("auxC", be32(0), []byte("urn:mpeg:mpegB:cicp:systems:auxiliary:alpha\x00"))),
	}
}
