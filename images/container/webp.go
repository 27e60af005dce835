package container

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Flags of the VP8X chunk: RFC 9649, 2.7.1.
const (
	flagAnimation = 0x02
	flagXMP       = 0x04
	flagEXIF      = 0x08
	flagAlpha     = 0x10
	flagICC       = 0x20
)

const (
	riffHead  = 12 // "RIFF", the size, "WEBP"
	chunkHead = 8  // FourCC and size
	// maxRIFF is the largest size that a RIFF head may hold: RFC 9649, 2.4.
	maxRIFF = math.MaxUint32 - 9
	// maxCanvas is the largest width and height: RFC 9649, 2.7.1.
	maxCanvas = 1 << 24
	// minBitstream is what the shorter of the two headers of coded pixels has.
	minBitstream = 5
)

// chunk is a RIFF chunk: RFC 9649, 2.3.
type chunk struct {
	kind string // FourCC
	body []byte
}

// size is the length with head and padding.
func (c chunk) size() int { return chunkHead + len(c.body) + len(c.body)&1 }

// append writes the chunk.
func (c chunk) append(b []byte) []byte {
	b = append(b, c.kind...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(c.body)))
	b = append(b, c.body...)
	if len(c.body)&1 == 1 {
		b = append(b, 0)
	}
	return b
}

// parseChunks cuts bytes into chunks, which share their memory. A last padding
// byte may be missing, as with some old writers.
func parseChunks(b []byte) ([]chunk, error) {
	var all []chunk
	for len(b) > 0 {
		if len(b) < chunkHead {
			return nil, unsound("%d bytes are left where a chunk should begin", len(b))
		}
		kind, size := string(b[:4]), uint64(binary.LittleEndian.Uint32(b[4:]))
		b = b[chunkHead:]
		if size > uint64(len(b)) {
			return nil, unsound("the chunk %q has %d bytes, and %d are left", kind, size, len(b))
		}
		all = append(all, chunk{kind, b[:size:size]})
		b = b[min(size+size&1, uint64(len(b))):]
	}
	return all, nil
}

// writeRIFF puts chunks into a file.
func writeRIFF(chunks []chunk) ([]byte, error) {
	size := uint64(len("WEBP"))
	for _, c := range chunks {
		size += uint64(c.size())
	}
	if size > maxRIFF {
		return nil, unsound("the result would have %d bytes, more than WebP can say", size)
	}
	b := make([]byte, 0, size+chunkHead)
	b = append(b, "RIFF"...)
	b = binary.LittleEndian.AppendUint32(b, uint32(size))
	b = append(b, "WEBP"...)
	for _, c := range chunks {
		b = c.append(b)
	}
	return b, nil
}

// webpFile is a parsed file: RFC 9649, 2.7. What is nil is not there.
type webpFile struct {
	width, height int
	alpha         bool
	animated      bool
	icc           []byte
	anim          []byte
	pixels        []chunk // ALPH and VP8, or VP8L, or ANMF as often as needed
	exif, xmp     []byte
	unknown       []chunk
}

// parseWebP reads a file of any of the three layouts. Bytes after the end that
// the head announces are left out.
func parseWebP(file []byte) (*webpFile, error) {
	if len(file) < riffHead || string(file[:4]) != "RIFF" || string(file[8:12]) != "WEBP" {
		return nil, unsound("it does not begin as a WebP file")
	}
	size := uint64(binary.LittleEndian.Uint32(file[4:])) + chunkHead
	if size > uint64(len(file)) || size < riffHead {
		return nil, unsound("it should have %d bytes and has %d", size, len(file))
	}
	chunks, err := parseChunks(file[riffHead:size])
	if err != nil {
		return nil, err
	}
	if len(chunks) == 0 {
		return nil, unsound("there is nothing in it")
	}
	w := &webpFile{}
	switch first := chunks[0]; first.kind {
	case "VP8X":
		err = w.extended(first.body, chunks[1:])
	case "VP8 ", "VP8L":
		w.pixels = chunks[:1]
		w.width, w.height, w.alpha, err = readBitstream(first)
	default:
		err = unsound("it begins with the chunk %q", first.kind)
	}
	if err != nil {
		return nil, err
	}
	return w, nil
}

// extended sorts the chunks after VP8X. Of those that may be there once, the
// first counts.
func (w *webpFile) extended(vp8x []byte, chunks []chunk) error {
	if len(vp8x) < 10 {
		return unsound("its VP8X chunk has %d bytes", len(vp8x))
	}
	w.width, w.height = 1+uint24(vp8x[4:]), 1+uint24(vp8x[7:])
	w.alpha = vp8x[0]&flagAlpha != 0
	w.animated = vp8x[0]&flagAnimation != 0
	var still, alph []byte
	var stillKind string
	for _, c := range chunks {
		switch c.kind {
		case "ICCP":
			first(&w.icc, c)
		case "EXIF":
			first(&w.exif, c)
		case "XMP ":
			first(&w.xmp, c)
		case "ANIM":
			first(&w.anim, c)
		case "ANMF":
			if err := w.animationFrame(c); err != nil {
				return err
			}
		case "ALPH":
			if still == nil { // it belongs to what follows
				first(&alph, c)
			}
		case "VP8 ", "VP8L":
			if still == nil {
				still, stillKind = c.body, c.kind
			}
		case "VP8X":
			return unsound("it has two VP8X chunks")
		default:
			w.unknown = append(w.unknown, c)
		}
	}
	if w.animated {
		if len(w.anim) < 6 || len(w.pixels) == 0 {
			return unsound("it is an animation without frames or without an ANIM chunk")
		}
		return nil
	}
	if still == nil {
		return unsound("there are no pixels in it")
	}
	w.anim = nil
	return w.still(chunk{stillKind, still}, alph)
}

// first keeps a chunk's body, if nothing is kept yet.
func first(kept *[]byte, c chunk) {
	if *kept == nil {
		*kept = c.body
	}
}

// still takes the pixels of a file without animation.
func (w *webpFile) still(c chunk, alph []byte) error {
	width, height, alpha, err := readBitstream(c)
	if err != nil {
		return err
	}
	if width != w.width || height != w.height {
		return unsound("its canvas has %d × %d pixels and its picture %d × %d", w.width, w.height, width, height)
	}
	w.pixels = nil
	if alph != nil && c.kind == "VP8 " {
		w.pixels = append(w.pixels, chunk{"ALPH", alph})
		alpha = true
	}
	w.pixels = append(w.pixels, c)
	w.alpha = w.alpha || alpha
	return nil
}

// animationFrame takes a frame of an animation as it is.
func (w *webpFile) animationFrame(c chunk) error {
	if !w.animated {
		return nil // not to be shown, and so dropped
	}
	if len(c.body) < 16 {
		return unsound("a frame has %d bytes", len(c.body))
	}
	x, y := 2*uint24(c.body), 2*uint24(c.body[3:])
	width, height := 1+uint24(c.body[6:]), 1+uint24(c.body[9:])
	if x+width > w.width || y+height > w.height {
		return unsound("a frame of %d × %d pixels at %d, %d is not on the canvas of %d × %d", width, height, x, y, w.width, w.height)
	}
	w.pixels = append(w.pixels, c)
	return nil
}

// simple reports whether the file needs no VP8X.
func (w *webpFile) simple() bool {
	return !w.animated && len(w.pixels) == 1 && w.icc == nil && w.exif == nil && w.xmp == nil && len(w.unknown) == 0
}

// write puts the file together: RFC 9649, 2.7, says in which order.
func (w *webpFile) write() ([]byte, error) {
	if w.simple() {
		return writeRIFF(w.pixels)
	}
	var flags byte
	var chunks []chunk
	set := func(flag byte, kind string, body []byte) {
		if body != nil {
			flags |= flag
			chunks = append(chunks, chunk{kind, body})
		}
	}
	vp8x := make([]byte, 10)
	chunks = append(chunks, chunk{"VP8X", vp8x})
	set(flagICC, "ICCP", w.icc)
	set(flagAnimation, "ANIM", w.anim)
	chunks = append(chunks, w.pixels...)
	set(flagEXIF, "EXIF", w.exif)
	set(flagXMP, "XMP ", w.xmp)
	chunks = append(chunks, w.unknown...)
	if w.alpha {
		flags |= flagAlpha
	}
	vp8x[0] = flags
	putUint24(vp8x[4:], w.width-1)
	putUint24(vp8x[7:], w.height-1)
	return writeRIFF(chunks)
}

// WebP puts metadata into a WebP file, simple or extended, still or animated:
// RFC 9649, 2.5 to 2.7. It returns file itself when there is nothing to add.
func WebP(file []byte, m Metadata) ([]byte, error) {
	if m.empty() {
		return file, nil
	}
	w, err := parseWebP(file)
	if err != nil {
		return nil, fmt.Errorf("putting metadata into a WebP file: %w", err)
	}
	if len(m.ICC) > 0 {
		w.icc = m.ICC
	}
	if len(m.EXIF) > 0 {
		w.exif = m.EXIF
	}
	out, err := w.write()
	if err != nil {
		return nil, fmt.Errorf("putting metadata into a WebP file: %w", err)
	}
	return out, nil
}

// readBitstream reads size and alpha from the header of coded pixels: VP8 (RFC
// 6386, 9.1) or VP8L (RFC 9649, 3.4).
func readBitstream(c chunk) (width, height int, alpha bool, err error) {
	le, b := binary.LittleEndian, c.body
	if c.kind == "VP8L" {
		if len(b) < minBitstream || b[0] != 0x2f || b[4]>>5 != 0 {
			return 0, 0, false, unsound("its VP8L chunk does not begin as one")
		}
		bits := le.Uint32(b[1:])
		return 1 + int(bits&0x3fff), 1 + int(bits>>14&0x3fff), bits>>28&1 == 1, nil
	}
	if len(b) < 10 || b[0]&1 != 0 || string(b[3:6]) != "\x9d\x01\x2a" {
		return 0, 0, false, unsound("its VP8 chunk does not begin with a key frame")
	}
	width, height = int(le.Uint16(b[6:])&0x3fff), int(le.Uint16(b[8:])&0x3fff)
	if width == 0 || height == 0 {
		return 0, 0, false, unsound("its picture has %d × %d pixels", width, height)
	}
	return width, height, false, nil
}

func uint24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }

func putUint24(b []byte, v int) { b[0], b[1], b[2] = byte(v), byte(v>>8), byte(v>>16) }
