package jpeg

import "encoding/binary"

// bitReader reads the bits of a scan. It never passes a marker: after the
// data's end it hands out zeros and counts them, so that the hot loops need
// not ask for an end with every symbol, only once a block.
type bitReader struct {
	data []byte
	pos  int    // of the next byte to take
	acc  uint64 // the next bits, the first at the top; zero below them
	n    uint   // how many of acc are valid
	// made counts the bits that were made up; they are the last ones of acc.
	made uint
	// damaged says that a code was met that does not exist, or a block with
	// more than 64 coefficients.
	damaged bool
}

// exhausted reports whether bits were used that the data did not have.
func (b *bitReader) exhausted() bool { return b.n < b.made }

// restart throws away what is left of the current interval's bits.
func (b *bitReader) restart() { b.acc, b.n, b.made = 0, 0, 0 }

// fill makes sure of at least 32 valid bits: enough for the longest code and
// its value, 16 + 15 (F.1.2.1).
func (b *bitReader) fill() {
	if b.n >= 32 {
		return
	}
	if b.pos+4 <= len(b.data) && b.made == 0 {
		if w := binary.BigEndian.Uint32(b.data[b.pos:]); !hasFF(w) {
			b.acc |= uint64(w) << (32 - b.n)
			b.n += 32
			b.pos += 4
			return
		}
	}
	b.fillSlowly()
}

// hasFF reports whether one of four bytes is 0xFF: whether one of the
// complement's is zero, which borrows from its highest bit when one is taken.
func hasFF(w uint32) bool { return (^w-0x01010101)&w&0x80808080 != 0 }

// fillSlowly fills byte by byte, with an eye on stuffed zeros and markers
// (F.1.2.3 and B.1.1.2).
func (b *bitReader) fillSlowly() {
	for b.n <= 56 && b.made == 0 {
		next := b.pos + 1
		if b.pos >= len(b.data) {
			break
		}
		c := b.data[b.pos]
		if c == 0xFF {
			for next < len(b.data) && b.data[next] == 0xFF { // fill bytes
				next++
			}
			if next >= len(b.data) || b.data[next] != 0 {
				break
			}
			next++
		}
		b.acc |= uint64(c) << (56 - b.n)
		b.n += 8
		b.pos = next
	}
	if b.n < 32 {
		b.made += 64 - b.n
		b.n = 64
	}
}

// bits takes up to 16 bits.
func (b *bitReader) bits(count uint) uint32 {
	b.fill()
	v := uint32(b.acc >> 1 >> (63 - count))
	b.acc <<= count
	b.n -= count
	return v
}
