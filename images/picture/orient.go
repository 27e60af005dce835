package picture

import (
	"encoding/binary"
	"math/bits"
)

// Orient applies an EXIF orientation, 1 to 8 (TIFF 6.0, section 8, and EXIF
// 2.32, 4.6.4). 1 and unknown values return p itself.
//
// No sample changes: every pixel is shown elsewhere with the colour it had. So a
// quarter turn makes 4:4:0 of 4:2:2 and the reverse; and where an axis of an odd
// size is mirrored, whose pairs of pixels would then begin with the lone last
// one, chroma gets one sample for each pixel of that axis.
func (p *Picture) Orient(exif int) *Picture {
	if exif < 2 || exif > 8 {
		return p
	}
	// The picture as stored is mirrored first, then its axes are exchanged.
	mirrorX := exif == 2 || exif == 3 || exif == 7 || exif == 8
	mirrorY := exif == 3 || exif == 4 || exif == 6 || exif == 7
	swap := exif >= 5
	if p.Model == YCbCr {
		sx, sy := p.Sub.shifts()
		p = p.upsampleChroma(sx == 1 && mirrorX && p.Width%2 == 1, sy == 1 && mirrorY && p.Height%2 == 1)
	}
	w, h, sub := p.Width, p.Height, p.Sub
	if swap {
		w, h = h, w
		sx, sy := sub.shifts()
		sub = subsampling(sy, sx)
	}
	q := p.like(w, h, sub)
	t := turn{mirrorX, mirrorY, swap}
	switch {
	case !p.planar():
		t.pixels(q.pixels(), p.pixels(), p.Width, p.Height)
		return q
	case p.Model == YCbCr:
		cw, ch := p.Sub.size(p.Width, p.Height)
		t.plane(q.Cb, p.Cb, cw, ch)
		t.plane(q.Cr, p.Cr, cw, ch)
	}
	t.plane(q.Y, p.Y, p.Width, p.Height)
	if len(p.A.Pix) > 0 {
		t.plane(q.A, p.A, p.Width, p.Height)
	}
	return q
}

// upsampleChroma gives chroma a sample for each column or row, or both.
func (p *Picture) upsampleChroma(x, y bool) *Picture {
	if !x && !y {
		return p
	}
	q := *p
	sx, sy := p.Sub.shifts()
	tx, ty := sx, sy
	if x {
		tx = 0
	}
	if y {
		ty = 0
	}
	q.Sub = subsampling(tx, ty)
	sw, _ := p.Sub.size(p.Width, p.Height)
	w, h := q.Sub.size(p.Width, p.Height)
	repeat := func(src Plane) Plane {
		dst := Plane{make([]byte, w*h), w}
		for i := range h {
			s := src.row(i>>(sy-ty), sw)
			if x {
				double(dst.row(i, w), s)
			} else {
				copy(dst.row(i, w), s)
			}
		}
		return dst
	}
	q.Cb, q.Cr = repeat(p.Cb), repeat(p.Cr)
	return &q
}

// turn mirrors the columns, the rows, and then exchanges them.
type turn struct{ mirrorX, mirrorY, swap bool }

// tile is the side of the squares that axes are exchanged in: 64 rows of the
// source and 64 of the result, a line of the cache each, fit its first level.
const tile = 64

// plane turns one byte a sample; w and h are the source's.
func (t turn) plane(dst, src Plane, w, h int) {
	if !t.swap {
		for y := range h {
			s, d := src.row(t.sourceRow(y, h), w), dst.row(y, w)
			if t.mirrorX {
				reverse(d, s)
			} else {
				copy(d, s)
			}
		}
		return
	}
	for y := 0; y < h; y += tile {
		for x := 0; x < w; x += tile {
			t.tile(dst, src, [2]int{w, h}, [2]int{x, y})
		}
	}
}

// sourceRow is the row of the source that becomes the one with this number.
func (t turn) sourceRow(y, h int) int {
	if t.mirrorY {
		return h - 1 - y
	}
	return y
}

// tile exchanges the axes of a square of the source, 8×8 samples at a time. at
// counts columns as stored and rows as mirrored, so the result's columns.
func (t turn) tile(dst, src Plane, size, at [2]int) {
	w, h := size[0], size[1]
	endX, endY := min(at[0]+tile, w), min(at[1]+tile, h)
	fullX, fullY := endX&^7, endY&^7
	for y := at[1]; y < fullY; y += 8 {
		from, step := t.sourceRow(y, h)*src.Stride, src.Stride
		if t.mirrorY {
			step = -step
		}
		for x := at[0]; x < fullX; x += 8 {
			var m [8]uint64
			o := from + x
			for i := range m {
				m[i] = binary.LittleEndian.Uint64(src.Pix[o:])
				o += step
			}
			transpose(&m)
			o, down := x*dst.Stride+y, dst.Stride
			if t.mirrorX {
				o, down = (w-1-x)*dst.Stride+y, -down
			}
			for i := range m {
				binary.LittleEndian.PutUint64(dst.Pix[o:], m[i])
				o += down
			}
		}
	}
	// What is left at the right and the lower edge.
	for y := at[1]; y < endY; y++ {
		s := src.row(t.sourceRow(y, h), w)
		x := at[0]
		if y < fullY {
			x = max(x, fullX)
		}
		for ; x < endX; x++ {
			to := x
			if t.mirrorX {
				to = w - 1 - x
			}
			dst.Pix[to*dst.Stride+y] = s[x]
		}
	}
}

// transpose exchanges rows and columns of 8×8 bytes: quarters of 4×4, then of
// 2×2, then single bytes.
func transpose(m *[8]uint64) {
	for i := range 4 {
		a, b := m[i], m[i+4]
		t := (a>>32 ^ b) & 0x00000000_ffffffff
		m[i], m[i+4] = a^t<<32, b^t
	}
	for _, i := range [4]int{0, 1, 4, 5} {
		a, b := m[i], m[(i+2)&7]
		t := (a>>16 ^ b) & 0x0000ffff_0000ffff
		m[i], m[(i+2)&7] = a^t<<16, b^t
	}
	for i := 0; i < 8; i += 2 {
		a, b := m[i], m[i+1]
		t := (a>>8 ^ b) & 0x00ff00ff_00ff00ff
		m[i], m[i+1] = a^t<<8, b^t
	}
}

// reverse writes src backwards.
func reverse(dst, src []byte) {
	dst = dst[:len(src)]
	for len(src) >= 8 && len(dst) >= 8 {
		v := binary.LittleEndian.Uint64(src)
		binary.LittleEndian.PutUint64(dst[len(dst)-8:], bits.ReverseBytes64(v))
		src, dst = src[8:], dst[:len(dst)-8]
	}
	for i, v := range src {
		dst[len(dst)-1-i] = v
	}
}

// pixels turns four bytes a pixel; w and h are the source's, in pixels.
func (t turn) pixels(dst, src Plane, w, h int) {
	if !t.swap {
		for y := range h {
			s, d := src.row(t.sourceRow(y, h), 4*w), dst.row(y, 4*w)
			if !t.mirrorX {
				copy(d, s)
				continue
			}
			for len(s) >= 4 && len(d) >= 4 {
				*(*[4]byte)(d[len(d)-4:]) = [4]byte(s)
				s, d = s[4:], d[:len(d)-4]
			}
		}
		return
	}
	const side = tile / 4 // a line of the cache holds 16 pixels
	for y0 := 0; y0 < h; y0 += side {
		for x0 := 0; x0 < w; x0 += side {
			for y := y0; y < min(y0+side, h); y++ {
				s := src.row(t.sourceRow(y, h), 4*w)[4*x0 : 4*min(x0+side, w)]
				o, down := x0*dst.Stride+4*y, dst.Stride
				if t.mirrorX {
					o, down = (w-1-x0)*dst.Stride+4*y, -down
				}
				for ; len(s) >= 4; s = s[4:] {
					*(*[4]byte)(dst.Pix[o:]) = [4]byte(s)
					o += down
				}
			}
		}
	}
}
