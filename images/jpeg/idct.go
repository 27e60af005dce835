package jpeg

import (
	"encoding/binary"
	"math"
)

// A block holds 64 coefficients, two neighbours of a row in each word: the left
// one plus 2³² times the right one, both signed. Sums, differences and products
// with a constant of such words are those of both numbers at once, exactly, as
// long as the results have 32 bits: carries and borrows between the halves are
// part of the representation. So each step of the transform below is done for
// two columns, then for two rows, at a time. Numbers that do not fit (of hostile
// files; sound ones stay sixteenfold below) spoil their neighbours, no more.
type block [32]uint64

// both is a constant for both halves of a word.
const both = 1<<32 + 1

// The fixed-point numbers of the full transform. Weights (see weigh) have
// weightBits after the point, the transform's constants constBits; 9 and 8
// leave the room that is said above, and errors under a tenth of a sample's step.
const (
	weightBits = 9
	constBits  = 8

	// ×√2, 2cos(π/8), 2(cos(π/8)-cos(3π/8)), 2(cos(π/8)+cos(3π/8))
	sqrt2   = 362
	turn    = 473
	turnLow = 277
	turnTop = 669

	// lift makes the first pass's results positive while they are packed; after
	// its shift it is lifted.
	lift   = 1 << 31
	lifted = lift >> constBits
	// settle is where the sample's bits begin in the end: the two-dimensional
	// transform has a factor of 8 that is taken out there, too.
	settle = 3 + weightBits + constBits
	// center is added in the end: the level shift (A.3.1) and a half, to round.
	center = 128<<settle + 1<<(settle-1)
	// centerSum is center without what two lifted numbers add, modulo 2⁶⁴.
	centerSum = 1<<64 + center*both - 2*lifted<<constBits*both
)

// The same of the half-size transform, whose weights are not scaled.
const (
	halfConstBits  = 12
	halfWeightBits = weightBits + constBits - halfConstBits // settle is the same
	halfCos1       = 5352                                   // √2cos(π/8)
	halfCos3       = 2217                                   // √2cos(3π/8)
	halfLifted     = lift >> halfConstBits
)

// weigh makes, of a quantisation table, the factors that a coefficient is
// multiplied with: they dequantise, put it into its half of the word, and hold
// the factors that the transform has at its entrance (Arai, Agui, Nakajima: A
// fast DCT-SQ scheme for images, 1988). size is 8, 4, 2 or 1 samples a block's
// side; coefficients not needed for it have weight 0.
func weigh(table *[64]uint16, size int) (weights [64]uint64) {
	var entrance [8]float64
	for i := range entrance {
		entrance[i] = math.Sqrt2 * math.Cos(float64(i)*math.Pi/16)
	}
	entrance[0] = 1
	for k, natural := range zigzag {
		row, column := int(natural/8), int(natural%8)
		if row >= size || column >= size {
			continue
		}
		w := uint64(table[k])
		switch size {
		case 8:
			w = uint64(math.Round(float64(w) * entrance[row] * entrance[column] * (1 << weightBits)))
		case 4:
			w <<= halfWeightBits
		}
		weights[k] = w << (32 * (column & 1))
	}
	return weights
}

// draw makes samples of a block whose coefficients after the last-th are zero,
// and leaves the block zero. dst begins with the block's first sample.
func (c *component) draw(blk *block, last uint, dst []byte) {
	switch c.size {
	case 8:
		switch {
		case last == 0:
			drawFlat(int32(blk[0])>>weightBits, dst, c.stride)
			blk[0] = 0
		case last <= 9: // all within the first four rows and columns
			drawCorner(blk, dst, c.stride)
			*(*[16]uint64)(blk[:]) = [16]uint64{}
		default:
			drawFull(blk, dst, c.stride)
			*blk = block{}
		}
	case 4:
		drawHalf(blk, dst, c.stride)
		*(*[16]uint64)(blk[:]) = [16]uint64{}
	case 2:
		drawQuarter(blk, dst, c.stride)
		blk[0], blk[4] = 0, 0
	default:
		dst[0] = clamp((int32(blk[0])+4)>>3 + 128)
		blk[0] = 0
	}
}

func clamp(v int32) uint8 { return uint8(max(0, min(v, 255))) }

// drawFlat draws a block that has only a DC coefficient.
func drawFlat(dc int32, dst []byte, stride int) {
	v := uint64(clamp((dc+4)>>3+128)) * 0x0101010101010101
	for range 7 {
		binary.LittleEndian.PutUint64(dst, v)
		dst = dst[stride:]
	}
	binary.LittleEndian.PutUint64(dst, v)
}

// drawFull is the whole transform. Both passes are the flow graph of the paper
// named at weigh, with five multiplications; the shifts by constBits bring what
// is not multiplied to the scale of what is.
func drawFull(blk *block, dst []byte, stride int) {
	var ws block
	for p := range 4 {
		y0 := blk[p] + lifted*both
		y1, y2, y3 := blk[p+4], blk[p+8], blk[p+12]
		y4, y5, y6, y7 := blk[p+16], blk[p+20], blk[p+24], blk[p+28]

		a, b := (y0+y4)<<constBits, (y0-y4)<<constBits
		c := (y2 + y6) << constBits
		d := (y2-y6)*sqrt2 - c
		e0, e1, e2, e3 := a+c, b+d, b-d, a-c

		f, g, h, i := y5+y3, y5-y3, y1+y7, y1-y7
		m := (g + i) * turn
		o0 := (h + f) << constBits
		o1 := m - g*turnTop - o0
		o2 := (h-f)*sqrt2 - o1
		o3 := i*turnLow - m + o2

		ws[p], ws[p+28] = e0+o0, e0-o0
		ws[p+4], ws[p+24] = e1+o1, e1-o1
		ws[p+8], ws[p+20] = e2+o2, e2-o2
		ws[p+16], ws[p+12] = e3+o3, e3-o3
	}
	for r := 0; r < 32; r += 8 {
		upper, lower := (*[4]uint64)(ws[r:]), (*[4]uint64)(ws[r+4:])
		y0, y1 := pairRows(upper[0], lower[0])
		y2, y3 := pairRows(upper[1], lower[1])
		y4, y5 := pairRows(upper[2], lower[2])
		y6, y7 := pairRows(upper[3], lower[3])

		// What was lifted in the first pass is taken out of the sums here, and
		// is gone from the differences.
		a, b := (y0+y4)<<constBits+centerSum, (y0-y4)<<constBits+center*both
		c := (y2 + y6 - 2*lifted*both) << constBits
		d := (y2-y6)*sqrt2 - c
		e0, e1, e2, e3 := a+c, b+d, b-d, a-c

		f, g, h, i := y5+y3, y5-y3, y1+y7, y1-y7
		m := (g + i) * turn
		o0 := (h + f - 4*lifted*both) << constBits
		o1 := m - g*turnTop - o0
		o2 := (h-f)*sqrt2 - o1
		o3 := i*turnLow - m + o2

		left, outside := pack(e0+o0, e1+o1, e2+o2, e3-o3)
		if outside != 0 {
			left = packClamped(e0+o0, e1+o1, e2+o2, e3-o3)
		}
		right, outside := pack(e3+o3, e2-o2, e1-o1, e0-o0)
		if outside != 0 {
			right = packClamped(e3+o3, e2-o2, e1-o1, e0-o0)
		}
		binary.LittleEndian.PutUint64(dst, left&0xFFFFFFFF|right<<32)
		dst = dst[stride:]
		binary.LittleEndian.PutUint64(dst, left>>32|right>>32<<32)
		if r < 24 {
			dst = dst[stride:]
		}
	}
}

// drawCorner is drawFull for blocks with coefficients in the first four rows
// and columns only.
func drawCorner(blk *block, dst []byte, stride int) {
	var ws [16]uint64 // two words a row
	for p := range 2 {
		y0 := blk[p] + lifted*both
		y1, y2, y3 := blk[p+4], blk[p+8], blk[p+12]

		a, c := y0<<constBits, y2<<constBits
		d := y2*sqrt2 - c
		e0, e1, e2, e3 := a+c, a+d, a-d, a-c

		m := (y1 - y3) * turn
		o0 := (y1 + y3) << constBits
		o1 := m + y3*turnTop - o0
		o2 := (y1-y3)*sqrt2 - o1
		o3 := y1*turnLow - m + o2

		ws[p], ws[p+14] = e0+o0, e0-o0
		ws[p+2], ws[p+12] = e1+o1, e1-o1
		ws[p+4], ws[p+10] = e2+o2, e2-o2
		ws[p+8], ws[p+6] = e3+o3, e3-o3
	}
	for r := 0; r < 16; r += 4 {
		rows := (*[4]uint64)(ws[r:])
		y0, y1 := pairRows(rows[0], rows[2])
		y2, y3 := pairRows(rows[1], rows[3])
		y1 -= lifted * both
		y2 -= lifted * both
		y3 -= lifted * both

		a, c := (y0-lifted*both)<<constBits+center*both, y2<<constBits
		d := y2*sqrt2 - c
		e0, e1, e2, e3 := a+c, a+d, a-d, a-c

		m := (y1 - y3) * turn
		o0 := (y1 + y3) << constBits
		o1 := m + y3*turnTop - o0
		o2 := (y1-y3)*sqrt2 - o1
		o3 := y1*turnLow - m + o2

		left, outside := pack(e0+o0, e1+o1, e2+o2, e3-o3)
		if outside != 0 {
			left = packClamped(e0+o0, e1+o1, e2+o2, e3-o3)
		}
		right, outside := pack(e3+o3, e2-o2, e1-o1, e0-o0)
		if outside != 0 {
			right = packClamped(e3+o3, e2-o2, e1-o1, e0-o0)
		}
		binary.LittleEndian.PutUint64(dst, left&0xFFFFFFFF|right<<32)
		dst = dst[stride:]
		binary.LittleEndian.PutUint64(dst, left>>32|right>>32<<32)
		if r < 12 {
			dst = dst[stride:]
		}
	}
}

// drawHalf makes 4 × 4 samples of the 4 × 4 lowest coefficients by the
// transform of that size: what is left out is what 4 × 4 samples cannot show.
func drawHalf(blk *block, dst []byte, stride int) {
	var ws [8]uint64 // two words a row
	for p := range 2 {
		y0 := blk[p] + halfLifted*both
		y1, y2, y3 := blk[p+4], blk[p+8], blk[p+12]
		e0, e1 := (y0+y2)<<halfConstBits, (y0-y2)<<halfConstBits
		o0, o1 := y1*halfCos1+y3*halfCos3, y1*halfCos3-y3*halfCos1
		ws[p], ws[p+2], ws[p+4], ws[p+6] = e0+o0, e1+o1, e1-o1, e0-o0
	}
	for r := 0; r < 8; r += 4 {
		rows := (*[4]uint64)(ws[r:])
		y0, y1 := pairRowsHalf(rows[0], rows[2])
		y2, y3 := pairRowsHalf(rows[1], rows[3])
		y0 -= halfLifted * both
		y1 -= halfLifted * both
		y2 -= halfLifted * both
		y3 -= halfLifted * both
		e0, e1 := (y0+y2)<<halfConstBits+center*both, (y0-y2)<<halfConstBits+center*both
		o0, o1 := y1*halfCos1+y3*halfCos3, y1*halfCos3-y3*halfCos1
		samples, outside := pack(e0+o0, e1+o1, e1-o1, e0-o0)
		if outside != 0 {
			samples = packClamped(e0+o0, e1+o1, e1-o1, e0-o0)
		}
		binary.LittleEndian.PutUint32(dst, uint32(samples))
		dst = dst[stride:]
		binary.LittleEndian.PutUint32(dst, uint32(samples>>32))
		if r < 4 {
			dst = dst[stride:]
		}
	}
}

// drawQuarter makes 2 × 2 samples of the 2 × 2 lowest coefficients.
func drawQuarter(blk *block, dst []byte, stride int) {
	const center = 128<<3 + 4
	y00, y10 := int32(blk[0])+center, int32(blk[4])
	y01 := int32((blk[0] - uint64(int64(int32(blk[0])))) >> 32)
	y11 := int32((blk[4] - uint64(int64(y10))) >> 32)
	dst[0], dst[1] = clamp((y00+y01+y10+y11)>>3), clamp((y00-y01+y10-y11)>>3)
	dst = dst[stride:]
	dst[0], dst[1] = clamp((y00+y01-y10-y11)>>3), clamp((y00-y01-y10+y11)>>3)
}

// pairRows turns two words of the first pass, of two rows and the same two
// columns, into words of one column and two rows each.
func pairRows(upper, lower uint64) (left, right uint64) {
	const mask = (1<<32 - 1) >> constBits
	left = upper>>constBits&mask | lower<<(32-constBits)&(mask<<32)
	right = upper>>(32+constBits) | lower>>constBits&(mask<<32)
	return left, right
}

// pairRowsHalf is pairRows for drawHalf.
func pairRowsHalf(upper, lower uint64) (left, right uint64) {
	const mask = (1<<32 - 1) >> halfConstBits
	left = upper>>halfConstBits&mask | lower<<(32-halfConstBits)&(mask<<32)
	right = upper>>(32+halfConstBits) | lower>>halfConstBits&(mask<<32)
	return left, right
}

// pack makes four samples each of two rows of the second pass's results, those
// of the upper row below. outside is not 0 if some must be clamped.
func pack(x0, x1, x2, x3 uint64) (samples, outside uint64) {
	const mask = 0xFF * both
	samples = x0>>settle&mask | x1>>(settle-8)&(mask<<8) | x2>>(settle-16)&(mask<<16) | x3<<(24-settle)&(mask<<24)
	outside = (x0 | x1 | x2 | x3) & (0xF << (settle + 8) * both)
	return samples, outside
}

// packClamped is pack with clamping.
//
//go:noinline
func packClamped(x0, x1, x2, x3 uint64) (samples uint64) {
	for i, x := range [4]uint64{x0, x1, x2, x3} {
		samples |= uint64(clamp(int32(uint32(x))>>settle)) << (8 * i)
		samples |= uint64(clamp(int32(x>>32)>>settle)) << (8*i + 32)
	}
	return samples
}
