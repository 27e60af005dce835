package icc

import (
	"encoding/binary"

	"millrace/images/picture"
)

// A simplex converts by a grid over the device values: what the profile
// makes of its points is computed once, with all curves and the way to sRGB in
// it, and pixels are interpolated between the corners of the simplex that they
// lie in (a tetrahedron with three inputs), found by sorting the distances
// (Kasson, Plouffe, Nin: A tetrahedral interpolation technique for color
// space conversion, SPIE 1909, 1993).
//
// The three channels lie in one word. Points out of gamut keep their place
// there and are clipped after the interpolation, or colours near the gamut's
// edge would shift.
type simplex struct {
	inputs int
	nodes  []uint64
	// axes has, for each input and level, where its cell begins in nodes, and a
	// key that sorts by the distance from there: the distance in 256ths above
	// 32 bits, the step to the next point in nodes below.
	axes [maxInputs][256]axis
	out  [1 << nodeBits]byte
	// exact is set instead of nodes for pictures of fewer pixels than a grid has.
	exact *Profile
}

type axis struct {
	base uint64
	key  uint64
}

const (
	nodeBits = 13 // of a channel of a node
	// nodeLevel is one of 255 levels in nodes, so they reach from -1 to 3 times white.
	nodeLevel = 8
	nodeZero  = 256 * nodeLevel
	nodeField = nodeBits + 8 // with a weight of up to 256; three fit a word
	nodeMask  = 1<<nodeBits - 1
	// nodeHalf rounds the sum of three channels, which is cut at the weight's bits.
	nodeHalf = 128 | 128<<nodeField | 128<<(2*nodeField)
)

// points chooses the number of grid points along each input: enough for sRGB
// (33, or 17 with four inputs), and, where that is affordable, all those of the
// profile's own grid, between which it is linear.
func (l *lut) points() int {
	enough, most := 33, 61
	if l.inputs == 4 {
		enough, most = 17, 21
	}
	own := 0
	if l.grid != nil {
		for _, n := range l.grid.points {
			own = max(own, n)
		}
	}
	if own < 2 {
		return enough
	}
	n := own
	for n < enough {
		n += own - 1
	}
	if n > most {
		return enough
	}
	return n
}

func (p *Profile) newSimplex(pic *picture.Picture) *simplex {
	s := &simplex{inputs: p.inputs()}
	n := p.table.points()
	count := 1
	for range s.inputs {
		count *= n
	}
	if pic.Width*pic.Height < count {
		s.exact = p
		return s
	}
	s.nodes = make([]uint64, count)
	var device [maxInputs]float64
	for i := range s.nodes {
		for rest, j := i, s.inputs-1; j >= 0; j-- {
			device[j] = float64(rest%n) / float64(n-1)
			rest /= n
		}
		s.nodes[i] = pack(p.srgb(device))
	}
	step := uint64(1)
	for j := s.inputs - 1; j >= 0; j-- {
		for i := range 256 {
			pos := (i*(n-1)*256 + 127) / 255
			cell := min(pos>>8, n-2)
			s.axes[j][i] = axis{base: uint64(cell) * step, key: uint64(pos-cell<<8)<<32 | step}
		}
		step *= uint64(n)
	}
	for i := range s.out {
		s.out[i] = byte(min(max(0, i-nodeZero+nodeLevel/2)/nodeLevel, 255))
	}
	return s
}

// pack makes a node of a colour.
func pack(v vector) uint64 {
	var word uint64
	for i, x := range v {
		level := max(0, min(x*255*nodeLevel+nodeZero+0.5, nodeMask))
		word |= uint64(level) << (i * nodeField)
	}
	return word
}

// unpack makes a pixel of the weighted sum of nodes.
func (s *simplex) unpack(sum uint64) [3]byte {
	sum += nodeHalf
	return [3]byte{
		s.out[sum>>8&nodeMask],
		s.out[sum>>(nodeField+8)&nodeMask],
		s.out[sum>>(2*nodeField+8)&nodeMask],
	}
}

// rows converts a picture of three samples and alpha, or of four samples.
func (s *simplex) rows(out, from *picture.Picture) {
	colours := ^uint32(0) // the samples that make the colour
	if s.inputs == 3 {
		colours = 0x00FFFFFF
	}
	var last uint32
	var rgb [3]byte
	for y := range from.Height {
		src, dst := row(from, y), row(out, y)
		for i := 0; i+4 <= len(src) && i+4 <= len(dst); i += 4 {
			in, to := src[i:i+4:i+4], dst[i:i+4:i+4]
			// Neighbours are often equal in drawings, and looked up once.
			if c := binary.LittleEndian.Uint32(in) & colours; c != last || y|i == 0 {
				rgb, last = s.at(c), c
			}
			alpha := byte(255)
			if s.inputs == 3 {
				alpha = in[3]
			}
			to[0], to[1], to[2], to[3] = rgb[0], rgb[1], rgb[2], alpha
		}
	}
}

func (s *simplex) at(c uint32) [3]byte {
	switch {
	case s.exact != nil:
		return s.exact.pixel(c)
	case s.inputs == 4:
		return s.at4(c)
	default:
		return s.at3(c)
	}
}

func (s *simplex) at3(c uint32) [3]byte {
	x, y, z := &s.axes[0][c&255], &s.axes[1][c>>8&255], &s.axes[2][c>>16&255]
	a, b, d := x.key, y.key, z.key // sorted by distance
	a, b = max(a, b), min(a, b)
	b, d = max(b, d), min(b, d)
	a, b = max(a, b), min(a, b)
	const step = 1<<32 - 1
	at := x.base + y.base + z.base
	sum := s.nodes[at] * (256 - a>>32)
	at += a & step
	sum += s.nodes[at] * (a>>32 - b>>32)
	at += b & step
	sum += s.nodes[at] * (b>>32 - d>>32)
	at += d & step
	sum += s.nodes[at] * (d >> 32)
	return s.unpack(sum)
}

func (s *simplex) at4(c uint32) [3]byte {
	x, y, z, k := &s.axes[0][c&255], &s.axes[1][c>>8&255], &s.axes[2][c>>16&255], &s.axes[3][c>>24]
	a, b, d, e := x.key, y.key, z.key, k.key // sorted by distance
	a, b = max(a, b), min(a, b)
	d, e = max(d, e), min(d, e)
	a, d = max(a, d), min(a, d)
	b, e = max(b, e), min(b, e)
	b, d = max(b, d), min(b, d)
	const step = 1<<32 - 1
	at := x.base + y.base + z.base + k.base
	sum := s.nodes[at] * (256 - a>>32)
	at += a & step
	sum += s.nodes[at] * (a>>32 - b>>32)
	at += b & step
	sum += s.nodes[at] * (b>>32 - d>>32)
	at += d & step
	sum += s.nodes[at] * (d>>32 - e>>32)
	at += e & step
	sum += s.nodes[at] * (e >> 32)
	return s.unpack(sum)
}

// pixel converts one pixel, four samples from the lowest byte on, by the
// profile itself.
func (p *Profile) pixel(c uint32) [3]byte {
	var device [maxInputs]float64
	for i := range device {
		device[i] = float64(c>>(8*i)&255) / 255
	}
	v := p.srgb(device)
	var out [3]byte
	for i := range v {
		out[i] = byte(255*clip(v[i]) + 0.5)
	}
	return out
}
