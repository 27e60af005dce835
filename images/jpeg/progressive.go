package jpeg

// readDC reads the DC coefficient of a block (G.1.2.1).
func (s *scan) readDC(c *component, index int) bool {
	b := &s.bits
	k := &c.coefficients[index*c.per]
	if s.high > 0 {
		*k |= int16(b.bits(1) << s.low)
		return !b.exhausted()
	}
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
	b.acc <<= e.length()
	b.n -= e.length()
	if b.exhausted() {
		return false
	}
	c.predicted += int32(difference)
	*k = int16(c.predicted << s.low)
	return true
}

// readBand reads the band of AC coefficients of blocks m to end, of the scan's
// only component. It returns the first block for which there was no data.
func (s *scan) readBand(m, end int) int {
	c := s.components[0]
	x, y := m%c.across, m/c.across
	for m < end {
		if s.endRun > 0 && s.high == 0 {
			// A run passes over blocks without looking at them: a few bytes may
			// stand for a whole image.
			n := min(s.endRun, end-m)
			s.endRun -= n
			m += n
			x, y = m%c.across, m/c.across
			continue
		}
		index := y*c.blocksX + x
		if s.endRun > 0 && uint(c.highest[index]) < s.first {
			s.endRun-- // nothing to refine
		} else {
			coefficients := (*[64]int16)(c.coefficients[index*64:])
			if s.high == 0 {
				s.readFirst(c, coefficients, &c.highest[index])
			} else {
				s.readRefinement(c, coefficients, &c.highest[index])
			}
			if s.bits.exhausted() {
				return m
			}
		}
		m++
		if x++; x == c.across {
			x, y = 0, y+1
		}
	}
	return m
}

// symbol reads one symbol of the AC table with its value.
func (b *bitReader) symbol(h *huffman) (e entry, value int64) {
	if b.n < 32 {
		b.fill()
	}
	e = h.lut[b.acc>>(64-lutBits)]
	value = int64(e >> 16)
	if e&entryPart != 0 {
		if e == entryLong {
			e = h.long(b.acc)
		}
		value = e.partial(b.acc)
	}
	b.acc <<= e.length()
	b.n -= e.length()
	return e, value
}

// readFirst reads a block's band for the first time (G.1.2.2).
func (s *scan) readFirst(c *component, coefficients *[64]int16, highest *uint8) {
	b := &s.bits
	k := s.first - 1
	for k < s.last {
		e, value := b.symbol(c.ac)
		k += e.advance()
		if k > s.last {
			s.ended(e)
			s.endRun = max(s.endRun-1, 0) // this block is of the run
			return
		}
		if value != 0 {
			coefficients[k&63] = int16(value << s.low)
			*highest = max(*highest, uint8(k))
		}
	}
}

// ended starts the run of blocks that a symbol stands for which ended a band.
func (s *scan) ended(e entry) {
	a := e.advance()
	if a < endOfBlock || a == badCode {
		s.bits.damaged = true
		return
	}
	run := a - endOfBlock
	s.endRun = 1
	if run > 0 {
		s.endRun = 1<<run + int(s.bits.bits(run))
	}
}

// readRefinement reads one more bit of a block's band (G.1.2.3): symbols say
// where coefficients become different from zero, and between them are bits for
// those that already are.
func (s *scan) readRefinement(c *component, coefficients *[64]int16, highest *uint8) {
	b := &s.bits
	k := s.first
	for s.endRun == 0 && k <= s.last {
		e, value := b.symbol(c.ac)
		if e.advance() >= endOfBlock {
			s.ended(e)
			if s.endRun == 0 {
				return
			}
			break
		}
		k = s.refine(coefficients, k, s.last, e.advance()-1)
		if k > s.last {
			b.damaged = b.damaged || value != 0
			return
		}
		if value != 0 {
			coefficients[k&63] = int16(min(max(value, -1), 1) << s.low)
			*highest = max(*highest, uint8(k))
		}
		k++
	}
	if s.endRun > 0 {
		s.refine(coefficients, k, min(s.last, uint(*highest)), 64)
		s.endRun--
	}
}

// refine reads the correction bits of coefficients from k to last until it has
// passed zeros of them that are zero, and returns where the next zero is.
func (s *scan) refine(coefficients *[64]int16, k, last, zeros uint) uint {
	b := &s.bits
	low := s.low & 15
	for ; k <= last; k++ {
		v := coefficients[k&63]
		if v == 0 {
			if zeros == 0 {
				break
			}
			zeros--
			continue
		}
		if b.n == 0 {
			b.fill()
		}
		bit := int16(b.acc >> 63)
		b.acc <<= 1
		b.n--
		// Away from zero, unless the bit is there already (of a damaged file).
		delta := bit << low
		if v > 0 && v&delta == 0 {
			coefficients[k&63] = v + delta
		} else if v < 0 && -v&delta == 0 {
			coefficients[k&63] = v - delta
		}
	}
	return k
}

// finish makes samples of what is not drawn yet.
func (c *component) finish(progressive bool) {
	if !c.seen {
		paint(c.pix, gray)
		return
	}
	if !progressive {
		return
	}
	var blk block
	for index, highest := range c.highest {
		coefficients := c.coefficients[index*c.per:]
		last := min(uint(highest), c.last)
		blk[0] = uint64(int64(coefficients[0])) * c.weights[0]
		if last > 0 {
			all := (*[64]int16)(coefficients)
			for k := uint(1); k <= last; k++ {
				blk[places[k&63]&31] += uint64(int64(all[k&63])) * c.weights[k&63]
			}
		}
		x, y := index%c.blocksX, index/c.blocksX
		c.draw(&blk, last, c.pix[(y*c.stride+x)*c.size:])
	}
	c.coefficients, c.highest = nil, nil
}
