package convert

import (
	"fmt"
	"image"

	"millrace/images/header"
	"millrace/images/picture"
)

// Watermark is a small image that is laid on a large one.
type Watermark struct {
	Image    []byte  // a file of a format that is read
	Position Gravity // a side, a corner or the middle
	Opacity  float64 // 0 to 1
	Scale    float64 // its width in terms of the result's
	Margin   int     // pixels to the edges
}

// maxMark is how many megapixels a watermark may have.
const maxMark = 4

// readMark decodes the watermark, if there is one, to colours of sRGB.
func (j *job) readMark() error {
	if j.spec.Watermark == nil {
		return nil
	}
	source := j.spec.Watermark.Image
	info, err := header.Read(source)
	if err == nil {
		err = info.Check(header.Limits{Megapixels: maxMark, Frames: 1})
	}
	if err != nil {
		return fmt.Errorf("the watermark: %w", err)
	}
	one := &job{ctx: j.ctx, encoder: j.encoder, source: source, info: info}
	p, err := one.fitted()
	if err == nil {
		var profile []byte
		if p, profile, err = one.colours(p); profile != nil {
			p, _ = toSRGB(p, profile)
		}
	}
	if err != nil {
		return fmt.Errorf("the watermark: %w", err)
	}
	j.mark = p.NRGBA()
	return nil
}

// lay puts the watermark on a picture, no larger than that.
func (w *Watermark) lay(mark, p *picture.Picture) *picture.Picture {
	if mark == nil {
		return p
	}
	width := min(round(w.Scale*float64(p.Width)), p.Width)
	height := round(float64(width) * float64(mark.Height) / float64(mark.Width))
	if height > p.Height {
		width, height = max(1, width*p.Height/height), p.Height
	}
	mark = mark.Resize(width, height)
	margin := image.Pt(min(w.Margin, (p.Width-width)/2), min(w.Margin, (p.Height-height)/2))
	room := image.Pt(p.Width-width, p.Height-height).Sub(margin.Mul(2))
	at := (&Edit{Gravity: w.Position}).place(room, room).Add(margin)

	q := picture.New(p.Width, p.Height, picture.NRGBA, picture.Sub444)
	q.ICC = p.ICC
	p = p.NRGBA()
	for y := range p.Height {
		copy(q.Pix[y*q.Stride:][:4*p.Width], p.Pix[y*p.Stride:])
	}
	row := make([]byte, 4*width)
	for y := range height {
		copy(row, mark.Pix[y*mark.Stride:])
		for x := 3; x < len(row); x += 4 {
			row[x] = uint8(float64(row[x])*w.Opacity + 0.5)
		}
		picture.OverRow(q.Pix[(at.Y+y)*q.Stride+4*at.X:][:4*width], row)
	}
	return q
}
