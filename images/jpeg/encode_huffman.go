package jpeg

import (
	"cmp"
	"math/bits"
	"slices"
)

func bitLength(v int) int { return bits.Len(uint(v)) }

// codes are a Huffman table in the making: at first how often there is each
// symbol, then its code.
type codes struct {
	counts [256]int
	code   [256]uint16
	length [256]uint8 // 0 until build
}

func (t *codes) used() bool {
	return slices.ContainsFunc(t.counts[:], func(n int) bool { return n > 0 })
}

const maxCode = 16 // bits (C)

// build makes the codes, and returns them as a file has them (B.2.4.2): how many
// there are of each length, and the symbols in their order.
func (t *codes) build() (lengths [maxCode]byte, symbols []byte) {
	for s, n := range t.counts {
		if n > 0 {
			symbols = append(symbols, byte(s))
		}
	}
	slices.SortStableFunc(symbols, func(a, b byte) int { return cmp.Compare(t.counts[b], t.counts[a]) })
	weights := make([]int, 0, len(symbols)+1)
	for _, s := range symbols {
		weights = append(weights, t.counts[s])
	}
	// One more that never comes: its code, the last of the longest, is the one of
	// ones alone, which a file may not have (C).
	counts := codeLengths(append(weights, 0))
	longest := maxCode
	for counts[longest] == 0 {
		longest--
	}
	counts[longest]--
	code, next := 0, 0
	for length := 1; length <= maxCode; length++ {
		lengths[length-1] = byte(counts[length])
		for range counts[length] {
			s := symbols[next]
			t.code[s], t.length[s] = uint16(code), uint8(length)
			code++
			next++
		}
		code <<= 1
	}
	return lengths, symbols
}

// coin is a symbol, or two coins.
type coin struct {
	weight int
	symbol int
	pair   *[2]*coin // nil: a symbol
}

// spend adds one to the length of each symbol in a coin.
func (c *coin) spend(length []int) {
	if c.pair == nil {
		length[c.symbol]++
		return
	}
	c.pair[0].spend(length)
	c.pair[1].spend(length)
}

// codeLengths says how many codes of each length, up to maxCode, are best for
// symbols of these weights, which fall. The method is Larmore and Hirschberg's: each
// symbol is a coin of every length; sixteen times the coins are paired with those
// of the next length, and of what is left the cheapest are bought. What a symbol
// is bought in is its length.
func codeLengths(weights []int) (counts [maxCode + 1]int) {
	singles := make([]*coin, 0, len(weights))
	for i, w := range slices.Backward(weights) {
		singles = append(singles, &coin{weight: w, symbol: i})
	}
	all := singles
	for range maxCode - 1 {
		pairs := make([]coin, len(all)/2)
		next := make([]*coin, 0, len(singles)+len(pairs))
		left := singles
		for i := range pairs {
			a, b := all[2*i], all[2*i+1]
			pairs[i] = coin{weight: a.weight + b.weight, pair: &[2]*coin{a, b}}
			for len(left) > 0 && left[0].weight <= pairs[i].weight { // cheapest first
				next, left = append(next, left[0]), left[1:]
			}
			next = append(next, &pairs[i])
		}
		all = append(next, left...)
	}
	length := make([]int, len(weights))
	for _, c := range all[:min(2*len(weights)-2, len(all))] {
		c.spend(length)
	}
	for _, n := range length {
		counts[n]++
	}
	return counts
}

// scanWriter writes a scan's bits or, as long as its tables have no codes, counts
// its symbols.
type scanWriter struct {
	out    []byte
	tables [2]codes
	table  *codes // that symbols are of now
	acc    uint64 // bits that are not written yet, at the lower end
	n      uint
}

// symbol writes the code of a symbol.
func (w *scanWriter) symbol(s byte) {
	t := w.table
	t.counts[s]++
	if length := t.length[s]; length > 0 {
		w.bits(uint32(t.code[s]), uint(length))
	}
}

// value writes a symbol of a run of zeros and a value's size, and the value (F.1.2).
func (w *scanWriter) value(zeros, v int) {
	below := v
	if v < 0 {
		v, below = -v, below-1
	}
	size := bitLength(v)
	w.symbol(byte(zeros<<4 | size))
	w.bits(uint32(below)&(1<<size-1), uint(size))
}

// bits writes up to 16 bits.
func (w *scanWriter) bits(v uint32, n uint) {
	if w.out == nil {
		return
	}
	w.acc, w.n = w.acc<<n|uint64(v), w.n+n
	for w.n >= 8 {
		w.n -= 8
		b := byte(w.acc >> w.n)
		if w.out = append(w.out, b); b == 0xFF {
			w.out = append(w.out, 0) // so that it is no marker (B.1.1.5)
		}
	}
}

// flush fills the last byte with ones (F.1.2.3).
func (w *scanWriter) flush() {
	if w.n > 0 {
		w.bits(1<<(8-w.n)-1, 8-w.n)
	}
}
