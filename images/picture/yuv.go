package picture

import "encoding/binary"

// The fixed-point numbers below are of ITU-R BT.601-7 (2.5.1 and 2.5.2: Kr
// 0.299, Kg 0.587, Kb 0.114) with 16 bits after the point, for full range as in
// JFIF 1.02 (page 3) and for 219 and 224 steps.

// table maps every sample to another.
type table [256]byte

func identity() *table {
	var t table
	for i := range t {
		t[i] = byte(i)
	}
	return &t
}

// expandTables map limited range to full: luma and chroma.
func expandTables() (luma, chroma *table) {
	luma, chroma = new(table), new(table)
	for i := range int32(256) {
		luma[i] = clamp8((max(i-16, 0)*255*2 + 219) / (219 * 2))
		// The offset of 256 keeps the division's operand positive.
		chroma[i] = clamp8((2*255*(i-128)+256*2*224+224)/(2*224) - 256 + 128)
	}
	return luma, chroma
}

// apply writes every sample's entry in a table; it may work in place.
func apply(dst, src Plane, w, h int, t *table) {
	for y := range h {
		s := src.row(y, w)
		d := dst.row(y, w)[:len(s)]
		for i, v := range s {
			d[i] = t[v]
		}
	}
}

// limitedRange is a map of full to limited range, dst = (src·mul + add)/255 rounded,
// as numbers for eight samples at once: they are worked on in lanes of 16 bits,
// which none of the products exceeds. Exact, and at 3 operations a sample
// quicker than a table's load for each.
type limitedRange struct{ mul, add uint64 }

// lanes repeats a number in the four lanes.
const lanes = 0x0001_0001_0001_0001

// limitedLuma is 16 + y·219/255, limitedChroma is 128 + (c-128)·224/255. Both with
// half a step added, for rounding.
func limitedLuma() limitedRange   { return limitedRange{219, (16*255 + 127) * lanes} }
func limitedChroma() limitedRange { return limitedRange{224, (128*255 - 128*224 + 127) * lanes} }

// sample does one sample. x/255 is (x+1 + x/256)/256 for x below 65,535.
func (n limitedRange) sample(v byte) byte {
	x := uint32(v)*uint32(n.mul) + uint32(n.add&0xffff)
	return byte((x + 1 + x>>8) >> 8)
}

// row does a row of samples.
func (n limitedRange) row(dst, src []byte) {
	const bytes = 0x00ff_00ff_00ff_00ff
	dst = dst[:len(src)]
	for len(src) >= 8 && len(dst) >= 8 {
		v := binary.LittleEndian.Uint64(src)
		a := (v&bytes)*n.mul + n.add
		b := (v>>8&bytes)*n.mul + n.add
		a = (a + lanes + a>>8&bytes) >> 8 & bytes
		b = (b + lanes + b>>8&bytes) &^ bytes
		binary.LittleEndian.PutUint64(dst, a|b)
		src, dst = src[8:], dst[8:]
	}
	for i, v := range src {
		dst[i] = n.sample(v)
	}
}

func (n limitedRange) plane(dst, src Plane, w, h int) {
	for y := range h {
		n.row(dst.row(y, w), src.row(y, w))
	}
}

func copyPlane(dst, src Plane, w, h int) {
	for y := range h {
		copy(dst.row(y, w), src.row(y, w))
	}
}

// NRGBA converts to the NRGBA model, and returns p itself if it is of that. It
// repeats chroma samples for the pixels they stand for, so that averaging them
// again gives them back. CMYK without a profile is converted naively, R =
// (255-C)(255-K)/255. A profile that is not of RGB (ICC.1:2010, 7.2.6) would be
// wrong for the result and is left out: convert such pictures by it before.
func (p *Picture) NRGBA() *Picture {
	if p.Model == NRGBA {
		return p
	}
	q := alloc(p.Width, p.Height, NRGBA, Sub444)
	q.ICC = p.profile()
	c := fullCoefficients()
	if p.Limited {
		c = limitedCoefficients()
	}
	sx, sy := p.Sub.shifts()
	cw, _ := p.Sub.size(p.Width, p.Height)
	wide := make([]byte, 2*(p.Width+1)) // one row of chroma, once for each pixel
	cb, cr := wide[:p.Width], wide[p.Width+1:][:p.Width]
	luma := identity()
	if p.Limited {
		luma, _ = expandTables()
	}
	for y := range p.Height {
		dst := q.pixels().row(y, q.Stride)
		switch {
		case p.Model == CMYK:
			cmykRow(dst, p.pixels().row(y, q.Stride))
		case p.Model == Gray:
			grayRow(dst, p.Y.row(y, p.Width), luma)
		case sx == 0:
			c.row(dst, p.Y.row(y, p.Width), p.Cb.row(y>>sy, cw), p.Cr.row(y>>sy, cw))
		default:
			if y>>sy<<sy == y {
				double(cb, p.Cb.row(y>>sy, cw))
				double(cr, p.Cr.row(y>>sy, cw))
			}
			c.row(dst, p.Y.row(y, p.Width), cb, cr)
		}
		if p.planar() && len(p.A.Pix) > 0 {
			for x, a := range p.A.row(y, p.Width) {
				dst[4*x+3] = a
			}
		}
	}
	return q
}

// profile is the picture's profile if RGB can be in it.
func (p *Picture) profile() []byte {
	if p.Model == YCbCr || p.Model == NRGBA || len(p.ICC) >= 20 && string(p.ICC[16:20]) == "RGB " {
		return p.ICC
	}
	return nil
}

// coefficients of YCbCr to RGB: luma's offset and gain, then what chroma adds.
type coefficients struct{ offset, y, crR, cbG, crG, cbB int32 }

func fullCoefficients() coefficients {
	return coefficients{0, 65536, 91881, 22554, 46802, 116130}
}

func limitedCoefficients() coefficients {
	return coefficients{16, 76309, 104597, 25675, 53279, 132201}
}

// row converts a row; alpha becomes 255.
func (c *coefficients) row(dst, y, cb, cr []byte) {
	cb, cr = cb[:len(y)], cr[:len(y)]
	k := *c
	base := int32(1<<15) - k.offset*k.y
	for i, v := range y {
		if len(dst) < 4 {
			return
		}
		l := int32(v)*k.y + base
		b, r := int32(cb[i])-128, int32(cr[i])-128
		red, green, blue := clamp8((l+k.crR*r)>>16), clamp8((l-k.cbG*b-k.crG*r)>>16), clamp8((l+k.cbB*b)>>16)
		binary.LittleEndian.PutUint32(dst, uint32(red)|uint32(green)<<8|uint32(blue)<<16|255<<24)
		dst = dst[4:]
	}
}

// double repeats every sample of src; dst may be one shorter than that.
func double(dst, src []byte) {
	for len(dst) >= 2 && len(src) >= 1 {
		dst[0], dst[1] = src[0], src[0]
		dst, src = dst[2:], src[1:]
	}
	if len(dst) == 1 {
		dst[0] = src[0]
	}
}

func grayRow(dst, y []byte, luma *table) {
	for _, v := range y {
		if len(dst) < 4 {
			return
		}
		l := luma[v]
		dst[0], dst[1], dst[2], dst[3] = l, l, l, 255
		dst = dst[4:]
	}
}

func cmykRow(dst, src []byte) {
	for len(dst) >= 4 && len(src) >= 4 {
		k := uint32(255 - src[3])
		dst[0] = byte((uint32(255-src[0])*k + 127) / 255)
		dst[1] = byte((uint32(255-src[1])*k + 127) / 255)
		dst[2] = byte((uint32(255-src[2])*k + 127) / 255)
		dst[3] = 255
		dst, src = dst[4:], src[4:]
	}
}
