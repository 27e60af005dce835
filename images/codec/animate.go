package codec

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"time"

	"millrace/images/container"
	"millrace/images/picture"
)

const (
	// maxFrameTime is what 24 bits of milliseconds hold: RFC 9649, 2.7.1.3.
	maxFrameTime = (1<<24 - 1) * time.Millisecond
	// maxLoops is what 16 bits hold: RFC 9649, 2.7.1.1.
	maxLoops = 1<<16 - 1
	// Browsers show frames of at most shortFrame for usualFrame, which is what
	// animations are drawn for.
	shortFrame, usualFrame = 10 * time.Millisecond, 100 * time.Millisecond
)

// Animate converts a GIF to an animated WebP. All frames are decoded at once:
// the caller has bounded their number times their area before.
//
// A frame holds the smallest rectangle that changed; frames that look like
// drawings are coded without loss, others like photographs.
func (e *Embedded) Animate(ctx context.Context, file []byte, o Params) ([]byte, error) {
	if o.Format != WebP {
		return nil, fmt.Errorf("an animation as %q: %w", o.Format, ErrUnsupported)
	}
	g, err := gif.DecodeAll(bytes.NewReader(file))
	if err != nil {
		return nil, fmt.Errorf("decoding the GIF: %w: %w", ErrFailed, err)
	}
	a := container.Animation{Width: g.Config.Width, Height: g.Config.Height, Loops: loops(g.LoopCount)}
	if a.Width < 1 || a.Height < 1 || a.Width > maxWebP || a.Height > maxWebP {
		return nil, fmt.Errorf("%d × %d pixels, webp has at most %d a side: %w", a.Width, a.Height, maxWebP, ErrUnsupported)
	}
	show := newCanvas(image.Rect(0, 0, a.Width, a.Height))
	size := 0
	for i, frame := range g.Image {
		changed := show.draw(frame, disposal(g, i), i == 0)
		lasts := duration(g.Delay[i])
		if last := len(a.Frames) - 1; changed.Empty() && a.Frames[last].Duration+lasts <= maxFrameTime {
			a.Frames[last].Duration += lasts
			continue
		}
		changed = even(changed)
		coded, blend, err := e.frame(ctx, show, changed, o)
		if err != nil {
			return nil, fmt.Errorf("frame %d: %w", i+1, err)
		}
		if size += len(coded); size > maxResult {
			return nil, fmt.Errorf("%w: the frames take more than %d MiB", ErrFailed, maxResult>>20)
		}
		a.Frames = append(a.Frames, container.Frame{File: coded, X: changed.Min.X, Y: changed.Min.Y, Duration: lasts, Blend: blend})
	}
	out, err := a.Mux()
	if err == nil {
		err = checkResult(WebP, out)
	}
	if err != nil {
		return nil, fmt.Errorf("putting %d frames together: %w: %w", len(a.Frames), ErrFailed, err)
	}
	return out, nil
}

// frame codes a rectangle of what is seen. blend says that it is to be drawn
// over what was there before.
func (e *Embedded) frame(ctx context.Context, show *canvas, r image.Rectangle, o Params) (file []byte, blend bool, err error) {
	part := cut(show.seen, r)
	o.Lossless = o.exact() || part.Graphic()
	if o.Lossless {
		if changes, ok := show.changes(r); ok {
			part, blend = changes, true
		}
	}
	file, err = e.Encode(ctx, part, o)
	return file, blend, err
}

// cut is a rectangle of an image as a picture that shares its memory.
func cut(m *image.NRGBA, r image.Rectangle) *picture.Picture {
	return &picture.Picture{
		Width: r.Dx(), Height: r.Dy(), Model: picture.NRGBA,
		Pix: m.Pix[m.PixOffset(r.Min.X, r.Min.Y):], Stride: m.Stride,
	}
}

// loops is how often an animation is shown, 0 meaning for ever. GIF counts the
// times that it is shown again, image/gif has -1 for none.
func loops(again int) int {
	if again == 0 {
		return 0
	}
	return min(max(again+1, 1), maxLoops)
}

// duration of a frame, of a delay in hundredths of a second.
func duration(delay int) time.Duration {
	d := time.Duration(max(delay, 0)) * 10 * time.Millisecond
	if d <= shortFrame {
		return usualFrame
	}
	return d
}

func disposal(g *gif.GIF, i int) byte {
	if i < len(g.Disposal) {
		return g.Disposal[i]
	}
	return gif.DisposalNone
}

// even moves a rectangle's corner to where a WebP frame can be, and gives an
// empty one a pixel.
func even(r image.Rectangle) image.Rectangle {
	if r.Empty() {
		return image.Rect(0, 0, 1, 1)
	}
	r.Min.X &^= 1
	r.Min.Y &^= 1
	return r
}

// A canvas is what a player of GIFs has in memory: GIF89a, 23, "disposal
// method". Its background is transparent, as in all browsers.
type canvas struct {
	seen   *image.NRGBA // what is shown
	before *image.NRGBA // what was shown before
	base   *image.NRGBA // what the next frame is drawn on
}

func newCanvas(r image.Rectangle) *canvas {
	return &canvas{seen: image.NewNRGBA(r), before: image.NewNRGBA(r), base: image.NewNRGBA(r)}
}

// draw shows a frame and returns the rectangle in which it differs from what
// was shown before; all of it, for the first.
func (c *canvas) draw(m *image.Paletted, dispose byte, first bool) image.Rectangle {
	c.seen, c.before = c.before, c.seen
	copy(c.seen.Pix, c.base.Pix)
	paint(c.seen, m)
	r := m.Rect.Intersect(c.seen.Rect)
	switch dispose {
	case gif.DisposalPrevious: // the base stays
	case gif.DisposalBackground:
		copy(c.base.Pix, c.seen.Pix)
		for y := r.Min.Y; y < r.Max.Y; y++ {
			clear(c.base.Pix[c.base.PixOffset(r.Min.X, y):][:4*r.Dx()])
		}
	default:
		copy(c.base.Pix, c.seen.Pix)
	}
	if first {
		return c.seen.Rect
	}
	return difference(c.before, c.seen)
}

// changes is a rectangle of what is seen in which only the pixels that differ
// from before are not transparent: without loss, that is smaller, and drawn over
// what was there it looks the same. It is not ok where something was taken away.
func (c *canvas) changes(r image.Rectangle) (*picture.Picture, bool) {
	p := picture.New(r.Dx(), r.Dy(), picture.NRGBA, picture.Sub444)
	for y := range r.Dy() {
		o := c.seen.PixOffset(r.Min.X, r.Min.Y+y)
		before, seen, row := c.before.Pix[o:], c.seen.Pix[o:], p.Pix[y*p.Stride:][:4*r.Dx()]
		for x := 0; x < len(row); x += 4 {
			if [4]byte(before[x:]) == [4]byte(seen[x:]) {
				continue
			}
			if seen[x+3] != 255 {
				return nil, false
			}
			copy(row[x:x+4], seen[x:])
		}
	}
	return p, true
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

// difference is the smallest rectangle that holds all pixels that differ in two
// images of one size.
func difference(a, b *image.NRGBA) image.Rectangle {
	var r image.Rectangle
	for y := range a.Rect.Dy() {
		rowA, rowB := a.Pix[y*a.Stride:][:4*a.Rect.Dx()], b.Pix[y*b.Stride:][:4*b.Rect.Dx()]
		if bytes.Equal(rowA, rowB) {
			continue
		}
		from, to := 0, len(rowA)
		for rowA[from] == rowB[from] {
			from++
		}
		for rowA[to-1] == rowB[to-1] {
			to--
		}
		r = r.Union(image.Rect(from/4, y, (to+3)/4, y+1))
	}
	return r
}
