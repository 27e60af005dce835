package jpeg

import "encoding/binary"

// places is where the coefficients, in the order of the file (figure A.6), are
// in a block: a word holds two neighbours of a row, see type block.
var places = func() (p [64]uint8) {
	for k, natural := range zigzag {
		p[k] = natural / 2
	}
	return p
}()

// zigzag gives, for the order of the file, row × 8 + column.
var zigzag = [64]uint8{
	0, 1, 8, 16, 9, 2, 3, 10,
	17, 24, 32, 25, 18, 11, 4, 5,
	12, 19, 26, 33, 40, 48, 41, 34,
	27, 20, 13, 6, 7, 14, 21, 28,
	35, 42, 49, 56, 57, 50, 43, 36,
	29, 22, 15, 23, 30, 37, 44, 51,
	58, 59, 52, 45, 38, 31, 39, 46,
	53, 60, 61, 54, 47, 55, 62, 63,
}

// block reads the coefficients of one block of a sequential scan (F.2.2),
// dequantised, into blk, which has to be zero. Those after the component's
// last are passed over. It returns the index of the last one that was read.
func (b *bitReader) block(c *component, blk *block) uint {
	b.fill()
	e := c.dc.lut[b.acc>>(64-lutBits)]
	difference := int64(e >> 16)
	if e&entryPart != 0 {
		if e == entryLong {
			e = c.dc.long(b.acc)
			b.damaged = b.damaged || e.advance() == badCode
		}
		difference = e.partial(b.acc)
	}
	c.predicted += int32(difference)
	blk[0] = uint64(int64(c.predicted)) * c.weights[0]

	// The reader's state is kept in registers from here on.
	length := e.length()
	acc, n := b.acc<<length, b.n-length
	var k, last uint
	ac, end := c.ac, c.last
	for k < end {
		if n < 32 {
			if b.made == 0 && uint(b.pos)+4 <= uint(len(b.data)) {
				w := binary.BigEndian.Uint32(b.data[b.pos:])
				if !hasFF(w) {
					acc |= uint64(w) << ((32 - n) & 63)
					n += 32
					b.pos += 4
					goto filled
				}
			}
			b.acc, b.n = acc, n
			b.fillSlowly()
			acc, n = b.acc, b.n
		}
	filled:
		e := ac.lut[acc>>(64-lutBits)]
		v := int64(e >> 16)
		if e&entryPart != 0 {
			if e == entryLong {
				e = ac.long(acc)
			}
			v = e.partial(acc)
		}
		acc <<= e.length()
		n -= e.length()
		k += e.advance()
		if k > 63 {
			b.acc, b.n = acc, n
			b.overran(e)
			return last
		}
		blk[places[k]&31] += uint64(v) * c.weights[k]
		last = k
	}
	b.acc, b.n = acc, n
	if k < 63 {
		b.skip(ac, k)
	}
	return last
}

// overran looks at why a block ended early: regularly, or with more
// coefficients than fit.
func (b *bitReader) overran(e entry) {
	if e.advance() != endOfBlock { // runs of empty blocks are for progressive files only
		b.damaged = true
	}
}

// skip passes over the coefficients of a block after the k-th.
func (b *bitReader) skip(h *huffman, k uint) {
	acc, n := b.acc, b.n
	for k < 63 {
		if n < 32 {
			b.acc, b.n = acc, n
			b.fill()
			acc, n = b.acc, b.n
		}
		// Several symbols, if they are certain to be this block's.
		s := uint(h.skips[acc>>(64-skipBits)])
		if next := k + s>>6&127; s != 0 && next < 63 {
			k = next
			acc <<= s & 31
			n -= s & 31
			if s&skipEnd != 0 {
				break
			}
			continue
		}
		e := h.lut[acc>>(64-lutBits)]
		if e == entryLong {
			e = h.long(acc)
		}
		acc <<= e.length()
		n -= e.length()
		k += e.advance()
		if k > 63 {
			b.overran(e)
		}
	}
	b.acc, b.n = acc, n
}
