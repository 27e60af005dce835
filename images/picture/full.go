package picture

import "image/color"

// Full420 converts to 4:2:0 in full range, or gray in full range, what JPEG stores. It
// returns p itself where it is so; what may be transparent is taken to be opaque.
// Chroma is the plain average of the pixels that it stands for. CMYK goes by way
// of NRGBA, with what is said there about profiles.
func (p *Picture) Full420() *Picture {
	switch {
	case p.Model == CMYK:
		return p.NRGBA().Full420()
	case p.Model == NRGBA:
		return fullOfRGB(p)
	case p.Limited:
		p = p.fullRange(false)
	}
	if p.Model == Gray || p.Sub == Sub420 {
		q := *p
		q.A = Plane{}
		return &q
	}
	q := alloc(p.Width, p.Height, YCbCr, Sub420)
	q.ICC, q.Y = p.ICC, p.Y
	plain := *p
	plain.Limited = true // of the same range on both sides: no more than averages
	quarter(q.Cb, p.Cb, &plain)
	quarter(q.Cr, p.Cr, &plain)
	return q
}

// fullOfRGB converts NRGBA without its alpha.
func fullOfRGB(p *Picture) *Picture {
	q := alloc(p.Width, p.Height, YCbCr, Sub420)
	q.ICC = p.ICC
	cw, ch := Sub420.size(p.Width, p.Height)
	for y := range p.Height {
		src, dst := p.pixels().row(y, 4*p.Width), q.Y.row(y, p.Width)
		for x := range dst {
			dst[x], _, _ = color.RGBToYCbCr(src[4*x], src[4*x+1], src[4*x+2])
		}
	}
	for y := range ch {
		a, b := p.pixels().row(2*y, 4*p.Width), p.pixels().row(min(2*y+1, p.Height-1), 4*p.Width)
		cb, cr := q.Cb.row(y, cw), q.Cr.row(y, cw)
		for x := range cb {
			i, k := 8*x, min(8*x+4, 4*p.Width-4)
			var mean [3]uint8
			for c := range mean {
				mean[c] = uint8((int(a[i+c]) + int(a[k+c]) + int(b[i+c]) + int(b[k+c]) + 2) / 4)
			}
			_, cb[x], cr[x] = color.RGBToYCbCr(mean[0], mean[1], mean[2])
		}
	}
	return q
}

// Over puts the picture on a ground of one colour, so that nothing is transparent.
// It returns p itself where nothing is.
func (p *Picture) Over(ground color.NRGBA) *Picture {
	if p.Opaque() {
		return p
	}
	p = p.NRGBA()
	q := p.like(p.Width, p.Height, p.Sub)
	for y := range p.Height {
		src, dst := p.pixels().row(y, 4*p.Width), q.pixels().row(y, 4*p.Width)
		for x := 0; x < len(dst); x += 4 {
			over((*[4]byte)(dst[x:]), [4]byte(src[x:]), [4]byte{ground.R, ground.G, ground.B, ground.A})
		}
	}
	return q
}

// OverRow lays pixels of NRGBA on as many others.
func OverRow(dst, top []byte) {
	for x := 0; x+4 <= len(dst); x += 4 {
		px := (*[4]byte)(dst[x:])
		over(px, [4]byte(top[x:]), *px)
	}
}

// over lays a colour on another one: Porter and Duff's operator (1984), for colours
// that alpha is not multiplied into.
func over(dst *[4]byte, top, bottom [4]byte) {
	a, b := uint32(top[3]), uint32(bottom[3])
	if a == 255 || b == 0 {
		*dst = top
		return
	}
	rest := b * (255 - a) // times 255
	all := 255*a + rest
	for i := range 3 {
		dst[i] = byte((255*a*uint32(top[i]) + rest*uint32(bottom[i]) + all/2) / all)
	}
	dst[3] = byte((all + 127) / 255)
}
