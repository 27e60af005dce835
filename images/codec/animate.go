package codec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"io"
	"time"

	"millrace/images/container"
	"millrace/images/picture"
)

// maxFrameTime is what 24 bits of milliseconds hold: RFC 9649, 2.7.1.3.
const maxFrameTime = (1<<24 - 1) * time.Millisecond

// Animate converts an animated GIF, PNG or WebP to an animated WebP. All frames of a GIF are
// decoded at once: the caller has bounded their number times their area before.
//
// A frame holds the smallest rectangle that changed; frames that look like
// drawings are coded without loss, others like photographs.
func (e *Embedded) Animate(ctx context.Context, file []byte, o Params, shape Shape) ([]byte, error) {
	if o.Format != WebP {
		return nil, fmt.Errorf("an animation as %q: %w", o.Format, ErrUnsupported)
	}
	f, err := openFilm(file)
	if err != nil {
		return nil, fmt.Errorf("decoding the animation: %w: %w", ErrFailed, err)
	}
	a := container.Animation{Loops: f.loops}
	var seen, before *image.NRGBA
	size := 0
	for n := 1; ; n++ {
		m, lasts, err := f.next()
		switch {
		case errors.Is(err, io.EOF) && len(a.Frames) > 0:
			return muxed(a)
		case err != nil:
			return nil, fmt.Errorf("decoding frame %d: %w: %w", n, ErrFailed, err)
		}
		before, seen = seen, shaped(m, shape)
		changed := seen.Rect
		if n == 1 {
			a.Width, a.Height = changed.Dx(), changed.Dy()
			if max(a.Width, a.Height) > maxWebP {
				return nil, fmt.Errorf("%d × %d pixels, webp has at most %d a side: %w", a.Width, a.Height, maxWebP, ErrUnsupported)
			}
		} else {
			changed = difference(before, seen)
		}
		if last := len(a.Frames) - 1; changed.Empty() && a.Frames[last].Duration+lasts <= maxFrameTime {
			a.Frames[last].Duration += lasts
			continue
		}
		changed = even(changed)
		coded, blend, err := e.frame(ctx, seen, before, changed, o)
		if err != nil {
			return nil, fmt.Errorf("frame %d: %w", n, err)
		}
		if size += len(coded); size > maxResult {
			return nil, fmt.Errorf("%w: the frames take more than %d MiB", ErrFailed, maxResult>>20)
		}
		a.Frames = append(a.Frames, container.Frame{File: coded, X: changed.Min.X, Y: changed.Min.Y, Duration: lasts, Blend: blend})
	}
}

// muxed is the file of an animation.
func muxed(a container.Animation) ([]byte, error) {
	out, err := a.Mux()
	if err == nil {
		err = checkResult(WebP, out)
	}
	if err != nil {
		return nil, fmt.Errorf("putting %d frames together: %w: %w", len(a.Frames), ErrFailed, err)
	}
	return out, nil
}

// shaped is what a frame looks like in the result.
func shaped(m *image.NRGBA, shape Shape) *image.NRGBA {
	if shape == nil {
		return m
	}
	return nrgbaImage(shape(cut(m, m.Rect)).NRGBA())
}

// frame codes a rectangle of what is seen. blend says that it is to be drawn
// over what was there before.
func (e *Embedded) frame(ctx context.Context, seen, before *image.NRGBA, r image.Rectangle, o Params) (file []byte, blend bool, err error) {
	part := cut(seen, r)
	o.Lossless = o.exact() || part.Graphic()
	if o.Lossless && before != nil {
		if changes, ok := changes(seen, before, r); ok {
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

// changes is a rectangle of what is seen in which only the pixels that differ
// from before are not transparent: without loss, that is smaller, and drawn over
// what was there it looks the same. It is not ok where something was taken away.
func changes(now, then *image.NRGBA, r image.Rectangle) (*picture.Picture, bool) {
	p := picture.New(r.Dx(), r.Dy(), picture.NRGBA, picture.Sub444)
	for y := range r.Dy() {
		o := now.PixOffset(r.Min.X, r.Min.Y+y)
		before, seen, row := then.Pix[o:], now.Pix[o:], p.Pix[y*p.Stride:][:4*r.Dx()]
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
