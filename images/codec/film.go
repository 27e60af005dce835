package codec

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/png"
	"io"
	"time"

	"golang.org/x/image/webp"

	"millrace/images/container"
	"millrace/images/picture"
)

const (
	// maxLoops is what 16 bits hold: RFC 9649, 2.7.1.1.
	maxLoops = 1<<16 - 1
	// Browsers show frames of at most shortFrame for usualFrame, which is what
	// animations are drawn for.
	shortFrame, usualFrame = 10 * time.Millisecond, 100 * time.Millisecond
)

// A film is an animation as it is seen.
type film struct {
	loops int // how often it is shown; 0: for ever
	// next is what is seen next, valid until the call after the next one, and for how long;
	// io.EOF at the end.
	next func() (seen *image.NRGBA, lasts time.Duration, err error)
}

// openFilm reads a GIF, or a PNG or WebP with an animation in it.
func openFilm(file []byte) (*film, error) {
	switch {
	case bytes.HasPrefix(file, []byte("GIF8")):
		return filmOfGIF(file)
	case bytes.HasPrefix(file, []byte("RIFF")):
		a, err := container.DemuxWebP(file)
		if err != nil {
			return nil, err
		}
		return filmOf(a, stillWebP), nil
	default:
		a, err := container.DemuxPNG(file)
		if err != nil {
			return nil, err
		}
		return filmOf(a, stillPNG), nil
	}
}

// FirstFrame is what an animated WebP shows first.
func FirstFrame(file []byte) (*picture.Picture, error) {
	f, err := openFilm(file)
	if err != nil {
		return nil, err
	}
	m, _, err := f.next()
	if err != nil {
		return nil, err
	}
	return cut(m, m.Rect), nil
}

func filmOfGIF(file []byte) (*film, error) {
	g, err := gif.DecodeAll(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	if g.Config.Width < 1 || g.Config.Height < 1 || len(g.Image) == 0 {
		return nil, errors.New("there is nothing in it")
	}
	show := newCanvas(image.Rect(0, 0, g.Config.Width, g.Config.Height))
	i := -1
	return &film{loops: loops(g.LoopCount), next: func() (*image.NRGBA, time.Duration, error) {
		if i++; i >= len(g.Image) {
			return nil, 0, io.EOF
		}
		m := g.Image[i]
		dispose := map[byte]disposal{gif.DisposalBackground: toNothing, gif.DisposalPrevious: toBefore}[gifDisposal(g, i)]
		show.draw(m.Rect, dispose, func(to *image.NRGBA) { paint(to, m) })
		return show.seen, gifDuration(g.Delay[i]), nil
	}}, nil
}

// filmOf shows the frames of a file one after the other; still decodes one.
func filmOf(a container.Animation, still func([]byte) (*picture.Picture, error)) *film {
	show := newCanvas(image.Rect(0, 0, a.Width, a.Height))
	i := -1
	return &film{loops: a.Loops, next: func() (*image.NRGBA, time.Duration, error) {
		if i++; i >= len(a.Frames) {
			return nil, 0, io.EOF
		}
		f := a.Frames[i]
		p, err := still(f.File)
		if err != nil {
			return nil, 0, err
		}
		r := image.Rect(0, 0, p.Width, p.Height).Add(image.Pt(f.X, f.Y))
		if !r.In(show.seen.Rect) {
			return nil, 0, fmt.Errorf("it is not on the canvas: %v", r)
		}
		dispose := asItIs
		switch {
		case f.Dispose:
			dispose = toNothing
		case f.Restore:
			dispose = toBefore
		}
		show.draw(r, dispose, func(to *image.NRGBA) { lay(to, p.NRGBA(), r.Min, f.Blend) })
		return show.seen, duration(f.Duration), nil
	}}
}

func stillWebP(file []byte) (*picture.Picture, error) {
	m, err := webp.Decode(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	p := picture.FromImage(m)
	p.Limited = p.Model == picture.YCbCr
	return p, nil
}

func stillPNG(file []byte) (*picture.Picture, error) {
	m, err := png.Decode(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	return picture.FromImage(m), nil
}

// loops is how often an animation is shown, 0 meaning for ever. GIF counts the
// times that it is shown again, image/gif has -1 for none.
func loops(again int) int {
	if again == 0 {
		return 0
	}
	return min(max(again+1, 1), maxLoops)
}

// gifDuration of a frame, of a delay in hundredths of a second.
func gifDuration(delay int) time.Duration {
	return duration(time.Duration(max(delay, 0)) * 10 * time.Millisecond)
}

// duration is how long browsers show a frame.
func duration(d time.Duration) time.Duration {
	if d <= shortFrame {
		return usualFrame
	}
	return min(d, maxFrameTime)
}

func gifDisposal(g *gif.GIF, i int) byte {
	if i < len(g.Disposal) {
		return g.Disposal[i]
	}
	return gif.DisposalNone
}

// disposal is what becomes of a frame before the next one is drawn.
type disposal uint8

const (
	asItIs    disposal = iota
	toNothing          // its rectangle becomes transparent
	toBefore           // what was there before it comes back
)

// A canvas is what a player has in memory: GIF89a, 23, "disposal method". Its background is
// transparent, as in all browsers.
type canvas struct {
	seen   *image.NRGBA // what is shown
	before *image.NRGBA // what was shown before
	base   *image.NRGBA // what the next frame is drawn on
}

func newCanvas(r image.Rectangle) *canvas {
	return &canvas{seen: image.NewNRGBA(r), before: image.NewNRGBA(r), base: image.NewNRGBA(r)}
}

// draw shows a frame, which covers a rectangle.
func (c *canvas) draw(r image.Rectangle, dispose disposal, paint func(to *image.NRGBA)) {
	c.seen, c.before = c.before, c.seen
	copy(c.seen.Pix, c.base.Pix)
	paint(c.seen)
	r = r.Intersect(c.seen.Rect)
	switch dispose {
	case toBefore: // the base stays
	case toNothing:
		copy(c.base.Pix, c.seen.Pix)
		for y := r.Min.Y; y < r.Max.Y; y++ {
			clear(c.base.Pix[c.base.PixOffset(r.Min.X, y):][:4*r.Dx()])
		}
	default:
		copy(c.base.Pix, c.seen.Pix)
	}
}

// paint draws the opaque pixels of a frame.
func paint(to *image.NRGBA, m *image.Paletted) {
	var colours [256]color.NRGBA
	for i, c := range m.Palette[:min(len(m.Palette), len(colours))] {
		colours[i], _ = color.NRGBAModel.Convert(c).(color.NRGBA)
	}
	r := m.Rect.Intersect(to.Rect)
	for y := r.Min.Y; y < r.Max.Y; y++ {
		from := m.Pix[m.PixOffset(r.Min.X, y):][:r.Dx()]
		row := to.Pix[to.PixOffset(r.Min.X, y):][:4*r.Dx()]
		for x, index := range from {
			if c := colours[index]; c.A != 0 {
				row[4*x], row[4*x+1], row[4*x+2], row[4*x+3] = c.R, c.G, c.B, c.A
			}
		}
	}
}

// lay puts a frame at a place, over what is there or instead of it.
func lay(to *image.NRGBA, p *picture.Picture, at image.Point, blend bool) {
	for y := range p.Height {
		row := to.Pix[to.PixOffset(at.X, at.Y+y):][:4*p.Width]
		if src := p.Pix[y*p.Stride:][:4*p.Width]; blend {
			picture.OverRow(row, src)
		} else {
			copy(row, src)
		}
	}
}
