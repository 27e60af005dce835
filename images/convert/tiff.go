package convert

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"io"
	"math/bits"
	"slices"
	"sort"

	"golang.org/x/image/tiff"

	"millrace/images/header"
)

// Values of TIFF fields: TIFF 6.0, sections 8 to 11, 14 and 18, and Adobe's
// supplements of 1995 and 2002.
const (
	tiffUncompressed = 1
	tiffFax3         = 3
	tiffFax4         = 4
	tiffLZW          = 5
	tiffDeflate      = 8
	tiffPackBits     = 32773
	tiffOldDeflate   = 32946

	tiffWhiteIsZero = 0
	tiffBlackIsZero = 1
	tiffRGB         = 2
	tiffPalette     = 3

	tiffTogether, tiffPlanes                = 1, 2 // PlanarConfiguration
	tiffNotPredicted, tiffDifferences       = 1, 2 // Predictor
	tiffHighestFirst, tiffLowestFirst       = 1, 2 // FillOrder
	tiffPremultiplied, tiffUnmultiplied     = 1, 2 // ExtraSamples
	tiffWhole                               = 1    // SampleFormat: unsigned
	tiffLongestTile, tiffShortestTile       = 1024, 8
	tiffFilledUp                        int = 16 // how far a tile may reach over the image's edge
)

// A TIFF may be stored in thousands of ways, of which golang.org/x/image/tiff
// decodes the usual ones, and takes some of the others for those. So what it is
// given is what it is known to decode as libtiff does. What it does not know but
// is easily made of what it does (samples in planes, bits in the other order)
// is written anew for it; everything else is ErrUnsupported.

// configTIFF is tiff.DecodeConfig for what decodeTIFF decodes.
func configTIFF(file []byte) (image.Config, error) {
	l, err := header.ReadTIFF(file)
	if err == nil {
		err = readable(&l)
	}
	return image.Config{Width: l.Width, Height: l.Height}, err
}

// decodeTIFF decodes the first image of a TIFF.
func decodeTIFF(file []byte) (image.Image, error) {
	l, err := header.ReadTIFF(file)
	if err == nil {
		err = readable(&l)
	}
	if err != nil {
		return nil, err
	}
	fax := l.Compression == tiffFax3 || l.Compression == tiffFax4
	if l.Planar == tiffPlanes && l.Samples > 1 {
		return decodePlanes(&l)
	}
	if l.FillOrder == tiffLowestFirst && !fax { // of faxes the decoder knows it
		if file, err = rewrite(&l, 0, l.Across()*l.Down()); err != nil {
			return nil, err
		}
	}
	m, err := tiff.Decode(bytes.NewReader(file))
	if g, ok := m.(*image.Gray); ok && fax && l.Photometric == tiffBlackIsZero {
		// What T.4 and T.6 call black has samples of 1: "the image should
		// display and print reversed" (TIFF 6.0, PhotometricInterpretation).
		for i, v := range g.Pix {
			g.Pix[i] = 255 - v
		}
	}
	return m, err
}

// readable reports whether a layout is one that is decoded right.
func readable(l *header.TIFFLayout) error {
	depth := l.Bits[0]
	switch {
	case len(l.Bits) != l.Samples || slices.ContainsFunc(l.Bits, func(b int) bool { return b != depth }):
		return unreadable("%d samples of %v bits", l.Samples, l.Bits)
	case slices.ContainsFunc(l.Formats, func(f int) bool { return f != tiffWhole }):
		return unreadable("samples that are not whole numbers: formats %v", l.Formats)
	case l.Planar != tiffTogether && l.Planar != tiffPlanes:
		return unreadable("planar configuration %d", l.Planar)
	case l.FillOrder != tiffHighestFirst && l.FillOrder != tiffLowestFirst:
		return unreadable("fill order %d", l.FillOrder)
	case l.Tiled && min(l.Chunk.Width, l.Chunk.Height) < tiffShortestTile,
		l.Tiled && max(l.Chunk.Width, l.Chunk.Height) > tiffLongestTile &&
			(l.Chunk.Width > l.Width+tiffFilledUp || l.Chunk.Height > l.Height+tiffFilledUp):
		return unreadable("tiles of %d × %d pixels in a picture of %d × %d", l.Chunk.Width, l.Chunk.Height, l.Width, l.Height)
	}
	if err := readableColours(l, depth); err != nil {
		return err
	}
	return readableCompression(l, depth)
}

func readableColours(l *header.TIFFLayout, depth int) error {
	ok := false
	switch l.Photometric {
	case tiffWhiteIsZero, tiffBlackIsZero:
		ok = l.Samples == 1 && (depth == 1 || depth == 8 || depth == 16)
	case tiffRGB:
		alpha := l.Samples == 4 && len(l.Extra) == 1 && (l.Extra[0] == tiffPremultiplied || l.Extra[0] == tiffUnmultiplied)
		ok = (l.Samples == 3 || alpha) && (depth == 8 || depth == 16)
	case tiffPalette:
		ok = l.Samples == 1 && (depth == 1 || depth == 8) && len(l.ColorMap) == 3<<depth
	}
	if !ok {
		return unreadable("photometric interpretation %d with %d samples of %d bits", l.Photometric, l.Samples, depth)
	}
	return nil
}

func readableCompression(l *header.TIFFLayout, depth int) error {
	predictable := false
	switch l.Compression {
	case tiffUncompressed, tiffPackBits:
	case tiffLZW:
		last := byte(1) // bit of a byte
		if l.FillOrder == tiffLowestFirst {
			last = 1 << 7
		}
		if part, _ := l.Part(0); len(part) > 1 && part[0] == 0 && part[1]&last != 0 {
			// The code that begins all data, 256 of 9 bits, has its lowest bits first.
			return unreadable("LZW as it was before TIFF 6.0")
		}
		predictable = true
	case tiffDeflate, tiffOldDeflate:
		predictable = true
	case tiffFax3, tiffFax4:
		if depth != 1 || l.Photometric > tiffBlackIsZero {
			return unreadable("a fax with %d bits a sample", depth)
		}
		if l.Compression == tiffFax3 && l.T4Options != 0 {
			return unreadable("a fax with T.4 options %#x", l.T4Options)
		}
	default:
		return unreadable("compression %d", l.Compression)
	}
	switch {
	case l.Predictor == tiffNotPredicted, l.Predictor == tiffDifferences && predictable && depth >= 8:
		return nil
	}
	return unreadable("predictor %d with compression %d of %d bits", l.Predictor, l.Compression, depth)
}

func unreadable(format string, args ...any) error {
	return fmt.Errorf("%w: TIFF with %s", ErrUnsupported, fmt.Sprintf(format, args...))
}

// decodePlanes decodes each plane as a gray image and puts them together.
func decodePlanes(l *header.TIFFLayout) (image.Image, error) {
	n := l.Across() * l.Down()
	var (
		m    image.Image
		to   []byte
		wide = l.Bits[0] / 8 // bytes a sample
		rect = image.Rect(0, 0, l.Width, l.Height)
	)
	for plane := range l.Samples {
		file, err := rewrite(l, plane*n, n)
		if err != nil {
			return nil, err
		}
		gray, err := tiff.Decode(bytes.NewReader(file))
		if err != nil {
			return nil, err
		}
		var from []byte
		switch g := gray.(type) {
		case *image.Gray:
			from = g.Pix
		case *image.Gray16:
			from = g.Pix
		}
		if len(from) != l.Width*l.Height*wide {
			return nil, fmt.Errorf("%w: a plane is a %T with %d bytes", header.ErrBroken, gray, len(from))
		}
		if m == nil {
			m, to = together(l, rect)
		}
		for i := range l.Width * l.Height {
			copy(to[(4*i+plane)*wide:], from[i*wide:(i+1)*wide])
		}
	}
	return m, nil
}

// together makes an opaque image of RGB, and its bytes.
func together(l *header.TIFFLayout, rect image.Rectangle) (m image.Image, pix []byte) {
	premultiplied := len(l.Extra) == 0 || l.Extra[0] == tiffPremultiplied
	switch {
	case l.Bits[0] == 8 && premultiplied:
		p := image.NewRGBA(rect)
		m, pix = p, p.Pix
	case l.Bits[0] == 8:
		p := image.NewNRGBA(rect)
		m, pix = p, p.Pix
	case premultiplied:
		p := image.NewRGBA64(rect)
		m, pix = p, p.Pix
	default:
		p := image.NewNRGBA64(rect)
		m, pix = p, p.Pix
	}
	if l.Samples == 3 {
		for i := range pix {
			pix[i] = 255
		}
	}
	return m, pix
}

// errParts is what a TIFF is refused with that would grow by rewriting it.
var errParts = errors.New("its strips or tiles are not all there, or lie over each other")

// rewrite is a TIFF of n of another one's parts: all of them, or those of a
// plane, which are a gray image. Their bits are in the usual order.
func rewrite(l *header.TIFFLayout, first, n int) ([]byte, error) {
	size := 0
	for i := range n {
		part, ok := l.Part(first + i)
		if size += len(part); !ok || size > l.Size() {
			return nil, fmt.Errorf("%w: %w", header.ErrBroken, errParts)
		}
	}
	out := make([]byte, 8, 8+size+1<<10)
	offsets, counts := make([]int, n), make([]int, n)
	for i := range n {
		part, _ := l.Part(first + i)
		offsets[i], counts[i] = len(out), len(part)
		out = append(out, part...)
	}
	if l.FillOrder == tiffLowestFirst {
		for i, b := range out[8:] {
			out[8+i] = bits.Reverse8(b)
		}
	}
	return writeDirectory(out, l, offsets, counts), nil
}

// writeDirectory completes a TIFF that has parts and room for its first bytes.
func writeDirectory(out []byte, l *header.TIFFLayout, offsets, counts []int) []byte {
	photometric, samples, extra := l.Photometric, l.Bits, l.Extra
	if l.Planar == tiffPlanes && l.Samples > 1 {
		photometric, samples, extra = tiffBlackIsZero, l.Bits[:1], nil
	}
	offsetsTag, countsTag := 273, 279
	if l.Tiled {
		offsetsTag, countsTag = 324, 325
	}
	fields := []tiffField{
		{256, []int{l.Width}},
		{257, []int{l.Height}},
		{258, samples},
		{259, []int{l.Compression}},
		{262, []int{photometric}},
		{offsetsTag, offsets},
		{277, []int{len(samples)}},
		{countsTag, counts},
		{317, []int{l.Predictor}},
		{320, l.ColorMap},
		{338, extra},
	}
	if l.Tiled {
		fields = append(fields, tiffField{322, []int{l.Chunk.Width}}, tiffField{323, []int{l.Chunk.Height}})
	} else {
		fields = append(fields, tiffField{278, []int{l.Chunk.Height}})
	}
	return appendDirectory(out, l.Order, fields)
}

// tiffField is a field of whole numbers.
type tiffField struct {
	tag    int
	values []int
}

// appendDirectory completes a TIFF whose first eight bytes are free.
func appendDirectory(out []byte, order binary.AppendByteOrder, fields []tiffField) []byte {
	const short, long = 3, 4
	fields = slices.DeleteFunc(fields, func(f tiffField) bool { return len(f.values) == 0 })
	sort.Slice(fields, func(i, j int) bool { return fields[i].tag < fields[j].tag })
	var directory []byte
	for _, f := range fields {
		kind := long
		if f.tag == 258 || f.tag == 320 { // the decoder reads 16 bits of them
			kind = short
		}
		var values []byte
		for _, v := range f.values {
			if kind == short {
				values = order.AppendUint16(values, uint16(v))
			} else {
				values = order.AppendUint32(values, uint32(v))
			}
		}
		directory = order.AppendUint16(directory, uint16(f.tag))
		directory = order.AppendUint16(directory, uint16(kind))
		directory = order.AppendUint32(directory, uint32(len(f.values)))
		if len(values) > 4 {
			directory = order.AppendUint32(directory, uint32(len(out)))
			out = append(out, values...)
		} else {
			directory = append(directory, append(values, 0, 0, 0)[:4]...)
		}
	}
	magic := "II*\x00"
	if order == binary.BigEndian {
		magic = "MM\x00*"
	}
	copy(out, order.AppendUint32([]byte(magic), uint32(len(out))))
	out = order.AppendUint16(out, uint16(len(fields)))
	return order.AppendUint32(append(out, directory...), 0)
}

// from makes a decoder of files of one that reads.
func from[T any](decode func(io.Reader) (T, error)) func([]byte) (T, error) {
	return func(file []byte) (T, error) { return decode(bytes.NewReader(file)) }
}
