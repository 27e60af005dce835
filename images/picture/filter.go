package picture

import (
	"image"
	"image/color"
	"math"
)

// Blur blurs by a Gaussian of a standard deviation in pixels, at least 0.1. It is three
// boxes one after the other, whose last samples count in part (Gwosdek and others, Theoretical
// Foundations of Gaussian Convolution by Extended Box Filtering, 2011): what it costs
// does not depend on the deviation. Beyond the edges the last samples go on. Colours
// count in proportion to their alpha.
func (p *Picture) Blur(sigma float64) *Picture {
	if p.Model == CMYK || p.Model == Gray && len(p.A.Pix) > 0 || p.planar() && !p.Opaque() {
		p = p.NRGBA()
	}
	q := p.like(p.Width, p.Height, p.Sub)
	q.A = Plane{}
	if p.planar() {
		blurPlane(q.Y, p.Y, image.Pt(p.Width, p.Height), 1, sigma, sigma)
		if p.Model == YCbCr {
			w, h := p.Sub.size(p.Width, p.Height)
			sx, sy := p.Sub.shifts()
			x, y := sigma/float64(int(1)<<sx), sigma/float64(int(1)<<sy)
			blurPlane(q.Cb, p.Cb, image.Pt(w, h), 1, x, y)
			blurPlane(q.Cr, p.Cr, image.Pt(w, h), 1, x, y)
		}
		return q
	}
	if p.Opaque() {
		blurPlane(q.pixels(), p.pixels(), image.Pt(p.Width, p.Height), 4, sigma, sigma)
		return q
	}
	blurAlpha(q, p, sigma)
	return q
}

// box is one of the three: 2·radius+1 whole samples, and edge of one more at both ends.
type box struct {
	radius      int
	whole, edge float64 // weights
}

func newBox(sigma float64) box {
	v := sigma * sigma / 3 // the variance of one
	l := math.Floor((math.Sqrt(12*v+1) - 1) / 2)
	a := (2*l + 1) * (l*(l+1) - 3*v) / (6 * (v - (l+1)*(l+1)))
	return box{int(l), 1 / (2*l + 1 + 2*a), a / (2*l + 1 + 2*a)}
}

// line filters a line three times; other is for the results between.
func (b box) line(line, other []float64) {
	for range 3 {
		b.once(other, line)
		line, other = other, line
	}
	// What was written last is in the second of the two that came in.
}

func (b box) once(dst, src []float64) {
	last, r := len(src)-1, b.radius
	at := func(i int) float64 { return src[min(max(i, 0), last)] }
	sum := 0.0
	for i := -r; i <= r; i++ {
		sum += at(i)
	}
	for i := range dst {
		dst[i] = b.whole*sum + b.edge*(at(i-r-1)+at(i+r+1))
		sum += at(i+r+1) - at(i-r)
	}
}

// blurPlane filters rows, then columns; samples is how many of them a pixel has.
func blurPlane(dst, src Plane, size image.Point, samples int, sigmaX, sigmaY float64) {
	w, h := size.X, size.Y
	one, two := make([]float64, max(w, h)), make([]float64, max(w, h))
	rows, columns := newBox(sigmaX), newBox(sigmaY)
	middle := make([]float32, w*h*samples)
	for y := range h {
		in, out := src.row(y, samples*w), middle[y*w*samples:][:samples*w]
		for s := range samples {
			for x := range w {
				one[x] = float64(in[samples*x+s])
			}
			rows.line(one[:w], two[:w])
			for x := range w {
				out[samples*x+s] = float32(two[x])
			}
		}
	}
	for x := range samples * w {
		for y := range h {
			one[y] = float64(middle[y*samples*w+x])
		}
		columns.line(one[:h], two[:h])
		for y := range h {
			dst.Pix[y*dst.Stride+x] = rounded(two[y])
		}
	}
}

func rounded(v float64) byte { return byte(min(max(v+0.5, 0), 255)) }

// blurAlpha is blurPlane for colours that count by their alpha: of twice as many steps, since
// they are divided by a small one at the end.
func blurAlpha(q, p *Picture, sigma float64) {
	w, h := p.Width, p.Height
	b := newBox(sigma)
	one, two := make([]float64, max(w, h)), make([]float64, max(w, h))
	middle := make([]float32, 4*w*h)
	for y := range h {
		in, out := p.pixels().row(y, 4*w), middle[4*y*w:][:4*w]
		for s := range 4 {
			for x := range w {
				one[x] = float64(in[4*x+3])
				if s < 3 {
					one[x] *= float64(in[4*x+s]) / 255
				}
			}
			b.line(one[:w], two[:w])
			for x := range w {
				out[4*x+s] = float32(two[x])
			}
		}
	}
	for x := range 4 * w {
		for y := range h {
			one[y] = float64(middle[4*y*w+x])
		}
		b.line(one[:h], two[:h])
		for y := range h {
			middle[4*y*w+x] = float32(two[y])
		}
	}
	for i := 0; i < len(middle); i += 4 {
		px := q.Pix[i:][:4]
		if px[3] = rounded(float64(middle[i+3])); px[3] > 0 {
			for s := range 3 {
				px[s] = rounded(float64(middle[i+s]) * 255 / float64(middle[i+3]))
			}
		}
	}
}

// Sharpen adds to each pixel what it differs from the blurred picture (unsharp masking), in
// luma where there is one.
func (p *Picture) Sharpen(sigma float64) *Picture {
	if p.Model == CMYK || p.Model == Gray && len(p.A.Pix) > 0 || p.planar() && !p.Opaque() {
		p = p.NRGBA()
	}
	soft := p.Blur(sigma)
	sharp := func(dst, src []byte) {
		for i, v := range src {
			dst[i] = clamp8(2*int32(v) - int32(dst[i]))
		}
	}
	for y := range p.Height {
		if p.planar() {
			sharp(soft.Y.row(y, p.Width), p.Y.row(y, p.Width))
			continue
		}
		out, in := soft.pixels().row(y, 4*p.Width), p.pixels().row(y, 4*p.Width)
		sharp(out, in)
		for x := 3; x < len(in); x += 4 {
			out[x] = in[x]
		}
	}
	if p.Model == YCbCr {
		soft.Cb, soft.Cr = p.Cb, p.Cr
	}
	return soft
}

// Grayscale takes the colours away, by the luma of BT.601.
func (p *Picture) Grayscale() *Picture {
	switch p.Model {
	case Gray:
		return p
	case YCbCr:
		q := *p
		q.Model, q.Sub, q.Cb, q.Cr = Gray, Sub444, Plane{}, Plane{}
		return &q
	case CMYK:
		p = p.NRGBA()
	}
	q := alloc(p.Width, p.Height, NRGBA, Sub444)
	q.ICC = p.ICC
	for y := range p.Height {
		in, out := p.pixels().row(y, 4*p.Width), q.pixels().row(y, 4*p.Width)
		for x := 0; x < len(out); x += 4 {
			l, _, _ := color.RGBToYCbCr(in[x], in[x+1], in[x+2])
			out[x], out[x+1], out[x+2], out[x+3] = l, l, l, in[x+3]
		}
	}
	return q
}

// Extend puts the picture at x, y of a larger one of one colour.
func (p *Picture) Extend(x, y, width, height int, ground color.NRGBA) *Picture {
	if x == 0 && y == 0 && width == p.Width && height == p.Height {
		return p
	}
	p = p.NRGBA()
	q := alloc(width, height, NRGBA, Sub444)
	q.ICC = p.ICC
	for i := 0; i < len(q.Pix); i += 4 {
		q.Pix[i], q.Pix[i+1], q.Pix[i+2], q.Pix[i+3] = ground.R, ground.G, ground.B, ground.A
	}
	for row := range p.Height {
		copy(q.pixels().row(y+row, 4*width)[4*x:], p.pixels().row(row, 4*p.Width))
	}
	return q
}

// Trim is what is left without even borders: rows and columns whose pixels differ by at
// most so many percent from the one in the upper left corner, in every channel. A picture that
// is even all over stays whole.
func (p *Picture) Trim(percent int) image.Rectangle {
	whole := image.Rect(0, 0, p.Width, p.Height)
	pixels := p.NRGBA()
	most := 255 * percent / 100
	border := [4]byte(pixels.Pix)
	alike := func(px []byte) bool {
		if px[3] == 0 && border[3] == 0 {
			return true // what is transparent has no colour
		}
		for i, v := range border {
			if d := int(px[i]) - int(v); d > most || d < -most {
				return false
			}
		}
		return true
	}
	var kept image.Rectangle
	for y := range p.Height {
		row := pixels.pixels().row(y, 4*p.Width)
		from, to := 0, p.Width
		for from < to && alike(row[4*from:][:4]) {
			from++
		}
		for to > from && alike(row[4*to-4:][:4]) {
			to--
		}
		if from < to {
			kept = kept.Union(image.Rect(from, y, to, y+1))
		}
	}
	if kept.Empty() {
		return whole
	}
	return kept
}
