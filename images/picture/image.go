package picture

import (
	"image"
	"image/color"
)

// FromImage converts what the standard library's decoders return: palettes,
// 16 bits, premultiplied alpha, gray. YCbCr, NYCbCrA, Gray, NRGBA, CMYK and
// opaque RGBA share the image's memory. 4:1:1 becomes 4:2:2 and 4:1:0 becomes
// 4:2:0, by repeating samples, as the standard library shows them; YCbCr that
// was cut between the pixels of one chroma sample becomes 4:4:4. Alpha that is
// 255 everywhere is left out. An empty image becomes one transparent pixel.
//
// The image's YCbCr is taken to be of full range, as the standard library has
// it. Decoders of WebP (those of golang.org/x/image, too) return VP8's limited
// range in that type: set Limited then.
func FromImage(m image.Image) *Picture {
	b := m.Bounds()
	if b.Empty() {
		return New(1, 1, NRGBA, Sub444)
	}
	w, h := b.Dx(), b.Dy()
	switch m := m.(type) {
	case *image.YCbCr:
		return fromYCbCr(m)
	case *image.NYCbCrA:
		p := fromYCbCr(&m.YCbCr)
		a := cut(Plane{m.A, m.AStride}, m.AOffset(b.Min.X, b.Min.Y), 0, w, h)
		if !opaquePlane(a, w, h) {
			p.A = a
		}
		return p
	case *image.Gray:
		o := m.PixOffset(b.Min.X, b.Min.Y)
		return &Picture{Width: w, Height: h, Model: Gray, Y: cut(Plane{m.Pix, m.Stride}, o, 0, w, h)}
	case *image.NRGBA:
		return packed(NRGBA, w, h, cut(Plane{m.Pix, m.Stride}, m.PixOffset(b.Min.X, b.Min.Y), 0, 4*w, h))
	case *image.CMYK:
		return packed(CMYK, w, h, cut(Plane{m.Pix, m.Stride}, m.PixOffset(b.Min.X, b.Min.Y), 0, 4*w, h))
	case *image.RGBA:
		return fromRGBA(packed(NRGBA, w, h, cut(Plane{m.Pix, m.Stride}, m.PixOffset(b.Min.X, b.Min.Y), 0, 4*w, h)))
	}
	return convertRows(m, w, h)
}

func packed(m Model, w, h int, pl Plane) *Picture {
	return &Picture{Width: w, Height: h, Model: m, Pix: pl.Pix, Stride: pl.Stride}
}

// fromRGBA divides by alpha; p holds premultiplied pixels. What has more colour
// than alpha, which is invalid, becomes 255.
func fromRGBA(p *Picture) *Picture {
	if p.Opaque() {
		return p
	}
	q := alloc(p.Width, p.Height, NRGBA, Sub444)
	for y := range p.Height {
		src, dst := p.pixels().row(y, 4*p.Width), q.pixels().row(y, 4*p.Width)
		for len(src) >= 4 && len(dst) >= 4 {
			switch a := uint32(src[3]); a {
			case 0: // stays transparent black
			case 255:
				copy(dst[:4], src[:4])
			default:
				dst[0] = divide(src[0], a)
				dst[1] = divide(src[1], a)
				dst[2] = divide(src[2], a)
				dst[3] = byte(a)
			}
			src, dst = src[4:], dst[4:]
		}
	}
	return q
}

func divide(c byte, a uint32) byte { return byte(min((uint32(c)*255+a/2)/a, 255)) }

// convertRows does the types whose layout is none of ours.
func convertRows(m image.Image, w, h int) *Picture {
	if g, ok := m.(*image.Gray16); ok {
		p := alloc(w, h, Gray, Sub444)
		for y := range h {
			dst, src := p.Y.row(y, w), g.Pix[y*g.Stride:][:2*w]
			for x := range dst {
				dst[x] = to8(src[2*x], src[2*x+1])
			}
		}
		return p
	}
	p := alloc(w, h, NRGBA, Sub444)
	convert := rowConverter(m)
	for y := range h {
		convert(p.pixels().row(y, 4*w), y)
	}
	return p
}

// rowConverter returns what writes an image's row, counted from its top, into
// four bytes a pixel.
func rowConverter(m image.Image) func(dst []byte, y int) {
	b := m.Bounds()
	switch m := m.(type) {
	case *image.Paletted:
		var table [256][4]byte // an index beyond the palette is transparent
		for i, c := range m.Palette[:min(len(m.Palette), len(table))] {
			v := color.NRGBAModel.Convert(c).(color.NRGBA)
			table[i] = [4]byte{v.R, v.G, v.B, v.A}
		}
		return func(dst []byte, y int) {
			for _, i := range m.Pix[y*m.Stride:][:b.Dx()] {
				*(*[4]byte)(dst) = table[i]
				dst = dst[4:]
			}
		}
	case *image.NRGBA64:
		return func(dst []byte, y int) {
			src := m.Pix[y*m.Stride:][:2*len(dst)]
			for i := range dst {
				dst[i] = to8(src[2*i], src[2*i+1])
			}
		}
	case *image.RGBA64:
		return func(dst []byte, y int) { rgba64Row(dst, m.Pix[y*m.Stride:][:2*len(dst)]) }
	case *image.Alpha:
		return func(dst []byte, y int) {
			for x, a := range m.Pix[y*m.Stride:][:b.Dx()] {
				dst[4*x], dst[4*x+1], dst[4*x+2], dst[4*x+3] = 255, 255, 255, a
			}
		}
	}
	return func(dst []byte, y int) {
		for x := range b.Dx() {
			c := color.NRGBAModel.Convert(m.At(b.Min.X+x, b.Min.Y+y)).(color.NRGBA)
			dst[4*x], dst[4*x+1], dst[4*x+2], dst[4*x+3] = c.R, c.G, c.B, c.A
		}
	}
}

// to8 rounds a sample of 16 bits, which has the more significant byte first.
func to8(hi, lo byte) byte {
	return byte(((uint32(hi)<<8|uint32(lo))*255 + 32895) >> 16)
}

// rgba64Row divides by alpha, in 16 bits.
func rgba64Row(dst, src []byte) {
	for len(dst) >= 4 && len(src) >= 8 {
		a := uint32(src[6])<<8 | uint32(src[7])
		if a > 0 {
			for i := range 3 {
				c := uint32(src[2*i])<<8 | uint32(src[2*i+1])
				dst[i] = byte((min(c, a)*255 + a/2) / a)
			}
			dst[3] = to8(src[6], src[7])
		}
		dst, src = dst[4:], src[8:]
	}
}

// fromYCbCr shares the image's planes if they are of one of our layouts.
func fromYCbCr(m *image.YCbCr) *Picture {
	b := m.Rect
	w, h := b.Dx(), b.Dy()
	p := &Picture{Width: w, Height: h, Model: YCbCr}
	p.Y = cut(Plane{m.Y, m.YStride}, m.YOffset(b.Min.X, b.Min.Y), 0, w, h)
	sx, sy := ratioShifts(m.SubsampleRatio)
	tx, ty := aligned(sx, b.Min.X), aligned(sy, b.Min.Y)
	p.Sub = subsampling(tx, ty)
	cw, ch := p.Sub.size(w, h)
	o := m.COffset(b.Min.X, b.Min.Y)
	if tx == sx && ty == sy {
		p.Cb = cut(Plane{m.Cb, m.CStride}, o, 0, cw, ch)
		p.Cr = cut(Plane{m.Cr, m.CStride}, o, 0, cw, ch)
		return p
	}
	p.Cb, p.Cr = Plane{make([]byte, cw*ch), cw}, Plane{make([]byte, cw*ch), cw}
	columns := make([]int, cw)
	for x := range columns {
		columns[x] = m.COffset(b.Min.X+x<<tx, b.Min.Y)
	}
	for y := range ch {
		o := m.COffset(b.Min.X, b.Min.Y+y<<ty) - columns[0]
		cb, cr := p.Cb.row(y, cw), p.Cr.row(y, cw)
		for x, c := range columns {
			cb[x], cr[x] = m.Cb[o+c], m.Cr[o+c]
		}
	}
	return p
}

func ratioShifts(r image.YCbCrSubsampleRatio) (x, y int) {
	switch r {
	case image.YCbCrSubsampleRatio422:
		return 1, 0
	case image.YCbCrSubsampleRatio420:
		return 1, 1
	case image.YCbCrSubsampleRatio440:
		return 0, 1
	case image.YCbCrSubsampleRatio411:
		return 2, 0
	case image.YCbCrSubsampleRatio410:
		return 2, 1
	}
	return 0, 0
}

// aligned is how far an axis may be subsampled if the picture begins at origin.
// The standard library rounds chroma's places towards 0, so that they are
// irregular below it.
func aligned(shift, origin int) int {
	if shift == 0 || origin < 0 || origin%2 != 0 {
		return 0
	}
	return 1
}

// Image returns the picture as an image of the standard library, with the
// colours it is to be shown in, sharing memory where the layouts agree: for
// pictures of limited range, for gray ones with alpha and for chroma planes of
// two strides they do not.
func (p *Picture) Image() image.Image {
	r := image.Rect(0, 0, p.Width, p.Height)
	alpha := len(p.A.Pix) > 0
	switch {
	case p.Model == NRGBA:
		return &image.NRGBA{Pix: p.Pix, Stride: p.Stride, Rect: r}
	case p.Model == CMYK:
		return &image.CMYK{Pix: p.Pix, Stride: p.Stride, Rect: r}
	case p.Limited, alpha && p.Model == Gray, p.Cb.Stride != p.Cr.Stride:
		return p.fullRange(alpha && p.Model == Gray).Image()
	case p.Model == Gray:
		return &image.Gray{Pix: p.Y.Pix, Stride: p.Y.Stride, Rect: r}
	}
	m := image.YCbCr{
		Y: p.Y.Pix, Cb: p.Cb.Pix, Cr: p.Cr.Pix, YStride: p.Y.Stride, CStride: p.Cb.Stride,
		SubsampleRatio: [...]image.YCbCrSubsampleRatio{
			Sub444: image.YCbCrSubsampleRatio444, Sub422: image.YCbCrSubsampleRatio422,
			Sub420: image.YCbCrSubsampleRatio420, Sub440: image.YCbCrSubsampleRatio440,
		}[p.Sub],
		Rect: r,
	}
	if alpha {
		return &image.NYCbCrA{YCbCr: m, A: p.A.Pix, AStride: p.A.Stride}
	}
	return &m
}

// fullRange copies planes into new ones of full range and equal strides; packed
// asks for NRGBA instead.
func (p *Picture) fullRange(packed bool) *Picture {
	if packed {
		return p.NRGBA()
	}
	q := alloc(p.Width, p.Height, p.Model, p.Sub)
	q.ICC, q.A = p.ICC, p.A
	luma, chroma := identity(), identity()
	if p.Limited {
		luma, chroma = expandTables()
	}
	apply(q.Y, p.Y, p.Width, p.Height, luma)
	if p.Model == YCbCr {
		cw, ch := p.Sub.size(p.Width, p.Height)
		apply(q.Cb, p.Cb, cw, ch, chroma)
		apply(q.Cr, p.Cr, cw, ch, chroma)
	}
	return q
}
