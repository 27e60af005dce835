package container

import (
	"encoding/binary"
	"fmt"
	"time"
)

// DemuxWebP takes an animated WebP apart; its metadata and background are left out.
func DemuxWebP(file []byte) (Animation, error) {
	w, err := parseWebP(file)
	if err != nil {
		return Animation{}, fmt.Errorf("taking an animated WebP apart: %w", err)
	}
	if !w.animated {
		return Animation{}, fmt.Errorf("taking an animated WebP apart: %w", unsound("it is no animation"))
	}
	a := Animation{Width: w.width, Height: w.height, Loops: int(binary.LittleEndian.Uint16(w.anim[4:]))}
	for n, c := range w.pixels {
		f, err := demuxFrame(c.body)
		if err != nil {
			return Animation{}, fmt.Errorf("taking an animated WebP apart: frame %d: %w", n+1, err)
		}
		a.Frames = append(a.Frames, f)
	}
	return a, nil
}

// demuxFrame makes a still WebP of an ANMF chunk, which animationFrame has looked at.
func demuxFrame(b []byte) (Frame, error) {
	f := Frame{
		X: 2 * uint24(b), Y: 2 * uint24(b[3:]), Duration: time.Duration(uint24(b[12:])) * time.Millisecond,
		Dispose: b[15]&anmfDispose != 0, Blend: b[15]&anmfReplace == 0,
	}
	chunks, err := parseChunks(b[16:])
	if err != nil {
		return f, err
	}
	one := webpFile{width: 1 + uint24(b[6:]), height: 1 + uint24(b[9:])}
	var alph []byte
	for _, c := range chunks {
		switch c.kind {
		case "ALPH":
			first(&alph, c)
		case "VP8 ", "VP8L":
			if one.pixels == nil {
				if err := one.still(c, alph); err != nil {
					return f, err
				}
			}
		}
	}
	if one.pixels == nil {
		return f, unsound("there are no pixels in it")
	}
	f.File, err = one.write()
	return f, err
}

// DemuxPNG takes an animated PNG apart (PNG, third edition, 13): each frame becomes a PNG with
// the chunks that stand before the pixels.
func DemuxPNG(file []byte) (Animation, error) {
	d := pngDemuxer{file: file}
	if err := d.read(); err != nil {
		return Animation{}, fmt.Errorf("taking an animated PNG apart: %w", err)
	}
	return d.a, nil
}

// pngDemuxer is a PNG that is being taken apart.
type pngDemuxer struct {
	file   []byte
	a      Animation
	head   []byte // IHDR's content
	shared []byte // chunks that all frames need
	most   int    // frames, as acTL says
	pixels []byte // chunks IDAT of the frame that is being read; nil: none is
	size   [2]uint32
	frame  Frame
}

const (
	frameControl = 26           // bytes of fcTL
	maxShared    = 4*256 + 2*12 // of PLTE and tRNS, with what is around them
)

func (d *pngDemuxer) read() error {
	if len(d.file) < pngHead || string(d.file[:8]) != "\x89PNG\r\n\x1a\n" || string(d.file[12:16]) != "IHDR" {
		return unsound("it does not begin as one")
	}
	d.head = d.file[16:29]
	d.a.Width, d.a.Height = int(binary.BigEndian.Uint32(d.head)), int(binary.BigEndian.Uint32(d.head[4:]))
	for rest := d.file[pngHead:]; len(rest) >= 12; {
		n := uint64(binary.BigEndian.Uint32(rest)) + 12
		if n > uint64(len(rest)) {
			return unsound("a chunk of %d bytes is cut off", n-12)
		}
		kind, body := string(rest[4:8]), rest[8:n-4]
		if kind == "IEND" {
			return d.end()
		}
		if err := d.chunk(kind, body); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return unsound("it has no end")
}

func (d *pngDemuxer) chunk(kind string, body []byte) error {
	switch kind {
	case "acTL":
		if len(body) < 8 {
			return unsound("its acTL chunk has %d bytes", len(body))
		}
		if d.most > 0 || len(d.a.Frames) > 0 {
			return unsound("it says twice how many frames it has, or too late")
		}
		d.most, d.a.Loops = int(binary.BigEndian.Uint32(body)), int(min(binary.BigEndian.Uint32(body[4:]), 1<<16-1))
	case "fcTL":
		return d.control(body)
	case "IDAT":
		if d.pixels != nil { // else they are for those who know no animation
			d.pixels = pngChunk(d.pixels, "IDAT", body)
		}
	case "fdAT":
		if d.pixels == nil || len(body) < 4 {
			return unsound("it has pixels without a frame")
		}
		d.pixels = pngChunk(d.pixels, "IDAT", body[4:])
	case "PLTE", "tRNS":
		// Every frame gets a copy: 256 colours of three bytes, and of one byte.
		if len(d.shared)+len(body) > maxShared {
			return unsound("its %s chunks are larger than 256 colours", kind)
		}
		d.shared = pngChunk(d.shared, kind, body)
	}
	return nil
}

// control begins a frame.
func (d *pngDemuxer) control(b []byte) error {
	if len(b) < frameControl {
		return unsound("an fcTL chunk has %d bytes", len(b))
	}
	d.finish()
	if len(d.a.Frames) >= d.most {
		return unsound("it has more frames than the %d that it says", d.most)
	}
	be := binary.BigEndian
	d.size = [2]uint32{be.Uint32(b[4:]), be.Uint32(b[8:])}
	x, y := be.Uint32(b[12:]), be.Uint32(b[16:])
	if d.size[0] == 0 || d.size[1] == 0 || uint64(x)+uint64(d.size[0]) > uint64(d.a.Width) || uint64(y)+uint64(d.size[1]) > uint64(d.a.Height) {
		return unsound("a frame of %d × %d pixels at %d, %d is not on the canvas", d.size[0], d.size[1], x, y)
	}
	parts := time.Duration(be.Uint16(b[22:])) // of a second
	if parts == 0 {
		parts = 100
	}
	d.frame = Frame{
		X: int(x), Y: int(y), Duration: time.Duration(be.Uint16(b[20:])) * time.Second / parts,
		Dispose: b[24] == 1, Restore: b[24] == 2, Blend: b[25] == 1,
	}
	d.pixels = []byte{}
	return nil
}

// finish makes a file of the frame that was read.
func (d *pngDemuxer) finish() {
	if len(d.pixels) == 0 {
		return
	}
	head := append(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, d.size[0]), d.size[1]), d.head[8:]...)
	out := pngChunk([]byte("\x89PNG\r\n\x1a\n"), "IHDR", head)
	out = append(append(out, d.shared...), d.pixels...)
	d.frame.File = pngChunk(out, "IEND", nil)
	d.a.Frames = append(d.a.Frames, d.frame)
	d.pixels = nil
}

func (d *pngDemuxer) end() error {
	d.finish()
	if len(d.a.Frames) == 0 {
		return unsound("there are no frames in it")
	}
	return nil
}
