package header

import (
	"encoding/binary"
	"math"
)

// Flags of the VP8X chunk: RFC 9649, 2.7.1.
const (
	webpAnimation = 0x02
	webpAlpha     = 0x10
)

// riffChunk cuts the first chunk off. What is cut off of its body is missing
// there; ok is false when not even its head is whole.
func riffChunk(b []byte) (kind string, body, rest []byte, ok bool) {
	if len(b) < 8 {
		return "", nil, nil, false
	}
	size := uint64(binary.LittleEndian.Uint32(b[4:]))
	kind, body = string(b[:4]), b[8:]
	if size > uint64(len(body)) {
		return kind, body, nil, true
	}
	padded := min(size+size&1, uint64(len(body)))
	return kind, body[:size], body[padded:], true
}

// readWebP reads all three kinds of files: RFC 9649, 2.5 to 2.7.
func readWebP(file []byte) (Info, error) {
	i := Info{Depth: 8}
	announced := uint64(binary.LittleEndian.Uint32(file[4:])) + 8
	cut := announced > uint64(len(file))
	if !cut && announced >= 12 {
		file = file[:announced] // the rest is not part of the image
	}
	kind, body, rest, ok := riffChunk(file[12:])
	switch {
	case !ok:
		return i, broken("there is no chunk in it")
	case kind == "VP8 ", kind == "VP8L":
		b, err := readBitstream(kind, body)
		i.Width, i.Height, i.Alpha, i.Lossless = b.width, b.height, b.alpha, b.lossless
		return i, err
	case kind != "VP8X":
		return i, broken("it begins with the chunk %q", kind)
	case len(body) < 10:
		return i, broken("its VP8X chunk is too short")
	}
	flags := body[0]
	i.Width, i.Height = 1+uint24(body[4:]), 1+uint24(body[7:])
	i.Alpha = flags&webpAlpha != 0
	if float64(i.Width)*float64(i.Height) > math.MaxUint32 {
		return i, broken("a canvas of %d × %d pixels is more than WebP allows", i.Width, i.Height)
	}
	w := webpWalk{info: &i, animated: flags&webpAnimation != 0}
	for len(rest) > 0 && i.Frames < MaxFrames {
		if kind, body, rest, ok = riffChunk(rest); !ok {
			break
		}
		if err := w.chunk(kind, body); err != nil {
			return i, err
		}
	}
	if i.Frames == 0 && !cut {
		return i, broken("there are no pixels in it")
	}
	i.Lossless = i.Frames > 0 && !w.lossy
	return i, nil
}

// webpWalk is the state of a walk over the chunks of an extended file.
type webpWalk struct {
	info      *Info
	animated  bool
	lossy     bool
	icc, exif bool
}

func (w *webpWalk) chunk(kind string, body []byte) error {
	switch kind {
	case "ICCP":
		if !w.icc {
			w.icc = true
			w.info.setICC(body)
		}
	case "EXIF":
		if !w.exif {
			w.exif = true
			w.info.readEXIF(body)
			w.info.Orientation = 0 // which no browser obeys here
		}
	case "ALPH":
		w.info.Alpha = true
	case "VP8 ", "VP8L":
		if !w.animated && w.info.Frames == 0 {
			return w.frame(kind, body, w.info.Width, w.info.Height)
		}
	case "ANMF":
		if w.animated {
			return w.animationFrame(body)
		}
	}
	return nil
}

// animationFrame reads an ANMF chunk: RFC 9649, 2.7.1.3.
func (w *webpWalk) animationFrame(body []byte) error {
	if len(body) < 16 {
		return nil // cut off: not there
	}
	x, y := 2*uint24(body), 2*uint24(body[3:])
	width, height := 1+uint24(body[6:]), 1+uint24(body[9:])
	if x+width > w.info.Width || y+height > w.info.Height {
		return broken("frame %d has %d × %d pixels at %d, %d and does not fit on the canvas of %d × %d",
			w.info.Frames+1, width, height, x, y, w.info.Width, w.info.Height)
	}
	for rest := body[16:]; len(rest) > 0; {
		var (
			kind string
			ok   bool
		)
		if kind, body, rest, ok = riffChunk(rest); !ok {
			return nil
		}
		switch kind {
		case "ALPH":
			w.info.Alpha = true
		case "VP8 ", "VP8L":
			return w.frame(kind, body, width, height)
		}
	}
	return nil
}

// frame counts a frame whose pixels are in body, if it has the size that the
// container says: a decoder that trusts the one must not meet the other.
func (w *webpWalk) frame(kind string, body []byte, width, height int) error {
	if len(body) < 10 {
		return nil // cut off, or empty: not there
	}
	b, err := readBitstream(kind, body)
	if err != nil {
		return err
	}
	if b.width != width || b.height != height {
		return broken("its container says %d × %d pixels and its frame %d × %d", width, height, b.width, b.height)
	}
	w.lossy = w.lossy || !b.lossless
	if b.lossless && !w.animated {
		// What is transparent in spite of this bit is shown opaque, whatever
		// the container says: libwebp, and so browsers.
		w.info.Alpha = b.alpha
	}
	w.info.Alpha = w.info.Alpha || b.alpha
	w.info.Frames++
	return nil
}

// bitstream is the header of coded pixels.
type bitstream struct {
	width, height   int
	alpha, lossless bool
}

// readBitstream reads the beginning of a VP8 chunk (RFC 6386, 9.1) or a VP8L
// chunk (RFC 9649, 3.4).
func readBitstream(kind string, b []byte) (bitstream, error) {
	le := binary.LittleEndian
	if kind == "VP8L" {
		if len(b) < 5 || b[0] != 0x2f {
			return bitstream{}, broken("its VP8L chunk has no signature")
		}
		bits := le.Uint32(b[1:])
		if bits>>29 != 0 {
			return bitstream{}, broken("there is no version %d of VP8L", bits>>29)
		}
		return bitstream{1 + int(bits&0x3fff), 1 + int(bits>>14&0x3fff), bits>>28&1 == 1, true}, nil
	}
	if len(b) < 10 || b[0]&1 != 0 || string(b[3:6]) != "\x9d\x01\x2a" {
		return bitstream{}, broken("its VP8 chunk does not begin with a key frame")
	}
	s := bitstream{width: int(le.Uint16(b[6:]) & 0x3fff), height: int(le.Uint16(b[8:]) & 0x3fff)}
	if s.width == 0 || s.height == 0 {
		return s, broken("it says that it has %d × %d pixels", s.width, s.height)
	}
	return s, nil
}

func uint24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }
