package jpeg

import "millrace/images/picture"

// adobeNone is the Adobe marker's transform of RGB and CMYK; others mean YCbCr
// and YCCK.
const adobeNone = 0

// rgb reports whether three components are red, green and blue; the rules are
// those that libjpeg set and browsers follow.
func (d *decoder) rgb() bool {
	c := d.components
	switch {
	case d.jfif:
		return false
	case d.adobe:
		return d.transform == adobeNone
	}
	return c[0].id == 'R' && c[1].id == 'G' && c[2].id == 'B'
}

// picture makes the image of the components' samples.
func (d *decoder) picture() *picture.Picture {
	scale := 8 / d.size
	p := &picture.Picture{Width: ceilDiv(d.width, scale), Height: ceilDiv(d.height, scale)}
	switch {
	case len(d.components) == 1:
		p.Model = picture.Gray
		p.Y = d.components[0].plane(p.Height)
	case len(d.components) == 4:
		d.cmyk(p)
	case d.rgb():
		d.nrgba(p)
	default:
		d.ycbcr(p)
	}
	return p
}

// plane returns the component's samples as they are stored.
func (c *component) plane(height int) picture.Plane {
	n := c.stride * height
	return picture.Plane{Pix: c.pix[:n:n], Stride: c.stride}
}

// ycbcr makes an image of three planes. What is not sampled in one of the four
// ways that an image may be is brought to the nearest.
func (d *decoder) ycbcr(p *picture.Picture) {
	y, cb, cr := &d.components[0], &d.components[1], &d.components[2]
	sx, sy := 1, 1
	if d.hMax >= 2*cb.h && d.hMax >= 2*cr.h {
		sx = 2
	}
	if d.vMax >= 2*cb.v && d.vMax >= 2*cr.v {
		sy = 2
	}
	switch {
	case sx == 2 && sy == 2:
		p.Sub = picture.Sub420
	case sx == 2:
		p.Sub = picture.Sub422
	case sy == 2:
		p.Sub = picture.Sub440
	default:
		p.Sub = picture.Sub444
	}
	p.Y = d.resample(y, 1, 1, p)
	p.Cb = d.resample(cb, sx, sy, p)
	p.Cr = d.resample(cr, sx, sy, p)
}

// resample returns a component as a plane that has one sample for sx × sy
// pixels of p, each the stored sample that covers its middle.
func (d *decoder) resample(c *component, sx, sy int, p *picture.Picture) picture.Plane {
	width, height := ceilDiv(p.Width, sx), ceilDiv(p.Height, sy)
	if c.h*sx == d.hMax && c.v*sy == d.vMax {
		return c.plane(height)
	}
	plane := picture.Plane{Pix: make([]byte, width*height), Stride: width}
	for y := range height {
		row := plane.Pix[y*width:][:width]
		line := min((2*y+1)*sy*c.v/(2*d.vMax), c.lines-1)
		from := c.pix[line*c.stride:][:c.stride]
		for x := range row {
			row[x] = from[min((2*x+1)*sx*c.h/(2*d.hMax), c.stride-1)]
		}
	}
	return plane
}

// interleave puts components side by side, four bytes a pixel.
func (d *decoder) interleave(p *picture.Picture) {
	p.Stride = 4 * p.Width
	p.Pix = make([]byte, p.Stride*p.Height)
	for i := range d.components {
		plane := d.resample(&d.components[i], 1, 1, p)
		for y := range p.Height {
			from := plane.Pix[y*plane.Stride:][:p.Width]
			to := p.Pix[y*p.Stride:][:p.Stride]
			for x, v := range from {
				to[4*x+i] = v
			}
		}
		d.components[i].pix = nil
	}
}

func (d *decoder) nrgba(p *picture.Picture) {
	p.Model = picture.NRGBA
	d.interleave(p)
	for i := 3; i < len(p.Pix); i += 4 {
		p.Pix[i] = 255
	}
}

// cmyk makes a CMYK image. Adobe stores ink inverted, 0 being full. Of YCCK,
// the first three channels become red, green and blue, which are the inverse of
// cyan, magenta and yellow; that are themselves inverted (Adobe technical note
// 5116, 18): so only black is left to be.
func (d *decoder) cmyk(p *picture.Picture) {
	p.Model = picture.CMYK
	d.interleave(p)
	ycck := d.adobe && d.transform != adobeNone
	for i := 0; i < len(p.Pix); i += 4 {
		q := p.Pix[i : i+4 : i+4]
		if ycck {
			q[0], q[1], q[2] = rgbOf(int32(q[0]), int32(q[1]), int32(q[2]))
		} else {
			q[0], q[1], q[2] = 255-q[0], 255-q[1], 255-q[2]
		}
		q[3] = 255 - q[3]
	}
}

// rgbOf converts from YCbCr (ITU-T T.871, 7), with 16 bits after the point.
func rgbOf(y, cb, cr int32) (r, g, b uint8) {
	y = y<<16 + 1<<15
	cb -= 128
	cr -= 128
	r = clamp((y + 91881*cr) >> 16)
	g = clamp((y - 22554*cb - 46802*cr) >> 16)
	b = clamp((y + 116130*cb) >> 16)
	return r, g, b
}
