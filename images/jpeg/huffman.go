package jpeg

import "fmt"

// lutBits is how many bits a table looks at in one go. With ten, nine of ten
// coefficients of a photograph are read by one look-up, value included, and
// the four tables in use fit into half of a first-level cache.
const lutBits = 10

// skipBits is the same of the tables for passing over coefficients, which
// take several at once.
const skipBits = 11

// An entry is what a look-up finds: one symbol with its value.
//
//	bits 0–4    all bits to take, of the code and of the value after it
//	bit 7       entryPart: the value is not in the entry
//	bits 8–15   advance: coefficients to go on by, the run of zeros plus one; of
//	            the end of a block endOfBlock plus the symbol's run
//	bits 16–31  the value; with entryPart, how many bits it has
type entry int32

const (
	entryPart  = 0x80
	endOfBlock = 64
	// badCode is the advance of a code that is not in the table.
	badCode = 255
)

// entryLong stands for a code of more than lutBits, which huffman.long reads;
// nothing else is zero but for that flag.
const entryLong entry = entryPart

func (e entry) length() uint  { return uint(e) & 31 }
func (e entry) advance() uint { return uint(e) >> 8 & 255 }

// size is the number of the value's bits, with entryPart.
func (e entry) size() uint { return uint(e) >> 16 & 15 }

// partial returns the value of an entry with entryPart from the bits that start
// with its code.
func (e entry) partial(acc uint64) int64 {
	size := e.size()
	raw := int64(acc >> ((64 - e.length()) & 63) & (1<<size - 1))
	return extend(raw, size)
}

// extend makes a value of its bits (F.2.2.1, figure F.12).
func extend(raw int64, size uint) int64 {
	if size > 0 && raw < 1<<(size-1) {
		raw -= 1<<size - 1
	}
	return raw
}

// spec is a table as the file defines it (B.2.4.2).
type spec struct {
	counts  [16]uint8
	symbols []uint8
}

// huffman is a table made ready for reading. The first look-up is by lutBits;
// limit and delta find longer codes.
type huffman struct {
	lut     [1 << lutBits]entry
	limit   [17]uint32 // of each length: the first 16 bits that are above its codes
	delta   [17]int32  // of each length: from a code to its symbol's index
	symbols []uint8
	dc      bool
	skips   *[1 << skipBits]uint16
}

// newHuffman makes a table ready (C.2).
func newHuffman(s *spec, dc bool) (*huffman, error) {
	h := &huffman{symbols: s.symbols, dc: dc}
	for i := range h.lut {
		h.lut[i] = entryLong
	}
	var code uint32
	index := 0
	for length := uint(1); length <= 16; length++ {
		h.delta[length] = int32(index) - int32(code)
		count := int(s.counts[length-1])
		if code+uint32(count) > 1<<length {
			return nil, fmt.Errorf("%w: a huffman table has more codes of %d bits than there are", ErrFormat, length)
		}
		for range count {
			if dc && s.symbols[index] > 15 {
				return nil, fmt.Errorf("%w: a huffman table has DC differences of %d bits", ErrFormat, s.symbols[index])
			}
			if length <= lutBits {
				h.enter(s.symbols[index], code, length)
			}
			code++
			index++
		}
		h.limit[length] = code << (16 - length)
		code <<= 1
	}
	return h, nil
}

// enter fills in all look-ups that start with a code.
func (h *huffman) enter(symbol uint8, code uint32, length uint) {
	rest := lutBits - length
	e := h.entry(symbol, length)
	if e&entryPart == 0 {
		for i := range uint32(1) << rest {
			h.lut[code<<rest|i] = e
		}
		return
	}
	size := e.size()
	for i := range uint32(1) << rest {
		f := e
		if size <= rest {
			f = e&0xff7f&^entryPart | entry(extend(int64(i>>(rest-size)), size))<<16
		}
		h.lut[code<<rest|i] = f
	}
}

// entry returns what a symbol means, without its value.
func (h *huffman) entry(symbol uint8, length uint) entry {
	size, run := uint(symbol&15), uint(symbol>>4)
	if h.dc {
		run = 0
	}
	switch {
	case size > 0:
		return entry(size<<16 | (run+1)<<8 | entryPart | (length + size))
	case h.dc:
		return entry(1<<8 | length)
	case run == 15:
		return entry(16<<8 | length)
	}
	return entry((endOfBlock+run)<<8 | length)
}

// long reads what is not in the first look-up. A code that does not exist ends
// the block and takes a bit, so that hostile data comes to its end, too.
//
//go:noinline
func (h *huffman) long(acc uint64) entry {
	top := uint32(acc >> 48)
	for length := uint(1); length <= 16; length++ {
		if top < h.limit[length] {
			index := int(int32(top>>(16-length)) + h.delta[length])
			return h.entry(h.symbols[index], length)
		}
	}
	return entry(badCode<<8 | 1)
}

// An entry of skips: bits 0–4 the bits to take, 6–12 the coefficients to go on
// by, bit 15 that the block ends after them. Zero: not even one code fits.
const skipEnd = 1 << 15

// makeSkips prepares passing over coefficients: as many symbols at once as
// have their codes within skipBits.
func (h *huffman) makeSkips() {
	if h.skips != nil {
		return
	}
	h.skips = new([1 << skipBits]uint16)
	for i := range h.skips {
		var used, advance uint
		var end uint16
		for used < skipBits {
			acc := uint64(i) << (64 - skipBits) << used
			e := h.long(acc)
			code := e.length()
			if e&entryPart != 0 {
				code -= e.size()
			}
			if used+code > skipBits || e.advance() == badCode {
				break
			}
			if e.advance() >= endOfBlock {
				used += code
				end = skipEnd
				break
			}
			if advance+e.advance() > 62 {
				break
			}
			advance += e.advance()
			used += e.length()
		}
		h.skips[i] = uint16(used) | uint16(advance)<<6 | end
	}
}
