package header

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"io"
)

const pngMagic = "\x89PNG\r\n\x1a\n"

// Colour types of PNG, third edition, 11.2.1.
const (
	pngGray      = 0
	pngRGB       = 2
	pngPalette   = 3
	pngGrayAlpha = 4
	pngRGBA      = 6
)

// pngColour is what the chunks say of the colours that samples stand for.
type pngColour struct {
	cicp, cicpSRGB   bool
	icc, srgb        bool
	gammaOff, primOf bool // not sRGB's
}

// pngWalk is the state of a walk over the chunks.
type pngWalk struct {
	info      *Info
	colour    pngColour
	pixels    bool // IDAT came
	animation int  // frames by acTL
	inside    bool // the default image is a frame of the animation
	exif      bool
}

// readPNG walks over the chunks. Checksums are not verified: a decoder does.
func readPNG(file []byte) (Info, error) {
	var i Info
	rest := file[len(pngMagic):]
	if len(rest) < 8+13 || binary.BigEndian.Uint32(rest) != 13 || string(rest[4:8]) != "IHDR" {
		return i, broken("it does not begin with an IHDR chunk of 13 bytes")
	}
	if err := i.pngHeader(rest[8 : 8+13]); err != nil {
		return i, err
	}
	w := pngWalk{info: &i}
	rest = rest[min(len(rest), 8+13+4):]
	for len(rest) >= 8 {
		size := uint64(binary.BigEndian.Uint32(rest))
		kind := string(rest[4:8])
		body := rest[8:]
		whole := size <= uint64(len(body))
		if whole {
			body = body[:size]
		}
		if kind == "IHDR" { // a decoder could believe this one
			return i, broken("it has two IHDR chunks")
		}
		if whole || kind == "IDAT" {
			w.chunk(kind, body)
		} else if kind == "iCCP" {
			i.BrokenICC = true
		}
		if kind == "IEND" || 8+size+4 > uint64(len(rest)) {
			break
		}
		rest = rest[8+size+4:]
	}
	w.finish()
	return i, nil
}

// pngHeader reads IHDR: PNG, third edition, 11.2.1.
func (i *Info) pngHeader(b []byte) error {
	width, height := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
	if width-1 > 1<<31-2 || height-1 > 1<<31-2 { // zero wraps around
		return broken("it says that it has %d × %d pixels", width, height)
	}
	i.Width, i.Height = int(width), int(height)
	i.Depth = int(b[8])
	i.Lossless = true
	i.Progressive = b[12] == 1
	least, most := 8, 16
	switch b[9] {
	case pngGray:
		least = 1
	case pngRGB:
	case pngPalette:
		i.Palette = true
		least, most = 1, 8
	case pngGrayAlpha, pngRGBA:
		i.Alpha = true
	default:
		return broken("there is no colour type %d", b[9])
	}
	if d := i.Depth; d < least || d > most || d&(d-1) != 0 {
		return broken("there is no depth of %d bits in colour type %d", d, b[9])
	}
	return nil
}

// chunk takes a chunk that is all there. Those that tell how to read the
// pixels count only in front of them.
func (w *pngWalk) chunk(kind string, body []byte) {
	switch kind {
	case "IDAT":
		w.pixels = true
		return
	case "eXIf":
		if !w.exif {
			w.exif = true
			w.info.readEXIF(body)
			if w.pixels { // browsers have begun to show them
				w.info.Orientation = 0
			}
		}
		return
	}
	if w.pixels {
		return
	}
	switch kind {
	case "acTL":
		if len(body) >= 8 {
			w.animation = int(min(binary.BigEndian.Uint32(body), MaxFrames))
		}
	case "fcTL":
		w.inside = true
	case "tRNS":
		w.info.Alpha = true
	case "iCCP":
		if !w.colour.icc {
			w.colour.icc = true
			w.info.setICC(inflateICC(body))
		}
	default:
		w.colour.chunk(kind, body)
	}
}

// finish draws the conclusions.
func (w *pngWalk) finish() {
	if w.animation > 0 {
		w.info.Frames = w.animation
		if w.pixels && !w.inside { // the pixels of IDAT are for those who know no animation
			w.info.Frames++
		}
	}
	c := w.colour
	switch { // PNG, third edition, 4.3, tells who overrides whom
	case c.cicp:
		w.info.NotSRGB = !c.cicpSRGB
	case w.info.ICC != nil, c.srgb:
	default:
		w.info.NotSRGB = c.gammaOff || c.primOf
	}
}

// chunk reads the chunks that describe colours without a profile.
func (c *pngColour) chunk(kind string, body []byte) {
	be := binary.BigEndian
	switch {
	case kind == "cICP" && len(body) == 4:
		// ITU-T H.273: the primaries of BT.709, sRGB's curve, full range.
		c.cicp, c.cicpSRGB = true, bytes.Equal(body, []byte{1, 13, 0, 1})
	case kind == "sRGB":
		c.srgb = true
	case kind == "gAMA" && len(body) == 4:
		// 1/2.2 in hundred thousandths. Two decoders differ by 5 %.
		c.gammaOff = !near(be.Uint32(body), 45455, 2273)
	case kind == "cHRM" && len(body) == 32:
		for n, want := range [8]uint32{31270, 32900, 64000, 33000, 30000, 60000, 15000, 6000} {
			if !near(be.Uint32(body[4*n:]), want, 1000) { // 0.01 of CIE x or y
				c.primOf = true
			}
		}
	}
}

func near(a, b, by uint32) bool { return max(a, b)-min(a, b) <= by }

// inflateICC unpacks an iCCP chunk: a name of 1 to 79 bytes, zero, the method,
// then zlib (PNG, third edition, 11.3.2.3). It returns nil for a broken one.
func inflateICC(body []byte) []byte {
	name := bytes.IndexByte(body[:min(len(body), 80)], 0)
	if name < 1 || len(body) < name+2 || body[name+1] != 0 {
		return nil
	}
	z, err := zlib.NewReader(bytes.NewReader(body[name+2:]))
	if err != nil {
		return nil
	}
	profile, err := io.ReadAll(io.LimitReader(z, maxICC+1))
	if err != nil {
		return nil
	}
	return profile // setICC refuses one that is too long
}
