package container

import "math/bits"

// The kinds of units in a bitstream of AV1: AV1 specification, 6.2.2.
const (
	obuSequence  = 1
	obuDelimiter = 2
	obuHeader    = 3
	obuTiles     = 4
	obuFrame     = 6
	obuRedundant = 7
)

// bitReader reads numbers of bits, the highest first: AV1, 4.10. After a read beyond the
// end short is true, and all further ones are zero.
type bitReader struct {
	b     []byte
	at    int // in bits
	short bool
}

func (r *bitReader) f(n int) int {
	v := 0
	for range n {
		if r.at >= 8*len(r.b) {
			r.short = true
			return 0
		}
		v = v<<1 | int(r.b[r.at/8]>>(7-r.at%8)&1)
		r.at++
	}
	return v
}

func (r *bitReader) flag() bool { return r.f(1) == 1 }

// ns reads a number below n: 4.10.7.
func (r *bitReader) ns(n int) int {
	w := bits.Len(uint(n))
	m := 1<<w - n
	v := r.f(w - 1)
	if v >= m {
		v = v<<1 - m + r.f(1)
	}
	return v
}

// align goes to the next byte, and reports whether the bits up to it are zero.
func (r *bitReader) align() bool {
	return r.f((8-r.at%8)%8) == 0
}

// leb reads a length from b: 4.10.5.
func leb(b []byte) (v, n int, ok bool) {
	for n < min(len(b), 8) {
		v |= int(b[n]&127) << (7 * n)
		n++
		if b[n-1] < 128 {
			return v, n, v < 1<<32
		}
	}
	return 0, 0, false
}

// log2 is the least k for which size<<k reaches target: tile_log2 of 7.3.
func log2(size, target int) (k int) {
	for size<<k < target {
		k++
	}
	return k
}

// still is what the check of one picture knows.
type still struct {
	sequence *sequence
	frame    *frame
	tiles    int // that were there
}

// checkStill looks at the bitstream of one still picture: its headers, and whether its
// tiles fill it. An error says what a decoder would stumble over.
func checkStill(b []byte) error {
	var s still
	for len(b) > 0 {
		kind, extended, sized := b[0]>>3&15, b[0]&4 != 0, b[0]&2 != 0
		if b[0]&128 != 0 {
			return unsound("its bitstream is none of AV1")
		}
		head := 1
		if extended {
			head = 2
		}
		if len(b) < head {
			return unsound("its bitstream ends within the head of a unit")
		}
		body := b[head:]
		if sized {
			size, n, ok := leb(body)
			if !ok || size > len(body)-n {
				return unsound("a unit of its bitstream is cut off")
			}
			body, b = body[n:n+size], body[n+size:]
		} else {
			b = nil
		}
		if err := s.unit(int(kind), body); err != nil {
			return err
		}
	}
	if s.frame == nil || s.tiles < s.frame.tiles() {
		return unsound("its bitstream ends before its picture does")
	}
	return nil
}

// unit looks at one unit of the bitstream.
func (s *still) unit(kind int, body []byte) (err error) {
	switch kind {
	case obuSequence:
		if s.frame == nil {
			s.sequence, err = parseSequence(body)
		}
		return err
	case obuHeader, obuFrame:
	case obuTiles:
		if s.frame == nil {
			return unsound("its bitstream has tiles before their header")
		}
		if s.tiles == s.frame.tiles() {
			return nil // of a further frame, which an AVIF may have
		}
		return s.group(&bitReader{b: body}, false)
	default:
		return nil
	}
	if s.frame != nil {
		return nil // further frames
	}
	if s.sequence == nil {
		return unsound("its bitstream has a frame before the head of its sequence")
	}
	r := &bitReader{b: body}
	if s.frame, err = parseFrame(r, s.sequence); err != nil {
		return err
	}
	if s.frame.unknown {
		s.tiles = s.frame.tiles()
		return nil
	}
	if kind == obuHeader {
		return nil
	}
	if !r.align() {
		return unsound("the head of its frame does not end where its tiles begin")
	}
	return s.group(r, true)
}

// group looks at some of the tiles: 5.11.1. inFrame: they follow the frame's header.
func (s *still) group(r *bitReader, inFrame bool) error {
	f := s.frame
	all := f.tiles()
	first, last := 0, all-1
	if all > 1 && r.flag() {
		if inFrame {
			return unsound("it says that only a part of its tiles follows, where all have to")
		}
		n := f.colsLog2 + f.rowsLog2
		first, last = r.f(n), r.f(n)
	}
	if !r.align() || r.short || first != s.tiles || last < first || last >= all {
		return unsound("it has the tiles %d to %d of %d after %d", first, last, all, s.tiles)
	}
	b := r.b[r.at/8:]
	for tile := first; tile <= last; tile++ {
		size := len(b)
		if tile < last {
			if len(b) < f.sizeBytes {
				return unsound("its tile %d is cut off", tile)
			}
			size = 1
			for i, x := range b[:f.sizeBytes] {
				size += int(x) << (8 * i)
			}
			b = b[f.sizeBytes:]
		}
		if size == 0 || size > len(b) {
			return unsound("its tile %d has %d bytes, and %d are left", tile, size, len(b))
		}
		b = b[size:]
	}
	s.tiles = last + 1
	return nil
}
