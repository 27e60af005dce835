package icc

import (
	"encoding/binary"
	"math"

	"millrace/images/picture"
)

// A simplex converts by a grid over the device values: what the profile
// makes of its points is computed once, with all that follows on the way to sRGB, and pixels are interpolated between the corners of the simplex that they
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
	// exact is set instead of nodes for images of fewer pixels than a grid has.
	exact *Profile
}

type axis struct {
	base uint64
	key  uint64
}

const (
	nodeBits = 13 // of a channel of a node
	// nodeLevel is a 255th of white in nodes, which reach from -0.98 to 1.69
	// times white, that is to light of 3.6.
	nodeLevel = 12
	nodeZero  = 3000
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
	// What lies between points of a grid in Lab is meant to be even to the eye, so
	// the points are placed where the profile has its own, after its curves.
	// With XYZ it is the device values that are even.
	shaped := p.lab && len(p.table.a) != 0
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
		if shaped {
			s.nodes[i] = pack(fromD50.mul(p.table.xyz(device)))
		} else {
			s.nodes[i] = pack(fromD50.mul(p.xyz(device)))
		}
	}
	step := uint64(1)
	for j := s.inputs - 1; j >= 0; j-- {
		for i := range 256 {
			x := float64(i) / 255
			if shaped {
				x = p.table.a[j].at(x)
			}
			pos := int(x*float64((n-1)*256) + 0.5)
			cell := min(pos>>8, n-2)
			s.axes[j][i] = axis{base: uint64(cell) * step, key: uint64(pos-cell<<8)<<32 | step}
		}
		step *= uint64(n)
	}
	for i := range s.out {
		light := expand(float64(i-nodeZero) / (255 * nodeLevel))
		s.out[i] = byte(255*clip(encode(light)) + 0.5)
	}
	return s
}

// toe is the light up to which compand is a line, toeRoot its cube root.
// toeScale and toeSlope make value and slope go on there, and 1 stay 1.
const (
	toeRoot  = 0.35
	toe      = toeRoot * toeRoot * toeRoot
	toeScale = 1 / (1 - 2*toeRoot/3)
	toeSlope = toeScale / (3 * toeRoot * toeRoot)
)

// compand is the curve from light to what nodes hold: nearly as sRGB's, and so
// as even to the eye, but with a long straight toe on both sides of black.
// Without that, cells come out bent that have black at one corner, or corners
// on both sides of the gamut's edge: for a SWOP profile, most of whose cyans are
// out of gamut, it leaves one in seventy of the errors above two levels.
func compand(x float64) float64 {
	if math.Abs(x) < toe {
		return x * toeSlope
	}
	return math.Copysign(toeScale*math.Cbrt(math.Abs(x))-(toeScale-1), x)
}

// expand is the inverse of compand.
func expand(y float64) float64 {
	if math.Abs(y) < toe*toeSlope {
		return y / toeSlope
	}
	z := (math.Abs(y) + toeScale - 1) / toeScale
	return math.Copysign(z*z*z, y)
}

// pack makes a node of linear sRGB.
func pack(v vector) uint64 {
	var word uint64
	for i, x := range v {
		level := max(0, min(compand(x)*255*nodeLevel+nodeZero+0.5, nodeMask))
		word |= uint64(level) << (i * nodeField)
	}
	return word
}

// pixel makes red, green and blue, from the lowest byte on, of the weighted
// sum of nodes.
func (s *simplex) pixel(sum uint64) uint32 {
	sum += nodeHalf
	return uint32(s.out[sum>>8&nodeMask]) |
		uint32(s.out[sum>>(nodeField+8)&nodeMask])<<8 |
		uint32(s.out[sum>>(2*nodeField+8)&nodeMask])<<16
}

// rows converts an image of three samples and alpha, or of four samples.
func (s *simplex) rows(out, from *picture.Picture) {
	for y := range from.Height {
		src, dst := row(from, y), row(out, y)
		switch {
		case s.exact != nil:
			s.exact.row(dst, src)
		case s.inputs == 4:
			s.row4(dst, src)
		default:
			s.row3(dst, src)
		}
	}
}

const (
	colourMask = 1<<24 - 1 // of a pixel whose highest byte is alpha
	stepMask   = 1<<32 - 1 // of an axis' key
)

// order returns the larger of two numbers below 2^63 first. It has no branch: the
// order of distances is random, and guessing it wrong costs more than all the rest.
func order(a, b uint64) (high, low uint64) {
	lack := (a - b) & uint64(int64(a-b)>>63)
	return a - lack, b + lack
}

// Neighbours are often equal in drawings, and looked up once: the loops keep the
// last pixel and what became of it.

func (s *simplex) row3(dst, src []byte) {
	last, rgb := ^uint32(0), uint32(0)
	for i := 0; i+4 <= len(src) && i+4 <= len(dst); i += 4 {
		in := binary.LittleEndian.Uint32(src[i:])
		if c := in & colourMask; c != last {
			last = c
			x, y, z := &s.axes[0][c&255], &s.axes[1][c>>8&255], &s.axes[2][c>>16&255]
			a, b, d := x.key, y.key, z.key // to be sorted by distance
			a, b = order(a, b)
			b, d = order(b, d)
			a, b = order(a, b)
			at := x.base + y.base + z.base
			sum := s.nodes[at] * (256 - a>>32)
			at += a & stepMask
			sum += s.nodes[at] * (a>>32 - b>>32)
			at += b & stepMask
			sum += s.nodes[at] * (b>>32 - d>>32)
			at += d & stepMask
			sum += s.nodes[at] * (d >> 32)
			rgb = s.pixel(sum)
		}
		binary.LittleEndian.PutUint32(dst[i:], rgb|in&^colourMask)
	}
}

func (s *simplex) row4(dst, src []byte) {
	last, rgb := uint32(0), uint32(0)
	for i := 0; i+4 <= len(src) && i+4 <= len(dst); i += 4 {
		c := binary.LittleEndian.Uint32(src[i:])
		if c != last || i == 0 {
			last = c
			x, y, z, k := &s.axes[0][c&255], &s.axes[1][c>>8&255], &s.axes[2][c>>16&255], &s.axes[3][c>>24]
			a, b, d, e := x.key, y.key, z.key, k.key // to be sorted by distance
			a, b = order(a, b)
			d, e = order(d, e)
			a, d = order(a, d)
			b, e = order(b, e)
			b, d = order(b, d)
			at := x.base + y.base + z.base + k.base
			sum := s.nodes[at] * (256 - a>>32)
			at += a & stepMask
			sum += s.nodes[at] * (a>>32 - b>>32)
			at += b & stepMask
			sum += s.nodes[at] * (b>>32 - d>>32)
			at += d & stepMask
			sum += s.nodes[at] * (d>>32 - e>>32)
			at += e & stepMask
			sum += s.nodes[at] * (e >> 32)
			rgb = s.pixel(sum)
		}
		binary.LittleEndian.PutUint32(dst[i:], rgb|255<<24)
	}
}

// row converts pixels by the profile itself.
func (p *Profile) row(dst, src []byte) {
	last, rgb := uint32(0), uint32(0)
	opaque := uint32(0)
	mask := uint32(colourMask)
	if p.inputs() == 4 {
		opaque, mask = ^uint32(colourMask), ^uint32(0)
	}
	for i := 0; i+4 <= len(src) && i+4 <= len(dst); i += 4 {
		in := binary.LittleEndian.Uint32(src[i:])
		if c := in & mask; c != last || i == 0 {
			last = c
			rgb = p.pixel(c)
		}
		binary.LittleEndian.PutUint32(dst[i:], rgb|in&^colourMask|opaque)
	}
}

// pixel converts one pixel, samples and result from the lowest byte on.
func (p *Profile) pixel(c uint32) uint32 {
	var device [maxInputs]float64
	for i := range device {
		device[i] = float64(c>>(8*i)&255) / 255
	}
	v := p.srgb(device)
	var out uint32
	for i := range v {
		out |= uint32(255*clip(v[i])+0.5) << (8 * i)
	}
	return out
}
