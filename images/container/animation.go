package container

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// Frame is one frame of an animation.
type Frame struct {
	File []byte // a still WebP, whose metadata is left out; from DemuxPNG a PNG
	X, Y int    // on the canvas, even
	// Duration is rounded to milliseconds, at most 4 h 39 min (24 bits).
	Duration time.Duration
	Blend    bool // over what is there, instead of replacing it
	Dispose  bool // to the background afterwards
	Restore  bool // what was there before it comes back; of PNG alone
}

// Animation is an animated WebP: RFC 9649, 2.7.1.1 and 2.7.1.3; or an animated PNG.
type Animation struct {
	// Width and Height of the canvas, 1 to 2^24 each, with at most 2^32-1 pixels.
	Width, Height int
	Loops         int     // 0: for ever; at most 65,535
	Background    [4]byte // blue, green, red, alpha; most viewers take nothing for it
	Frames        []Frame
	Metadata      Metadata
}

// The bits of an ANMF chunk's flags: RFC 9649, 2.7.1.3.
const (
	anmfDispose = 1
	anmfReplace = 2
)

// Mux writes the animation. ErrFormat is returned, wrapped with the number of
// the frame from 1, for frames that are not still WebP files; other errors are
// for what does not fit the canvas or the format.
func (a Animation) Mux() ([]byte, error) {
	if err := a.check(); err != nil {
		return nil, fmt.Errorf("writing an animated WebP: %w", err)
	}
	w := webpFile{width: a.Width, height: a.Height, animated: true}
	w.anim = binary.LittleEndian.AppendUint16(a.Background[:4:4], uint16(a.Loops))
	for n, f := range a.Frames {
		body, alpha, err := a.frame(f)
		if err != nil {
			return nil, fmt.Errorf("writing an animated WebP: frame %d: %w", n+1, err)
		}
		w.pixels = append(w.pixels, chunk{"ANMF", body})
		// Where no frame is, or one was disposed of, nothing is.
		w.alpha = w.alpha || alpha || f.Dispose || n == 0 && !a.covers(body)
	}
	if len(a.Metadata.ICC) > 0 {
		w.icc = a.Metadata.ICC
	}
	if len(a.Metadata.EXIF) > 0 {
		w.exif = a.Metadata.EXIF
	}
	out, err := w.write()
	if err != nil {
		return nil, fmt.Errorf("writing an animated WebP: %w", err)
	}
	return out, nil
}

// check holds what is said of the whole against the format's limits.
func (a Animation) check() error {
	switch {
	case a.Width < 1 || a.Height < 1 || a.Width > maxCanvas || a.Height > maxCanvas ||
		uint64(a.Width)*uint64(a.Height) > math.MaxUint32:
		return fmt.Errorf("there is no canvas of %d × %d pixels", a.Width, a.Height)
	case a.Loops < 0 || a.Loops > math.MaxUint16:
		return fmt.Errorf("it cannot be repeated %d times; 65535 is the most", a.Loops)
	case len(a.Frames) == 0:
		return fmt.Errorf("there are no frames")
	}
	return nil
}

// frame writes the content of an ANMF chunk.
func (a Animation) frame(f Frame) (body []byte, alpha bool, err error) {
	w, err := parseWebP(f.File)
	if err != nil {
		return nil, false, err
	}
	if w.animated {
		return nil, false, unsound("it is an animation itself")
	}
	ms := (f.Duration + time.Millisecond/2) / time.Millisecond
	switch {
	case f.X < 0 || f.Y < 0 || f.X%2 != 0 || f.Y%2 != 0:
		return nil, false, fmt.Errorf("its place %d, %d is not even", f.X, f.Y)
	case w.width > a.Width-f.X || w.height > a.Height-f.Y:
		return nil, false, fmt.Errorf("%d × %d pixels at %d, %d are not on the canvas of %d × %d",
			w.width, w.height, f.X, f.Y, a.Width, a.Height)
	case f.Duration < 0 || ms >= 1<<24:
		return nil, false, fmt.Errorf("it cannot be shown for %v", f.Duration)
	}
	size := 16
	for _, c := range w.pixels {
		size += c.size()
	}
	body = make([]byte, 16, size)
	putUint24(body[0:], f.X/2)
	putUint24(body[3:], f.Y/2)
	putUint24(body[6:], w.width-1)
	putUint24(body[9:], w.height-1)
	putUint24(body[12:], int(ms))
	if f.Dispose {
		body[15] |= anmfDispose
	}
	if !f.Blend {
		body[15] |= anmfReplace
	}
	for _, c := range w.pixels {
		body = c.append(body)
	}
	return body, w.alpha, nil
}

// covers says whether a frame covers the canvas.
func (a Animation) covers(anmf []byte) bool {
	return 1+uint24(anmf[6:]) == a.Width && 1+uint24(anmf[9:]) == a.Height
}
