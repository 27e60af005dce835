// Package picture holds decoded pixels in the layout that the codecs want them
// in, and does to them what a web server has to: turning, cropping, scaling,
// and the conversions between colour models. It knows no file format.
//
// All functions are for one goroutine at a time on one picture, take time and
// memory in proportion to its pixels, and start no goroutines. None returns an
// error: what they are given is a picture whose fields fit together, and the
// limits on sizes are its decoder's.
package picture

import (
	"encoding/binary"
	"image"
)

// Model is how a picture's pixels are stored.
type Model uint8

// The models. What has one sample a channel of 8 bits.
const (
	// YCbCr has planes: luma, and two of chroma that may be smaller. Gray has
	// only the first. ITU-R BT.601 coefficients, as in JFIF.
	YCbCr Model = iota
	Gray
	// NRGBA has four bytes a pixel, alpha not multiplied in.
	NRGBA
	// CMYK has four bytes a pixel, 255 meaning full ink.
	CMYK
)

// Subsampling is the size of chroma planes in terms of the luma plane's. A
// chroma sample lies in the middle of the pixels it stands for (JFIF 1.02,
// page 5); in pictures of an odd size the last one stands for fewer of them.
type Subsampling uint8

// Subsamplings: 4:4:4 full, 4:2:2 half the width, 4:2:0 half of both, 4:4:0
// half the height. Odd sizes are rounded up.
const (
	Sub444 Subsampling = iota
	Sub422
	Sub420
	Sub440
)

// shifts returns by how many bits chroma's width and height are smaller.
func (s Subsampling) shifts() (x, y int) {
	switch s {
	case Sub422:
		return 1, 0
	case Sub420:
		return 1, 1
	case Sub440:
		return 0, 1
	}
	return 0, 0
}

// subsampling is the inverse of shifts.
func subsampling(x, y int) Subsampling {
	return [2][2]Subsampling{{Sub444, Sub440}, {Sub422, Sub420}}[x][y]
}

// size is that of the chroma planes of a picture of width × height.
func (s Subsampling) size(width, height int) (w, h int) {
	x, y := s.shifts()
	return (width + x) >> x, (height + y) >> y
}

// Picture is a decoded picture. Its fields must fit together; the functions of
// this package return pictures that do, and never change the one they are given.
// What they return may share its memory.
type Picture struct {
	Width, Height int // in pixels, at least 1
	Model         Model
	Sub           Subsampling // of YCbCr
	// Limited says that luma goes from 16 to 235 and chroma from 16 to 240
	// (BT.601, what VP8 demands) instead of the full range of JFIF. Of YCbCr
	// and Gray.
	Limited bool

	Y, Cb, Cr Plane // YCbCr and Gray
	// A is the alpha plane of YCbCr and Gray, of the luma plane's size, always
	// of full range; empty when all is opaque.
	A Plane

	Pix    []byte // NRGBA and CMYK
	Stride int    // bytes from one row of Pix to the next

	// ICC is the colour profile that the samples are in; nil is sRGB.
	ICC []byte
}

// Plane is one channel. The last row may end with its last sample, without the
// rest of the stride.
type Plane struct {
	Pix    []byte
	Stride int
}

// row is row y, w bytes of it.
func (pl Plane) row(y, w int) []byte {
	o := y * pl.Stride
	return pl.Pix[o : o+w : o+w]
}

// New allocates a picture of black (transparent, for NRGBA) pixels of full
// range. The planes of YCbCr are contiguous in memory in the order Y, Cb, Cr,
// without padding. Sizes below 1 are taken as 1; sub is of YCbCr alone.
func New(width, height int, m Model, sub Subsampling) *Picture {
	p := alloc(width, height, m, sub)
	switch m {
	case YCbCr:
		fill(p.Cb.Pix, 128)
		fill(p.Cr.Pix, 128)
	case CMYK:
		for i := 3; i < len(p.Pix); i += 4 {
			p.Pix[i] = 255
		}
	}
	return p
}

// alloc is New with whatever zeroes mean: for pictures that are filled next.
func alloc(width, height int, m Model, sub Subsampling) *Picture {
	width, height = max(width, 1), max(height, 1)
	p := &Picture{Width: width, Height: height, Model: m}
	n := width * height
	switch m {
	case Gray:
		p.Y = Plane{make([]byte, n), width}
	case YCbCr:
		p.Sub = sub
		cw, ch := sub.size(width, height)
		b := make([]byte, n+2*cw*ch)
		p.Y = Plane{b[:n], width}
		p.Cb = Plane{b[n : n+cw*ch], cw}
		p.Cr = Plane{b[n+cw*ch:], cw}
	default:
		p.Pix, p.Stride = make([]byte, 4*n), 4*width
	}
	return p
}

// like is a picture of the same kind as p, of another size and subsampling,
// with an alpha plane if p has one.
func (p *Picture) like(width, height int, sub Subsampling) *Picture {
	q := alloc(width, height, p.Model, sub)
	q.Limited, q.ICC = p.Limited, p.ICC
	if p.planar() && len(p.A.Pix) > 0 {
		q.A = Plane{make([]byte, width*height), width}
	}
	return q
}

// planar reports whether the pixels are in planes rather than in Pix.
func (p *Picture) planar() bool { return p.Model == YCbCr || p.Model == Gray }

// pixels is Pix as a plane of 4·Width bytes a row.
func (p *Picture) pixels() Plane { return Plane{p.Pix, p.Stride} }

// Opaque reports whether no pixel is transparent. It looks at the pixels.
func (p *Picture) Opaque() bool {
	switch {
	case p.Model == CMYK:
		return true
	case p.Model == NRGBA:
		for y := range p.Height {
			if !opaque4(p.pixels().row(y, 4*p.Width)) {
				return false
			}
		}
	case len(p.A.Pix) > 0:
		return opaquePlane(p.A, p.Width, p.Height)
	}
	return true
}

// opaque4 reports whether every fourth byte is 255.
func opaque4(row []byte) bool {
	all := ^uint64(0)
	for ; len(row) >= 8; row = row[8:] {
		all &= binary.LittleEndian.Uint64(row)
	}
	const alphas = 0xff000000_ff000000
	return all&alphas == alphas && (len(row) < 4 || row[3] == 255)
}

func opaquePlane(a Plane, w, h int) bool {
	for y := range h {
		row, all := a.row(y, w), ^uint64(0)
		for ; len(row) >= 8; row = row[8:] {
			all &= binary.LittleEndian.Uint64(row)
		}
		for _, v := range row {
			all &= uint64(v) | ^uint64(0xff)
		}
		if all != ^uint64(0) {
			return false
		}
	}
	return true
}

// Crop cuts out a rectangle, sharing the picture's memory. It must lie inside;
// if it does not, it is cut to the part that does, and to the nearest pixel if
// there is none. For subsampled pictures its corner is moved up and to the left
// to the next even place where chroma demands it; its size stays.
func (p *Picture) Crop(r image.Rectangle) *Picture {
	r.Min.X, r.Max.X = clampRange(r.Min.X, r.Max.X, p.Width)
	r.Min.Y, r.Max.Y = clampRange(r.Min.Y, r.Max.Y, p.Height)
	q := *p
	q.Width, q.Height = r.Dx(), r.Dy()
	if !p.planar() {
		q.Pix = cut(p.pixels(), 4*r.Min.X, r.Min.Y, 4*q.Width, q.Height).Pix
		return &q
	}
	x, y := r.Min.X, r.Min.Y
	if p.Model == YCbCr {
		sx, sy := p.Sub.shifts()
		x, y = x>>sx<<sx, y>>sy<<sy
		cw, ch := p.Sub.size(q.Width, q.Height)
		q.Cb = cut(p.Cb, x>>sx, y>>sy, cw, ch)
		q.Cr = cut(p.Cr, x>>sx, y>>sy, cw, ch)
	}
	q.Y = cut(p.Y, x, y, q.Width, q.Height)
	if len(p.A.Pix) > 0 {
		q.A = cut(p.A, x, y, q.Width, q.Height)
	}
	return &q
}

// clampRange puts lo and hi inside of 0…n, at least 1 apart.
func clampRange(lo, hi, n int) (from, to int) {
	from = min(max(lo, 0), n-1)
	return from, min(max(hi, from+1), n)
}

func cut(pl Plane, x, y, w, h int) Plane {
	o := y*pl.Stride + x
	end := o + (h-1)*pl.Stride + w
	return Plane{pl.Pix[o:end:end], pl.Stride}
}

// Bytes is the memory that the pixels take, the padding of their rows included.
func (p *Picture) Bytes() int64 {
	n := len(p.Y.Pix) + len(p.Cb.Pix) + len(p.Cr.Pix) + len(p.A.Pix) + len(p.Pix)
	return int64(n)
}

// fill sets every byte, at the speed of copy.
func fill(b []byte, v byte) {
	const first = 4096 // stays in the first-level cache as the source of the rest
	head := b[:min(first, len(b))]
	for i := range head {
		head[i] = v
	}
	for n := len(head); n < len(b); n += first {
		copy(b[n:], head)
	}
}

func clamp8(v int32) byte {
	if uint32(v) <= 255 {
		return byte(v)
	}
	return byte(^(v >> 31)) // below 0 it is 0, above 255 it is 255
}
